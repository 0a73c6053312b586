//! Reads one profile file: converts untrusted bytes to plain tables of its records.

pub mod accounts;
pub mod annotations;
pub(crate) mod baseline;
pub(crate) mod extents;
pub(crate) mod header;
pub(crate) mod held;
pub(crate) mod lost;
mod nodes;
pub(crate) mod pack;
mod parents_first;
pub mod parsed;
pub mod python;
pub mod reader;
pub mod retained;
mod strings;
mod texts;
