//! Views aggregate the tables of a process: groups of sites, call trees, leaks, sizes, lifetimes,
//! the peak, the timeline, the difference between two processes, and differences between ranks of a
//! job.

pub mod aggregate;
pub mod coverage;
pub mod diff;
pub mod highest;
pub mod keeper_changes;
pub mod leaks;
pub mod lifetimes;
pub mod lines;
pub mod memory;
pub mod open_scopes;
pub mod owners_over_time;
pub mod peak;
pub mod ranks;
pub mod retained;
pub mod scopes;
pub mod sizes;
pub mod suppressions;
pub mod timeline;
pub mod tree;
pub mod unnamed;
pub mod unstored;
