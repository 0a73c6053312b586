//! Options that several commands share, and those of `heaptide run`.

mod format;
mod help;
mod mode;
mod names;
mod picture;
mod run;
mod snapshots;
mod stacks;

pub use format::{Format, metric_parser, require_of_rows};
pub use help::{flags_of_root, with_flags};
pub use mode::{Mode, ModeParser};
pub use names::{DEBUG_FILES, NameOptions};
pub use picture::{FLAME_GRAPHS, Frames, Picture};
pub use run::{INTERCEPTION, PythonMemory, RunOptions, STACKS};
pub use snapshots::{SNAPSHOTS, SnapshotOptions};
pub use stacks::StackOptions;

/// The width of help texts.
pub const HELP_COLUMNS: usize = 100;
