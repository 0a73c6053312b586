//! Intercepts the function with which the C library itself starts programs, for `system` and
//! `popen`: it calls its own `posix_spawn`, which no import refers to. A program that was started
//! with the recorder has the settings in its environment; one that a command attached to has not.

use super::island::Island;
use super::patch::{Function, Patch, write_all};
use crate::exec_hooks::REAL_POSIX_SPAWN;
use crate::next_symbol::{self, find_behind};
use heaptide_recorder::sys::loader::look_up;
use heaptide_recorder::sys::options::Options;

const SYMBOL: &[u8] = b"posix_spawn\0";

/// Redirects the function to its hook, if its code can be changed.
pub fn intercept() {
    if Options::known().is_some_and(|options| !options.intercept) {
        return;
    }
    let own = next_symbol::own_object().and_then(|own| look_up(own, SYMBOL));
    let (Some((hook, _)), Some(found)) = (own, find_behind(SYMBOL)) else { return };
    let function = Function { address: found.body as u64, size: found.size };
    let Some(mut island) = Island::near(function.address) else { return };
    match Patch::plan(function, hook as u64, &mut island) {
        Ok(patch) if island.seal() && write_all([&patch].into_iter()) => {
            REAL_POSIX_SPAWN.move_to(patch.moved as usize);
        }
        // SAFETY: no jump to it was written.
        _ => unsafe { island.release() },
    }
}
