//! Selections map the tables of a process to tables: filters, hidden names, rules that rewrite
//! names and stacks, scopes as frames, spans of time.

pub mod brackets;
pub(crate) mod builtin_sets;
pub(crate) mod during;
pub(crate) mod emergency_pool;
pub mod filter;
pub(crate) mod fold_scopes;
pub(crate) mod fold_values;
pub mod hide;
pub mod kind;
pub(crate) mod mapped_history;
pub mod pattern;
pub mod python;
pub(crate) mod rebuild_stacks;
pub(crate) mod rewrite;
pub mod rules;
pub mod scope_frames;
