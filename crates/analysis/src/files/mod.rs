//! The files of a recording: their names, opening them, and replacing them in one step.

pub mod draft;
pub(crate) mod file_names;
pub mod input;
