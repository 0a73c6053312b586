//! The numbers of a row, and the counters from which they are computed.

use std::sync::Arc;

use heaptide_analysis::recording::live::Counts;

use super::view::Column;

/// The counters of a process's sites at one time.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// Nanoseconds from the start of the process.
    pub time_ns: u64,
    /// By slot: see [`heaptide_analysis::recording::live`].
    pub counts: Arc<Vec<Counts>>,
    /// Highest live bytes so far.
    pub peak_bytes: u64,
    /// Resident bytes of the process; 0 if unknown.
    pub resident_bytes: u64,
    /// Allocated bytes of devices; 0 for stored times.
    pub device_bytes: u64,
}

/// The counters to compare: now, earlier for rates, and those that growth counts from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments<'a> {
    pub(crate) now: &'a Moment,
    pub(crate) before: Option<&'a Moment>,
    pub(crate) mark: Option<&'a Moment>,
    /// Whether the user set the mark.
    pub(crate) is_marked: bool,
}

impl Moments<'_> {
    /// Returns the seconds between before and now; `None` if they are equal or unknown.
    fn seconds(&self) -> Option<f64> {
        let before = self.before?;
        let ns = self.now.time_ns.checked_sub(before.time_ns).filter(|&ns| ns > 0)?;
        Some(ns as f64 / 1e9)
    }

    /// Returns the contribution of a site to a row.
    #[inline]
    pub(crate) fn of_slot(&self, slot: usize, add: fn(&mut Counts, &Counts)) -> Numbers {
        let counted = |moment: &Moment| {
            let mut sum = Counts::default();
            if let Some(counts) = moment.counts.get(slot) {
                add(&mut sum, counts);
            }
            sum
        };
        let now = counted(self.now);
        let before = self.before.map_or(now, counted);
        let live_then = self.mark.map_or(now.live_bytes, |mark| counted(mark).live_bytes);
        Numbers {
            live_bytes: now.live_bytes,
            live_blocks: now.live_blocks,
            at_peak_bytes: now.at_peak_bytes,
            growth_bytes: now.live_bytes.wrapping_sub(live_then) as i64,
            allocations: now.allocations.saturating_sub(before.allocations),
            allocated_bytes: now.allocated_bytes.saturating_sub(before.allocated_bytes),
        }
    }

    /// Converts a difference between before and now to a rate per second.
    pub(crate) fn per_second(&self, count: u64) -> u64 {
        self.seconds().map_or(0, |seconds| (count as f64 / seconds).round() as u64)
    }
}

/// The numbers of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    /// Live usable bytes.
    pub live_bytes: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// Live usable bytes at peak usage.
    pub at_peak_bytes: u64,
    /// Growth of live bytes since the mark.
    pub growth_bytes: i64,
    /// Allocations between before and now.
    pub allocations: u64,
    /// Their usable bytes.
    pub allocated_bytes: u64,
}

impl Numbers {
    /// Adds the numbers of another row.
    #[inline]
    pub(crate) fn add(&mut self, other: &Numbers) {
        let sum = u64::saturating_add;
        self.live_bytes = sum(self.live_bytes, other.live_bytes);
        self.live_blocks = sum(self.live_blocks, other.live_blocks);
        self.at_peak_bytes = sum(self.at_peak_bytes, other.at_peak_bytes);
        self.growth_bytes = self.growth_bytes.saturating_add(other.growth_bytes);
        self.allocations = sum(self.allocations, other.allocations);
        self.allocated_bytes = sum(self.allocated_bytes, other.allocated_bytes);
    }

    /// Returns the sort key for a column; the largest comes first.
    pub(crate) fn of(&self, column: Column) -> i128 {
        match column {
            Column::Live => self.live_bytes.into(),
            Column::Blocks => self.live_blocks.into(),
            Column::Growth => self.growth_bytes.into(),
            Column::Allocations => self.allocations.into(),
            Column::Bytes => self.allocated_bytes.into(),
            Column::AtPeak => self.at_peak_bytes.into(),
        }
    }

    /// Returns whether all numbers are 0.
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Numbers::default()
    }
}
