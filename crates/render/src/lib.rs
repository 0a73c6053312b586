//! Output formats, one a file: tables in, text, JSON or SVG out.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // a failed write would end the command

mod branches;
pub mod callgrind;
mod chart;
pub mod chrome;
pub mod csv;
pub mod diff;
pub mod dot;
pub mod firefox;
mod firefox_tracks;
pub mod flamegraph;
pub mod folded;
pub mod frames;
pub mod histogram;
pub mod hotspots;
pub mod html;
pub mod info;
pub mod json;
mod json_named;
pub mod json_text;
mod json_view;
pub mod leaks;
mod live;
pub mod massif;
mod missing;
mod named;
pub mod names;
pub mod origins;
pub mod peak;
pub mod pprof;
mod protobuf;
pub mod quantity;
pub mod scopes;
mod sections;
pub mod speedscope;
pub mod summary;
pub mod table;
pub mod text;
pub mod timeline;
pub mod tree;

pub use summary::summary;
