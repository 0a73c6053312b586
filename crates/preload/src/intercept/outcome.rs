//! What interception has come to, for the profile. Children inherit it, as they do the code.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::{
    IMAGE_FAMILY, IMAGE_FAMILY_LEFT, IMAGE_FAMILY_REASON_SHIFT, IMAGE_INTERCEPTED,
    IMAGE_OWN_MALLOC, IMAGE_REASON_SHIFT, NotIntercepted,
};
use heaptide_recorder::event::process::process;

static FLAGS: AtomicU32 = AtomicU32::new(0);

/// The `IMAGE_` flags of a profile.
pub fn image_flags() -> u32 {
    FLAGS.load(Relaxed)
}

/// Notes what was done about an allocator before ours.
pub fn note_malloc(outcome: Result<(), NotIntercepted>) {
    let flags = match outcome {
        Ok(()) => IMAGE_INTERCEPTED,
        Err(reason) => IMAGE_OWN_MALLOC | (reason as u32) << IMAGE_REASON_SHIFT,
    };
    FLAGS.fetch_or(flags, Relaxed);
}

/// Notes what was done about an allocator under names of its own. The process has a profile.
pub fn note_family(outcome: Result<(), NotIntercepted>) {
    match outcome {
        Ok(()) => FLAGS.fetch_or(IMAGE_FAMILY, Relaxed),
        Err(reason) => {
            FLAGS.fetch_and(!(15 << IMAGE_FAMILY_REASON_SHIFT), Relaxed);
            let reason = (reason as u32) << IMAGE_FAMILY_REASON_SHIFT;
            FLAGS.fetch_or(IMAGE_FAMILY_LEFT | reason, Relaxed)
        }
    };
    process().header().image_flags.store(image_flags(), Relaxed);
}
