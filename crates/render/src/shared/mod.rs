//! Common parts of views for several audiences. No module here writes a whole view.

pub mod accounts;
pub(crate) mod advice;
pub(crate) mod annotations;
pub mod branches;
pub mod change;
pub mod command_line;
pub mod difference;
pub mod distinct_names;
pub mod frames;
pub mod heading;
pub(crate) mod hex;
pub mod hotspots;
pub mod json_text;
pub(crate) mod live_over_time;
pub mod losses;
pub(crate) mod mapped;
pub mod names;
pub(crate) mod peak_rows;
pub mod printed_stack;
pub mod quantity;
pub mod ranks;
pub mod scope_path;
pub(crate) mod sequence;
pub mod subject;
pub(crate) mod threads;
pub mod views;
