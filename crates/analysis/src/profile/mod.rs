//! Reading one profile file: untrusted bytes to plain tables of its records.

pub mod annotations;
pub(crate) mod baseline;
pub(crate) mod extents;
pub(crate) mod pack;
pub mod reader;
