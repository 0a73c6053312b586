//! Checks limits on the memory of a program: whether a recording exceeds them, absolutely or
//! compared with a baseline, and which owners are responsible.
//!
//! All values are counts and bytes, which do not vary with the load of a machine; times are not
//! checked.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]

pub mod baseline;
pub mod formats;
pub mod limit;
pub mod links;
pub mod part;
pub mod result;
pub mod values;
