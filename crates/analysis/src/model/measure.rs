//! The metrics of a site: their names, their values in a row, and how rows are combined.

use std::fmt;
use std::str::FromStr;

use super::spread::Spread;

/// How the values of several rows are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combine {
    /// The sum.
    Sum,
    /// The largest value.
    Max,
}

impl Combine {
    /// Combines two values.
    pub const fn of(self, a: u64, b: u64) -> u64 {
        match self {
            Combine::Sum => a.saturating_add(b),
            Combine::Max if a > b => a,
            Combine::Max => b,
        }
    }
}

/// The unit of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Blocks, or frees of blocks.
    Blocks,
    /// Calls.
    Events,
}

impl Unit {
    /// Returns the name in descriptions of columns.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Blocks => "blocks",
            Unit::Events => "events",
        }
    }
}

/// How a metric behaves when rows are added and when counters are reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Adds up over rows, and restarts from 0 at a reset.
    Counter,
    /// Adds up over rows; a reset does not change it.
    Level,
    /// The maximum over rows; a reset does not change it.
    Maximum,
}

/// Declares the metrics. Each entry has the field of a row, its variant, `kind`, `unit`, the
/// heading of a column and a description; the lines above it document field and variant. The
/// columns of queries and SQL, JSON keys, CSV columns, options and the lists in help texts follow
/// from this table.
macro_rules! measures {
    ($(
        $(#[$doc:meta])*
        $field:ident $variant:ident: $kind:ident, $unit:ident, $heading:literal, $description:literal;
    )*) => {
        /// The metrics, under the names used everywhere. Bytes are usable bytes unless the name
        /// states otherwise.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Measures {
            $($(#[$doc])* pub $field: u64,)*
            /// Precision of the bytes, if they are estimates.
            pub spread: Spread,
        }

        /// One column of [`Measures`].
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(usize)]
        pub enum Measure {
            $($(#[$doc])* $variant,)*
        }

        const ALL: &[Measure] = &[$(Measure::$variant),*];

        impl Measure {
            /// Returns the name, which is the same in flags, columns and JSON.
            ///
            /// ```
            /// use heaptide_analysis::model::Measure;
            /// assert_eq!(Measure::AtPeakBytes.name(), "at_peak_bytes");
            /// ```
            pub const fn name(self) -> &'static str {
                match self {
                    $(Measure::$variant => stringify!($field),)*
                }
            }

            /// Returns the unit.
            pub const fn unit(self) -> Unit {
                match self {
                    $(Measure::$variant => Unit::$unit,)*
                }
            }

            /// Returns the heading of a narrow column.
            pub const fn heading(self) -> &'static str {
                match self {
                    $(Measure::$variant => $heading,)*
                }
            }

            /// Returns a description.
            pub const fn description(self) -> &'static str {
                match self {
                    $(Measure::$variant => $description,)*
                }
            }

            /// Returns the value in a row.
            pub const fn of(self, row: &Measures) -> u64 {
                match self {
                    $(Measure::$variant => row.$field,)*
                }
            }

            /// Sets the value in a row.
            pub const fn set(self, row: &mut Measures, value: u64) {
                match self {
                    $(Measure::$variant => row.$field = value,)*
                }
            }

            const fn kind(self) -> Kind {
                match self {
                    $(Measure::$variant => Kind::$kind,)*
                }
            }
        }

        impl Measures {
            /// Adds a row to this one; the largest request becomes the larger of both. Sums
            /// saturate.
            ///
            /// ```
            /// use heaptide_analysis::model::Measures;
            /// let mut sum = Measures { allocations: 2, largest_bytes: 9, ..Measures::default() };
            /// sum.add(&Measures { allocations: 3, largest_bytes: 5, ..Measures::default() });
            /// assert_eq!((sum.allocations, sum.largest_bytes), (5, 9));
            /// ```
            pub fn add(&mut self, row: &Measures) {
                $(self.$field = Measure::$variant.combine().of(self.$field, row.$field);)*
                self.spread.add(&row.spread);
            }

            /// Subtracts the values at a reset from all counters. Live, the peak and the largest
            /// request do not change.
            pub fn subtract_counters(&mut self, at_reset: &Measures) {
                $(if matches!(Measure::$variant.kind(), Kind::Counter) {
                    self.$field = self.$field.saturating_sub(at_reset.$field);
                })*
            }
        }
    };
}

