//! The files of a recording: their names, listing and opening them, and replacing them in one step.

pub(crate) mod directory;
pub mod draft;
pub mod file_names;
pub mod input;
pub(crate) mod json;
pub mod packages;
