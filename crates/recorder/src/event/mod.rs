//! Recording of events: threads, stacks, counters, peak, trace, timeline.

pub mod accounts;
pub mod dispatch;
pub mod exit;
pub mod fast_path;
pub mod gate;
pub mod inside;
pub mod lane;
pub mod marks;
pub mod monitors;
pub mod peak;
pub mod process;
pub mod record;
pub mod regions;
pub mod relabel;
pub mod requests;
pub mod shadow_cache;
pub mod slow_path;
pub mod stacks;
pub mod start;
pub mod stats;
pub mod thread_measure;
pub mod threads;
pub mod timeline;
pub mod trace;
pub mod trace_extents;
pub mod windows;
