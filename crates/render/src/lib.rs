//! Output formats, one a file: tables in, text, JSON or SVG out.

#![forbid(unsafe_code)]

pub mod flamegraph;
pub mod frames;
pub mod hotspots;
pub mod info;
pub mod json;
mod json_named;
pub mod names;
pub mod quantity;
mod sections;
pub mod summary;
pub mod table;
pub mod text;
pub mod tree;

pub use summary::summary;
