//! Options that several commands have, and those of `heaptide run`.

mod format;
mod picture;
mod run;

pub use format::{Format, metric_parser};
pub use picture::{Frames, Picture};
pub use run::{Mode, RunOptions};

/// The width of help texts.
pub const HELP_COLUMNS: usize = 100;
