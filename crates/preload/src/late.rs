//! Whether this library was loaded into a program that ran already.

use crate::{attachment, next_symbol};
use core::sync::atomic::Ordering::Release;
use heaptide_format::attachment::LINK_IDLE;

/// Notes whether the program runs already, before anything else of this library does.
pub fn note_loading() {
    if next_symbol::is_late() {
        attachment::link().store(LINK_IDLE, Release);
    }
}
