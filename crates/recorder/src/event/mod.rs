//! Recording of events: threads, stacks, counters, peak, trace, timeline.

pub mod exit;
pub mod fast_path;
pub mod lane;
pub mod peak;
pub mod process;
pub mod record;
pub mod slow_path;
pub mod stacks;
pub mod stats;
pub mod timeline;
pub mod trace;
