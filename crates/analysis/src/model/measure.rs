//! The metrics of a site: their names, their values in a row, and how rows add up.

use std::fmt;
use std::str::FromStr;

/// The measures, by the names used everywhere. Bytes are usable bytes unless named otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Measures {
    /// Successful allocations, those by realloc included.
    pub allocations: u64,
    /// Blocks freed, by whichever thread.
    pub frees: u64,
    /// Successful reallocations.
    pub reallocations: u64,
    /// Failed allocations.
    pub failed: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Bytes given.
    pub usable_bytes: u64,
    /// Bytes freed.
    pub freed_bytes: u64,
    /// Blocks allocated and not freed.
    pub live_blocks: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Highest live of the process; only in totals, 0 elsewhere.
    pub peak_bytes: u64,
    /// Blocks of this row that were live at that moment.
    pub at_peak_blocks: u64,
    /// Their bytes.
    pub at_peak_bytes: u64,
    /// Blocks freed by their thread with no allocation between.
    pub temporary: u64,
    /// Blocks freed by another lane than allocated them.
    pub cross_thread_frees: u64,
    /// The largest request.
    pub largest_bytes: u64,
    /// Frees performed here, regardless of the site that allocated the block.
    pub frees_here: u64,
    /// Their bytes.
    pub freed_here_bytes: u64,
}

/// One column of [`Measures`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum Measure {
    /// Successful allocations.
    Allocations,
    /// Blocks freed.
    Frees,
    /// Successful reallocations.
    Reallocations,
    /// Failed allocations.
    Failed,
    /// Bytes asked for.
    RequestedBytes,
    /// Bytes given.
    UsableBytes,
    /// Bytes freed.
    FreedBytes,
    /// Blocks allocated and not freed.
    LiveBlocks,
    /// Their bytes.
    LiveBytes,
    /// The process's highest live.
    PeakBytes,
    /// Blocks live at that moment.
    AtPeakBlocks,
    /// Their bytes.
    AtPeakBytes,
    /// Blocks freed by their thread with no allocation between.
    Temporary,
    /// Blocks freed by another lane.
    CrossThreadFrees,
    /// The largest request.
    LargestBytes,
    /// Frees made here.
    FreesHere,
    /// Their bytes.
    FreedHereBytes,
}

/// How the values of several rows become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combine {
    /// They add up.
    Sum,
    /// The largest counts.
    Max,
}

const ALL: [Measure; 17] = [
    Measure::Allocations,
    Measure::Frees,
    Measure::Reallocations,
    Measure::Failed,
    Measure::RequestedBytes,
    Measure::UsableBytes,
    Measure::FreedBytes,
    Measure::LiveBlocks,
    Measure::LiveBytes,
    Measure::PeakBytes,
    Measure::AtPeakBlocks,
    Measure::AtPeakBytes,
    Measure::Temporary,
    Measure::CrossThreadFrees,
    Measure::LargestBytes,
    Measure::FreesHere,
    Measure::FreedHereBytes,
];

