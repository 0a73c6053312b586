//! Output formats: tables are written as text, JSON or pictures. Each audience has a folder;
//! `shared` holds their common parts.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // `println!` panics if writing fails

pub mod chart;
pub mod export;
pub mod heat_map;
pub mod json;
pub mod page;
pub mod shared;
pub mod text;
