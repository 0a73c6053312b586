//! A recording: its process images, and the files that could not be read.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::identity::{Identity, Lifetime};
use super::process::Process;

/// What `heaptide run` left: one profile per process image, in order of start.
#[derive(Debug, Default)]
pub struct Recording {
    /// Where it was read from.
    pub path: PathBuf,
    /// Whether symbols were stored with it.
    pub sealed: bool,
    /// When they were, nanoseconds since 1970-01-01 UTC; 0 if that is not known.
    pub sealed_realtime_ns: u64,
    /// Images that ran later, `PID-IMAGE`: functions that they reached then have no stored names.
    pub ran_after_sealing: Vec<String>,
    /// Why the program that was started is not among the processes; empty if it is, or if nobody
    /// noted why.
    pub unrecorded: String,
    /// What was removed to keep the recording within its limits.
    pub removed: Removed,
    /// The process images. An image whose profile could not be read is in `damaged`.
    pub processes: Vec<Process>,
    /// Files that could not be read.
    pub damaged: Vec<DamagedFile>,
}

impl Recording {
    /// The program that `heaptide run` started: the last image of its process, and of several
    /// commands' programs that with the highest peak. None if nothing is known of it.
    pub fn requested(&self) -> Option<&Process> {
        let requested = || self.processes.iter().filter(|process| process.identity.is_requested);
        let is_last = |process: &&Process| {
            let Identity { process_number, execs, .. } = process.identity;
            !requested().any(|other| {
                other.identity.process_number == process_number && other.identity.execs > execs
            })
        };
        requested().filter(is_last).max_by_key(|process| process.totals.peak_bytes)
    }

    /// Nanoseconds from the start of the first image to the last known moment of any.
    pub fn span_ns(&self) -> u64 {
        let lifetimes = || self.processes.iter().map(|process| &process.lifetime);
        let start = lifetimes().map(|lifetime| lifetime.start_realtime_ns).min().unwrap_or(0);
        let end =
            |lifetime: &Lifetime| lifetime.start_realtime_ns.saturating_add(lifetime.duration_ns);
        lifetimes().map(end).max().unwrap_or(0).saturating_sub(start)
    }
}

/// What was removed of a recording to keep it within its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Removed {
    /// Snapshots that a ring gave up.
    #[serde(default)]
    pub snapshots: u64,
    /// Bytes that they took on disk.
    #[serde(default)]
    pub snapshot_bytes: u64,
    /// Images of processes that had ended.
    #[serde(default)]
    pub images: u64,
    /// Bytes that their files took on disk.
    #[serde(default)]
    pub image_bytes: u64,
    /// Their allocations.
    #[serde(default)]
    pub allocations: u64,
    /// Their frees.
    #[serde(default)]
    pub frees: u64,
    /// Bytes that they requested.
    #[serde(default)]
    pub requested_bytes: u64,
    /// Usable bytes that were live when they ended.
    #[serde(default)]
    pub live_bytes: u64,
    /// The highest peak of any.
    #[serde(default)]
    pub peak_bytes: u64,
}

impl Removed {
    /// Whether nothing was removed.
    pub fn is_empty(&self) -> bool {
        *self == Removed::default()
    }

    /// Adds what was removed of another recording.
    pub(crate) fn add(&mut self, other: &Removed) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.snapshots, other.snapshots);
        add(&mut self.snapshot_bytes, other.snapshot_bytes);
        add(&mut self.images, other.images);
        add(&mut self.image_bytes, other.image_bytes);
        add(&mut self.allocations, other.allocations);
        add(&mut self.frees, other.frees);
        add(&mut self.requested_bytes, other.requested_bytes);
        add(&mut self.live_bytes, other.live_bytes);
        self.peak_bytes = self.peak_bytes.max(other.peak_bytes);
    }
}

/// A file of a recording that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedFile {
    /// Its path.
    pub path: PathBuf,
    /// A line that contains the path and the reason.
    pub reason: String,
}
