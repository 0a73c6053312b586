//! Functions of the C library that the recorder calls if there is one. It needs none of them.

use crate::sys::front;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

/// A function that the front finds on first use. If it is not found, a later load may still bring
/// it.
pub struct Function {
    address: AtomicUsize,
    name: &'static [u8],
}

impl Function {
    /// Creates a function; `name` ends with a zero byte.
    pub const fn new(name: &'static [u8]) -> Function {
        Function { address: AtomicUsize::new(0), name }
    }

    /// Returns its address, or 0 if no library defines it.
    #[inline(always)]
    pub fn get(&self) -> usize {
        let address = self.address.load(Relaxed);
        if address != 0 { address } else { self.find() }
    }

    #[cold]
    #[inline(never)]
    fn find(&self) -> usize {
        let address = front::platform().map_or(0, |platform| (platform.find_function)(self.name));
        self.address.store(address, Relaxed);
        address
    }
}
