//! A recording: its process images, and the files that could not be read.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::identity::{Identity, Lifetime};
use super::process::Process;
use super::subject::{ImageRole, Subject};

/// The result of `heaptide run`: one profile per process image, in order of start.
#[derive(Debug, Default)]
pub struct Recording {
    /// Its path.
    pub path: PathBuf,
    /// Whether it contains symbols.
    pub sealed: bool,
    /// Time of sealing, nanoseconds since 1970-01-01 UTC; 0 if unknown.
    pub sealed_realtime_ns: u64,
    /// Images that ran after sealing, as `PID-IMAGE`: functions that they reached later have no
    /// stored names.
    pub ran_after_sealing: Vec<String>,
    /// Why the program that was started is not among the processes; empty if it is, or if the
    /// reason is unknown.
    pub unrecorded: String,
    /// What the kernel killed while the recording was made, because memory ran out; of several
    /// commands, the highest number. `None` if that is nothing or unknown.
    pub out_of_memory: Option<OutOfMemory>,
    /// Totals of the data removed to keep the recording within its limits.
    pub removed: Removed,
    /// The process images. An image whose profile could not be read is in `damaged`.
    pub processes: Vec<Process>,
    /// Files that could not be read.
    pub damaged: Vec<DamagedFile>,
    /// Which images views show if none is selected; `None` until it is chosen, and if all images
    /// were joined.
    pub subject: Option<Subject>,
}

/// Processes that the kernel killed because memory ran out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct OutOfMemory {
    /// Their number, with processes that were not recorded.
    pub processes: u64,
    /// Whether all were in the control group of the command; if not, on its machine.
    pub in_group: bool,
}

impl Recording {
    /// Returns the subject, if it was chosen and filters left something of it: the process with the
    /// highest peak of those that belong to it.
    pub fn subject_process(&self) -> Option<&Process> {
        let is_subject = |process: &&Process| process.identity.role == ImageRole::Subject;
        let of_subject = self.processes.iter().filter(is_subject);
        of_subject.rev().max_by_key(|process| process.totals.peak_bytes)
    }

    /// Returns the program that `heaptide run` started: the last image of its process. If several
    /// commands recorded programs, returns the one with the highest peak. `None` if no such image
    /// was read.
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

    /// Returns the nanoseconds from the start of the first image to the last known time of any
    /// image.
    pub fn span_ns(&self) -> u64 {
        let lifetimes = || self.processes.iter().map(|process| &process.lifetime);
        let start = lifetimes().map(|lifetime| lifetime.start_realtime_ns).min().unwrap_or(0);
        let end =
            |lifetime: &Lifetime| lifetime.start_realtime_ns.saturating_add(lifetime.duration_ns);
        lifetimes().map(end).max().unwrap_or(0).saturating_sub(start)
    }
}

/// Totals of the data removed from a recording to keep it within its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Removed {
    /// Snapshots removed from a ring.
    #[serde(default)]
    pub snapshots: u64,
    /// Their size on disk in bytes.
    #[serde(default)]
    pub snapshot_bytes: u64,
    /// Images of ended processes.
    #[serde(default)]
    pub images: u64,
    /// Size of their files on disk in bytes.
    #[serde(default)]
    pub image_bytes: u64,
    /// Their allocations.
    #[serde(default)]
    pub allocations: u64,
    /// Their frees.
    #[serde(default)]
    pub frees: u64,
    /// Bytes requested by them.
    #[serde(default)]
    pub requested_bytes: u64,
    /// Usable bytes that were live when they ended.
    #[serde(default)]
    pub live_bytes: u64,
    /// The highest of their peaks.
    #[serde(default)]
    pub peak_bytes: u64,
}

impl Removed {
    /// Returns whether nothing was removed.
    pub fn is_empty(&self) -> bool {
        *self == Removed::default()
    }

    /// Adds the totals of another recording.
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
