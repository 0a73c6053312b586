//! Output formats: tables in, text, JSON or pictures out. A folder for each audience, and what they
//! share in `shared`.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // a failed write would end the command

pub mod chart;
pub mod export;
pub mod heat_map;
pub mod json;
pub mod page;
pub mod shared;
pub mod text;
