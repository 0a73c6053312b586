//! Formats of other tools, CSV and flame graphs: one format per file.

pub mod callgrind;
pub mod chrome;
pub mod csv;
pub mod diff_flamegraph;
pub mod dot;
pub mod firefox;
mod firefox_tracks;
mod flame_style;
pub mod flamegraph;
pub mod folded;
mod folded_lines;
pub mod heaptrack;
mod locations;
pub mod malloc_profiler;
pub mod malloc_tag;
pub mod massif;
pub mod memray;
pub mod otlp;
pub mod otlp_profiles;
pub mod pprof;
pub mod protobuf;
pub mod sarif;
pub mod speedscope;
pub mod stacks;
pub mod timeline_csv;
