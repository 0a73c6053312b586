//! Where numbers come from: a process that runs, or a recording that is replayed.

pub(crate) mod images;
pub(crate) mod live;
pub(crate) mod replay;
pub(crate) mod replaying;
pub(crate) mod update;
