//! What happens once the library is loaded.

use crate::hooks::NAMES;
use crate::intercept::deep;
use crate::{Preload, attachment, next_symbol};
use heaptide_recorder::event::{exit, start};

/// Runs once the library is loaded, so that a program that never allocates has a profile, too.
extern "C" fn loaded() {
    next_symbol::note_loading();
    deep::set_names(&NAMES);
    attachment::describe_blocks();
    start::start_early::<Preload>();
    exit::register();
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;
