//! JSON for scripts, with a stable schema: see docs/recording.md.

pub mod advise;
mod annotations;
pub mod diff;
mod document;
mod entries;
pub mod histogram;
pub mod keeper_changes;
pub mod leaks;
pub mod lines;
pub mod memory;
pub mod peak;
pub mod ranks;
pub mod report;
pub mod retained;
mod sites;
pub mod timeline;
