//! Recordings to tables: read profiles as untrusted input, give addresses names, aggregate.

#![forbid(unsafe_code)]

pub mod model;
