//! Calls that a thread is to make, on any processor.

use std::io;

/// The registers that frames are found with, by their numbers in unwind tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known<const COUNT: usize> {
    /// The values; those that no function keeps are not followed.
    pub values: [u64; COUNT],
}

/// What a thread is to return to, once it has done what it is asked to.
#[derive(Debug)]
pub struct Before<Registers> {
    /// The registers as they were when it stopped.
    pub registers: Registers,
    /// The vector registers.
    pub extended: Vec<u8>,
    /// The signals that it blocks.
    pub mask: u64,
}

/// Places in the code of the program that calls need.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// `SIGNAL_RETURN`
    pub signal_return: u64,
    /// `SYSTEM_CALL_AND_RETURN`
    pub system_call: u64,
}

/// A call that a thread is to make.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The function, or the address of `SYSTEM_CALL_AND_RETURN`.
    pub function: u64,
    /// The number of a system call, else 0.
    pub number: u64,
    /// Arguments.
    pub arguments: [u64; 6],
    /// Whether the result of the function matters.
    #[cfg_attr(target_arch = "aarch64", expect(dead_code, reason = "it is seen in any case"))]
    pub is_asked: bool,
}

/// An alternate signal stack that the kernel refuses, so that the thread keeps its own.
pub const NO_STACK_FLAGS: u32 = 0x7777;

/// The result of a system call.
///
/// Errors: that of the call.
pub fn result(value: u64) -> io::Result<u64> {
    const ERRORS: u64 = 4096;
    let error = value.wrapping_neg();
    if (1..ERRORS).contains(&error) {
        return Err(io::Error::from_raw_os_error(error as i32));
    }
    Ok(value)
}
