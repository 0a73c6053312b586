//! The numbers of a row, and the moments that they are computed from.

use std::sync::Arc;

use heaptide_analysis::recording::live::Counts;

use super::view::Column;

/// What the sites of a process had counted at a time.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// Nanoseconds from the start of the process.
    pub time_ns: u64,
    /// By slot: see [`heaptide_analysis::recording::live`].
    pub counts: Arc<Vec<Counts>>,
    /// Highest live bytes so far.
    pub peak_bytes: u64,
    /// Resident bytes of the process; 0 if they are not known.
    pub resident_bytes: u64,
}

/// Times to compare: now, some time before for rates, and the mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments<'a> {
    pub(crate) now: &'a Moment,
    pub(crate) before: Option<&'a Moment>,
    pub(crate) mark: Option<&'a Moment>,
}

impl Moments<'_> {
    /// Seconds between before and now; none if they are not known to differ.
    fn seconds(&self) -> Option<f64> {
        let before = self.before?;
        let ns = self.now.time_ns.checked_sub(before.time_ns).filter(|&ns| ns > 0)?;
        Some(ns as f64 / 1e9)
    }

    /// What a site adds to a row.
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

    /// A number in a second, of one between before and now.
    pub(crate) fn per_second(&self, count: u64) -> u64 {
        self.seconds().map_or(0, |seconds| (count as f64 / seconds).round() as u64)
    }
}

/// The numbers of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    /// Usable bytes live.
    pub live_bytes: u64,
    /// Blocks live.
    pub live_blocks: u64,
    /// Usable bytes live at peak usage.
    pub at_peak_bytes: u64,
    /// How much live bytes grew since the mark.
    pub growth_bytes: i64,
    /// Allocations between before and now.
    pub allocations: u64,
    /// Their usable bytes.
    pub allocated_bytes: u64,
}

impl Numbers {
    /// Adds others.
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

    /// What orders rows by a column, the largest first.
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

    /// Whether all are 0.
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Numbers::default()
    }
}
