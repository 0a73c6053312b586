//! State that a forked child finds empty, whoever forked it and however.

use crate::sys::kernel::{self, Errno};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

/// A static in pages of its own, which the kernel fills with zeros in a forked child
/// (MADV_WIPEONFORK) once [`Wiped::wipe_in_children`] was called.
#[repr(C, align(4096))]
pub struct Wiped<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: it hands out shared references only; the value is shared between threads as any other.
unsafe impl<T: Sync> Sync for Wiped<T> {}

impl<T> Wiped<T> {
    /// A value of zeros.
    ///
    /// # Safety
    /// Zeros are a valid value of `T`, and the state of a process in which nothing happened yet.
    pub const unsafe fn new() -> Wiped<T> {
        Wiped(UnsafeCell::new(MaybeUninit::zeroed()))
    }

    /// Returns the value.
    #[inline(always)]
    pub const fn get(&'static self) -> &'static T {
        // SAFETY: initialised, as zeros are a value (`new`); nobody has a unique reference.
        unsafe { (*self.0.get()).assume_init_ref() }
    }

    /// Has forked children find zeros.
    ///
    /// Errors: the kernel's; one before 4.14 knows no such memory.
    pub fn wipe_in_children(&'static self) -> Result<(), Errno> {
        let start = self.0.get() as *mut u8;
        // SAFETY: whole pages (by alignment) of anonymous memory, in .bss; they hold the value
        // alone.
        unsafe { kernel::advise(start, size_of::<Self>(), kernel::MADV_WIPEONFORK) }
    }
}