measures! {
    /// Successful allocations, including those by realloc.
    allocations Allocations: Counter, Blocks, "allocs", "blocks allocated, including by realloc";
    /// Blocks freed, by any thread.
    frees Frees: Counter, Blocks, "frees", "blocks freed, by any thread";
    /// Successful reallocations.
    reallocations Reallocations: Counter, Events, "reallocs", "blocks reallocated";
    /// Failed allocations.
    failed Failed: Counter, Events, "failed", "failed allocations";
    /// Bytes that the program requested.
    requested_bytes RequestedBytes: Counter, Bytes, "bytes", "requested bytes";
    /// Bytes that the allocator returned.
    usable_bytes UsableBytes: Counter, Bytes, "bytes", "usable bytes";
    /// Bytes freed.
    freed_bytes FreedBytes: Counter, Bytes, "bytes", "usable bytes freed";
    /// Blocks allocated and not freed.
    live_blocks LiveBlocks: Level, Blocks, "blocks", "blocks allocated and not freed";
    /// Bytes of these blocks.
    live_bytes LiveBytes: Level, Bytes, "bytes", "bytes allocated and not freed";
    /// Highest live bytes of the process; only in totals, 0 elsewhere.
    peak_bytes PeakBytes: Maximum, Bytes, "bytes", "peak of live bytes";
    /// Blocks of this row that were live at peak usage of the process.
    at_peak_blocks AtPeakBlocks: Level, Blocks, "blocks", "blocks live at the peak of the process";
    /// Bytes of these blocks.
    at_peak_bytes AtPeakBytes: Level, Bytes, "bytes", "bytes live at the peak of the process";
    /// Blocks freed by the allocating thread before its next allocation.
    temporary Temporary: Counter, Blocks, "temporary",
        "blocks freed by the allocating thread before its next allocation";
    /// Blocks freed by a lane other than the allocating one.
    cross_thread_frees CrossThreadFrees: Counter, Blocks, "frees",
        "blocks freed by a thread other than the allocating one";
    /// The largest request.
    largest_bytes LargestBytes: Maximum, Bytes, "bytes", "largest request";
    /// Frees performed here, regardless of the site that allocated the block.
    frees_here FreesHere: Counter, Blocks, "frees", "frees performed here, of any block";
    /// Bytes of these frees.
    freed_here_bytes FreedHereBytes: Counter, Bytes, "bytes", "bytes freed here, of any block";
}

impl Measure {
    /// Returns all metrics, in the order of columns.
    pub const fn all() -> &'static [Measure] {
        ALL
    }

    /// Returns the metrics of a part of a process, all except the peak, which only a whole process
    /// has.
    pub fn of_parts() -> impl Iterator<Item = Measure> {
        ALL.iter().copied().filter(|measure| *measure == measure.of_sites())
    }

    /// Returns whether the unit is bytes.
    pub const fn is_bytes(self) -> bool {
        matches!(self.unit(), Unit::Bytes)
    }

    /// Returns how rows are combined.
    pub const fn combine(self) -> Combine {
        match self.kind() {
            Kind::Counter | Kind::Level => Combine::Sum,
            Kind::Maximum => Combine::Max,
        }
    }

    /// Returns the metric to use for rows of sites: `at_peak_bytes` for the peak, which only totals
    /// have; else the metric itself.
    pub const fn of_sites(self) -> Measure {
        match self {
            Measure::PeakBytes => Measure::AtPeakBytes,
            other => other,
        }
    }
}

/// Error of a name that is not a metric.
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
        ALL.iter()
            .copied()
            .find(|m| m.name() == name)
            .ok_or_else(|| UnknownMeasure(name.to_owned()))
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Measures {
    /// Returns the usable bytes beyond the requested ones.
    pub fn slack_bytes(&self) -> u64 {
        self.usable_bytes.saturating_sub(self.requested_bytes)
    }

    /// Replaces the memory at peak by the live memory.
    pub(crate) fn take_live_as_peak(&mut self) {
        self.spread.at_peak = self.spread.live;
        self.at_peak_blocks = self.live_blocks;
        self.at_peak_bytes = self.live_bytes;
    }

    /// Replaces the memory at peak by an exact number of blocks and bytes.
    pub(crate) fn set_peak(&mut self, blocks: u64, bytes: u64) {
        self.spread.at_peak = Default::default();
        self.at_peak_blocks = blocks;
        self.at_peak_bytes = bytes;
    }
}