impl Measure {
    /// Every measure, in the order of the columns.
    pub const fn all() -> &'static [Measure] {
        &ALL
    }

    /// Its name, the same in flags, columns and JSON.
    ///
    /// ```
    /// use heaptide_analysis::model::Measure;
    /// assert_eq!(Measure::AtPeakBytes.name(), "at_peak_bytes");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Measure::Allocations => "allocations",
            Measure::Frees => "frees",
            Measure::Reallocations => "reallocations",
            Measure::Failed => "failed",
            Measure::RequestedBytes => "requested_bytes",
            Measure::UsableBytes => "usable_bytes",
            Measure::FreedBytes => "freed_bytes",
            Measure::LiveBlocks => "live_blocks",
            Measure::LiveBytes => "live_bytes",
            Measure::PeakBytes => "peak_bytes",
            Measure::AtPeakBlocks => "at_peak_blocks",
            Measure::AtPeakBytes => "at_peak_bytes",
            Measure::Temporary => "temporary",
            Measure::CrossThreadFrees => "cross_thread_frees",
            Measure::LargestBytes => "largest_bytes",
            Measure::FreesHere => "frees_here",
            Measure::FreedHereBytes => "freed_here_bytes",
        }
    }

    /// Whether it counts bytes; else it counts events or blocks.
    pub const fn is_bytes(self) -> bool {
        matches!(
            self,
            Measure::RequestedBytes
                | Measure::UsableBytes
                | Measure::FreedBytes
                | Measure::LiveBytes
                | Measure::PeakBytes
                | Measure::AtPeakBytes
                | Measure::LargestBytes
                | Measure::FreedHereBytes
        )
    }

    /// How rows combine.
    pub const fn combine(self) -> Combine {
        match self {
            Measure::LargestBytes | Measure::PeakBytes => Combine::Max,
            _ => Combine::Sum,
        }
    }

    /// The measure that stands for this one where rows are sites: only totals have a peak, and what
    /// a site had at that moment is `at_peak_bytes`.
    pub const fn of_sites(self) -> Measure {
        match self {
            Measure::PeakBytes => Measure::AtPeakBytes,
            other => other,
        }
    }

    /// Its value in a row.
    pub const fn of(self, row: &Measures) -> u64 {
        match self {
            Measure::Allocations => row.allocations,
            Measure::Frees => row.frees,
            Measure::Reallocations => row.reallocations,
            Measure::Failed => row.failed,
            Measure::RequestedBytes => row.requested_bytes,
            Measure::UsableBytes => row.usable_bytes,
            Measure::FreedBytes => row.freed_bytes,
            Measure::LiveBlocks => row.live_blocks,
            Measure::LiveBytes => row.live_bytes,
            Measure::PeakBytes => row.peak_bytes,
            Measure::AtPeakBlocks => row.at_peak_blocks,
            Measure::AtPeakBytes => row.at_peak_bytes,
            Measure::Temporary => row.temporary,
            Measure::CrossThreadFrees => row.cross_thread_frees,
            Measure::LargestBytes => row.largest_bytes,
            Measure::FreesHere => row.frees_here,
            Measure::FreedHereBytes => row.freed_here_bytes,
        }
    }
}

impl Combine {
    /// One value of two.
    pub const fn of(self, a: u64, b: u64) -> u64 {
        match self {
            Combine::Sum => a.saturating_add(b),
            Combine::Max if a > b => a,
            Combine::Max => b,
        }
    }
}

/// A name that is no measure's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownMeasure(pub String);

impl fmt::Display for UnknownMeasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown metric `{}`; expected one of", self.0)?;
        Measure::all().iter().try_for_each(|m| write!(f, " {}", m.name()))
    }
}

impl std::error::Error for UnknownMeasure {}

impl FromStr for Measure {
    type Err = UnknownMeasure;

    fn from_str(name: &str) -> Result<Measure, UnknownMeasure> {
        ALL.into_iter().find(|m| m.name() == name).ok_or_else(|| UnknownMeasure(name.to_owned()))
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Measures {
    /// Adds a row to this one; the largest request is the larger of both. Stays at the largest
    /// number.
    ///
    /// ```
    /// use heaptide_analysis::model::Measures;
    /// let mut sum = Measures { allocations: 2, largest_bytes: 9, ..Measures::default() };
    /// sum.add(&Measures { allocations: 3, largest_bytes: 5, ..Measures::default() });
    /// assert_eq!((sum.allocations, sum.largest_bytes), (5, 9));
    /// ```
    pub fn add(&mut self, row: &Measures) {
        let sum = u64::saturating_add;
        *self = Measures {
            allocations: sum(self.allocations, row.allocations),
            frees: sum(self.frees, row.frees),
            reallocations: sum(self.reallocations, row.reallocations),
            failed: sum(self.failed, row.failed),
            requested_bytes: sum(self.requested_bytes, row.requested_bytes),
            usable_bytes: sum(self.usable_bytes, row.usable_bytes),
            freed_bytes: sum(self.freed_bytes, row.freed_bytes),
            live_blocks: sum(self.live_blocks, row.live_blocks),
            live_bytes: sum(self.live_bytes, row.live_bytes),
            peak_bytes: self.peak_bytes.max(row.peak_bytes),
            at_peak_blocks: sum(self.at_peak_blocks, row.at_peak_blocks),
            at_peak_bytes: sum(self.at_peak_bytes, row.at_peak_bytes),
            temporary: sum(self.temporary, row.temporary),
            cross_thread_frees: sum(self.cross_thread_frees, row.cross_thread_frees),
            largest_bytes: self.largest_bytes.max(row.largest_bytes),
            frees_here: sum(self.frees_here, row.frees_here),
            freed_here_bytes: sum(self.freed_here_bytes, row.freed_here_bytes),
        };
    }

    /// Usable bytes that nobody asked for.
    pub fn slack_bytes(&self) -> u64 {
        self.usable_bytes.saturating_sub(self.requested_bytes)
    }
}
