//! Recordings: opens, seals and merges them, reads their snapshots and metadata, finds running
//! processes, and joins the tables of processes.

mod at_once;
pub mod between;
mod counts;
pub(crate) mod directory;
pub(crate) mod ending;
mod estimated_counts;
pub mod fresh_account;
pub(crate) mod identity;
pub mod images;
mod jit_names;
pub mod join;
pub mod join_timeline;
pub mod live;
pub mod live_sums;
pub mod live_tables;
pub mod members;
pub mod merge;
pub mod metadata;
mod open;
pub mod origin;
mod parts;
mod removed;
pub mod retained;
pub mod ring;
mod roles;
pub mod room;
pub mod running;
mod seal;
pub mod snapshot;
pub mod subject;

pub use crate::profile::lost::NOT_SEARCHED;
pub use directory::{newest, profiles_in, recordings_below, recordings_in};
pub use parts::{Choice, Live};
pub use roles::only_starts_others;
pub use seal::{Sealed, SealedModule, seal, seal_with};
