//! Whether callers inline functions of an intercepted allocator, as its slow paths reveal. Forked
//! children inherit it, like the code.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::IMAGE_FAMILY_INLINED;
use heaptide_recorder::store::shared::store;

/// Whether a slow path was entered without its function.
static IS_INLINED: AtomicBool = AtomicBool::new(false);

/// Returns the flags of the image about functions that were inlined.
pub fn image_flags() -> u32 {
    if IS_INLINED.load(Relaxed) { IMAGE_FAMILY_INLINED } else { 0 }
}

/// Notes that a function was inlined, in the profile of this process and of forked children.
pub fn note() {
    IS_INLINED.store(true, Relaxed);
    let flags = &store().header().image_flags;
    if flags.load(Relaxed) & IMAGE_FAMILY_INLINED == 0 {
        flags.fetch_or(IMAGE_FAMILY_INLINED, Relaxed);
    }
}
