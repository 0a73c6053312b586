//! The control words of the header, which every event reads.

use crate::store::shared::store;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::AcqRel;
use heaptide_format::shared::FileHeader;

/// Returns the two words that every event reads as one: the recorder's flags and the bytes that
/// commands write.
#[inline(always)]
pub fn words(header: &FileHeader) -> &AtomicU64 {
    // SAFETY: `control` is 8-aligned and the bytes follow it; all are atomic.
    unsafe {
        &*core::ptr::from_ref(header).wrapping_byte_add(offset_of!(FileHeader, control)).cast()
    }
}

const _: () = assert!(offset_of!(FileHeader, control).is_multiple_of(8));
const _: () = assert!(offset_of!(FileHeader, command_off) == offset_of!(FileHeader, control) + 4);
const _: () =
    assert!(offset_of!(FileHeader, command_request) == offset_of!(FileHeader, command_off) + 1);

/// Sets bits in the recorder's word.
pub fn set(bits: u32) {
    store().header().control.fetch_or(bits, AcqRel);
}

/// Clears bits in the recorder's word.
pub fn clear(bits: u32) {
    store().header().control.fetch_and(!bits, AcqRel);
}
