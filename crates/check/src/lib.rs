//! Limits on the memory of a program: whether a recording keeps them, in itself or compared with a
//! baseline, and which owners are responsible where it does not.
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
