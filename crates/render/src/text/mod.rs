//! Text for terminals.

pub mod advise;
mod annotations;
mod caption;
mod chart;
mod columns;
pub mod diff;
mod estimates;
pub mod histogram;
pub mod info;
pub mod keeper_changes;
pub mod leaks;
pub mod lines;
pub mod memory;
pub mod missing;
pub mod origins;
pub mod peak;
pub mod ranks;
pub mod report;
pub mod retained;
pub mod scope_tree;
pub mod screen;
mod sections;
mod stack_lines;
pub mod summary;
pub mod table;
pub mod timeline;
pub mod tree;
