//! Samples of live bytes over time, as steps: each holds from its time until that of the next one.
//!
//! Their number grows with the logarithm of the run's duration. While two samples are closer than
//! the gap, the later one is overwritten, so that the last one is always the current state, even if
//! the program then sleeps for hours. The gap doubles after each [`PER_DOUBLING`] samples: in a run
//! of one second it is at most a millisecond, in one of an hour about three seconds.

use crate::store::profile::Cursor;
use heaptide_format::{Kind, Sample};

/// Number of samples after which the gap doubles.
pub const PER_DOUBLING: u64 = 1024;
/// The first gap. A sample takes some microseconds, most of them for reading resident memory.
const FIRST_GAP_NS: u64 = 100_000;
/// Number of doublings after which the gap stays the same: years.
const DOUBLINGS_MAX: u64 = 32;
/// Live bytes are sampled if they have changed by one part in this of their peak since the last
/// sample, which is less than one percent.
const CHANGE_PART: u64 = 128;
/// Changes below this are not sampled on their own.
pub const CHANGE_MIN: u64 = 4096;

/// The samples of one kind. All zeros: none. Used by one thread at a time.
pub struct Samples {
    cursor: Cursor,
    /// The last sample; null if there is none.
    last: *mut Sample,
    last_ns: u64,
    /// The time of the sample before.
    before_ns: u64,
    /// The live bytes of the last sample.
    live: u64,
    count: u64,
}

impl Samples {
    /// Returns whether live bytes differ from those of the last sample by more than readers expect.
    pub fn is_outdated(&self, live: u64, peak: u64) -> bool {
        live.abs_diff(self.live) >= change_of(peak)
    }

    /// Overwrites the last sample if it is too close to the one before. Returns whether it did;
    /// otherwise a new one has to be appended.
    pub fn overwrite(&mut self, now: u64, live: u64, peak: u64) -> bool {
        let doublings = (self.count / PER_DOUBLING).min(DOUBLINGS_MAX);
        let is_close = now.saturating_sub(self.before_ns) < FIRST_GAP_NS << doublings;
        if !is_close || self.last.is_null() {
            return false;
        }
        // SAFETY: a record of the profile, which stays mapped; only its writer refers to it.
        unsafe {
            (&raw mut (*self.last).peak_bytes).write_volatile(peak);
            (&raw mut (*self.last).live_bytes).write_volatile(live);
            (&raw mut (*self.last).time_ns).write_volatile(now);
        }
        (self.last_ns, self.live) = (now, live);
        true
    }

    /// Appends a sample. Returns the number of samples; none if there is no room.
    pub fn append(&mut self, kind: Kind, owner: u32, sample: Sample) -> Option<u64> {
        let written = self.cursor.write(kind, owner, sample)?;
        self.last = core::ptr::from_ref(written).cast_mut();
        (self.before_ns, self.last_ns) = (self.last_ns, sample.time_ns);
        self.live = sample.live_bytes;
        self.count += 1;
        Some(self.count)
    }
}

/// Returns the change of live bytes that is sampled.
pub fn change_of(peak: u64) -> u64 {
    (peak / CHANGE_PART).max(CHANGE_MIN)
}
