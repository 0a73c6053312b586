//! State that a forked child finds zeroed, regardless of how it was forked.

use crate::sys::kernel::{self, Errno};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

/// Maximum number of statics that are noted. There are 24.
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

/// Makes forked children find zeros in all statics that were noted, with one call for those that
/// are side by side.
///
/// Errors: those of the kernel; kernels before 4.14 do not support such memory.
pub fn apply() -> Result<(), Errno> {
    let is_first = |&(start, _): &(usize, usize)| noted().all(|(at, bytes)| at + bytes != start);
    noted().filter(is_first).try_for_each(|(start, bytes)| {
        let mut end = start + bytes;
        while let Some((_, bytes)) = noted().find(|&(at, _)| at == end) {
            end += bytes;
        }
        // SAFETY: whole pages (by alignment) of anonymous memory, in .bss, which only contain
        // statics that may be zeroed.
        unsafe { kernel::advise(start as *mut u8, end - start, kernel::MADV_WIPEONFORK) }
    })
}

fn note(start: usize, length: usize) {
    let place = NOTED.iter().find(|[at, _]| [0, start].contains(&at.load(Relaxed)));
    if let Some([at, bytes]) = place {
        bytes.store(length, Relaxed);
        at.store(start, Relaxed);
    }
}

/// A static in pages of its own, which the kernel fills with zeros in a forked child
/// (MADV_WIPEONFORK) once [`Wiped::wipe_in_children`] and then [`apply`] were called.
///
/// The section `.bss.wiped` has these statics side by side: the kernel then keeps one mapping for
/// all of them. Apart, they would be 40 mappings, each of which an account has to read.
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

    /// Notes the value for [`apply`].
    pub fn wipe_in_children(&'static self) {
        note(core::ptr::from_ref(self).addr(), size_of::<Self>());
    }
}
