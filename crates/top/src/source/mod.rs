//! Sources of numbers: a running process, or the replay of a recording.

pub(crate) mod images;
pub(crate) mod live;
pub(crate) mod replay;
pub(crate) mod replaying;
pub(crate) mod update;
