//! The data of a parallel region of LLVM's library, which assembly reads.

use core::mem::offset_of;

/// A parallel region of LLVM's library, whose function gets a variable number of words. On the
/// stack of the thread that starts it, like the words.
#[repr(C)]
pub struct Microtask {
    pub function: usize,
    pub count: usize,
    /// The words that were passed in registers, which are readable even if there are fewer.
    pub first: *const usize,
    /// The others.
    pub rest: *const usize,
    pub context: u64,
}

impl Microtask {
    pub const FUNCTION_AT: usize = offset_of!(Microtask, function);
    pub const COUNT_AT: usize = offset_of!(Microtask, count);
    pub const FIRST_AT: usize = offset_of!(Microtask, first);
    pub const REST_AT: usize = offset_of!(Microtask, rest);
}
