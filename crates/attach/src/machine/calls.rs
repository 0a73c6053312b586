//! Processor-independent types for calls in a thread.

use std::io;

/// The registers that unwinding tracks, by their numbers in unwind tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known<const COUNT: usize> {
    /// The values; registers that no function preserves are not tracked.
    pub values: [u64; COUNT],
}

/// The state to which a thread returns after its calls.
#[derive(Debug)]
pub struct Before<Registers> {
    /// The registers when it stopped.
    pub registers: Registers,
    /// The vector registers.
    pub extended: Vec<u8>,
    /// The signals that it blocks.
    pub mask: u64,
}

/// Code of the program that calls need.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// `SIGNAL_RETURN`
    pub signal_return: u64,
    /// `SYSTEM_CALL_AND_RETURN`
    pub system_call: u64,
}

/// A call to make in a thread.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The function, or the address of `SYSTEM_CALL_AND_RETURN`.
    pub function: u64,
    /// The number of a system call, else 0.
    pub number: u64,
    /// Arguments.
    pub arguments: [u64; 6],
    /// Whether the result of the function is needed.
    #[cfg_attr(target_arch = "aarch64", expect(dead_code, reason = "it is seen in any case"))]
    pub is_asked: bool,
}

/// Flags of an alternate signal stack that the kernel rejects, so that the thread keeps its own.
pub const NO_STACK_FLAGS: u32 = 0x7777;

/// Converts the result of a system call.
///
/// Errors: the error of the call.
pub fn result(value: u64) -> io::Result<u64> {
    const ERRORS: u64 = 4096;
    let error = value.wrapping_neg();
    if (1..ERRORS).contains(&error) {
        return Err(io::Error::from_raw_os_error(error as i32));
    }
    Ok(value)
}
