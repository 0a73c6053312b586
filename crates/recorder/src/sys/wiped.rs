//! State that a forked child finds zeroed, regardless of how it was forked.

use crate::sys::kernel::{self, Errno};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

/// Maximum number of statics that are noted. There are 21.
const NOTED_MAX: usize = 40;
/// Address and size of each static that is zeroed in children; 0 for none.
static NOTED: [[AtomicUsize; 2]; NOTED_MAX] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; NOTED_MAX];

/// Returns address and size of each static that is zeroed in forked children. One thread at a time
/// calls [`Wiped::wipe_in_children`], when the recorder starts.
pub fn noted() -> impl Iterator<Item = (usize, usize)> {
    let both = NOTED.iter().map(|[at, bytes]| (at.load(Relaxed), bytes.load(Relaxed)));
    both.take_while(|(at, _)| *at != 0)
}

fn note(start: usize, length: usize) {
    let place = NOTED.iter().find(|[at, _]| [0, start].contains(&at.load(Relaxed)));
    if let Some([at, bytes]) = place {
        bytes.store(length, Relaxed);
        at.store(start, Relaxed);
    }
}

/// A static in pages of its own, which the kernel fills with zeros in a forked child
/// (MADV_WIPEONFORK) once [`Wiped::wipe_in_children`] was called.
///
/// The value begins `APART` bytes into its first page. State that every event reads is placed away
/// from the starts of pages, where it would share sets of the first-level cache with the starts of
/// others.
#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(align(4096)))]
#[cfg_attr(target_arch = "aarch64", repr(align(65536)))]
pub struct Wiped<T, const APART: usize = 0> {
    apart: [u8; APART],
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: it only returns shared references; the value is shared between threads like any other.
unsafe impl<T: Sync, const APART: usize> Sync for Wiped<T, APART> {}

impl<T, const APART: usize> Wiped<T, APART> {
    /// Creates a value of zeros.
    ///
    /// # Safety
    /// All zeros is a valid value of `T`, and the state of a process in which nothing has happened
    /// yet.
    pub const unsafe fn new() -> Wiped<T, APART> {
        Wiped { apart: [0; APART], value: UnsafeCell::new(MaybeUninit::zeroed()) }
    }

    /// Returns the value.
    #[inline(always)]
    pub const fn get(&'static self) -> &'static T {
        // SAFETY: initialised, since all zeros is a valid value (`new`); nothing has a unique
        // reference.
        unsafe { &*self.value.get().cast() }
    }

    /// Makes forked children find zeros.
    ///
    /// Errors: those of the kernel; kernels before 4.14 do not support such memory.
    pub fn wipe_in_children(&'static self) -> Result<(), Errno> {
        let start: *mut u8 = core::ptr::from_ref(self).cast_mut().cast();
        note(start as usize, size_of::<Self>());
        // SAFETY: whole pages (by alignment) of anonymous memory, in .bss, which only contain the
        // value.
        unsafe { kernel::advise(start, size_of::<Self>(), kernel::MADV_WIPEONFORK) }
    }
}
