//! The tables of a process image, by topic.
//!
//! Everything is plain data with typed ids; a view reads these tables and never the profile file.

use std::sync::Arc;

use super::attribution::Attribution;
use super::completeness::{Completeness, Off};
use super::device::DeviceTotals;
use super::identity::{End, Identity, Lifetime};
use super::mapped::Mapped;
use super::mapping::MappedTotals;
use super::measure::{Measure, Measures};
use super::retained::Search;
use super::sampling::{Interval, Sampling};
use super::tables::{Shape, Tables};
use super::time::TimeTables;

/// One process image: from its start (or fork, or exec) to its end.
#[derive(Clone, Debug)]
pub struct Process {
    /// Identity of the image.
    pub identity: Identity,
    /// When it ran, and how it ended.
    pub lifetime: Lifetime,
    /// How much was recorded.
    pub mode: Mode,
    /// Sampling parameters, if blocks were sampled: then numbers of sites are estimates, and totals
    /// are exact. `None` if all blocks were recorded.
    pub sampling: Option<Sampling>,
    /// Sums over the sites, each block once (see [`crate::model::Sum`]), with the
    /// process-wide peak.
    pub totals: Measures,
    /// When the peak was reached, nanoseconds from the start.
    pub peak_time_ns: u64,
    /// Sites and the tables that they refer to.
    pub tables: Tables,
    /// Samples, windows, marks and events.
    pub time: TimeTables,
    /// Sums over all mappings, independent of the selection; `None` if there are no mappings.
    pub mapped: Option<MappedTotals>,
    /// Mappings, until a kind of memory is selected ([`Process::select_kind`]).
    pub mappings: Option<Box<Mapped>>,
    /// Sums over all device memory, independent of the selection; `None` if there is none.
    pub device: Option<DeviceTotals>,
    /// Device memory, until a kind of memory is selected.
    pub device_memory: Option<Box<Mapped>>,
    /// A search of it for what keeps its blocks, at its end or at that of a snapshot; `None` if
    /// there was none, and of joined processes.
    pub search: Option<Arc<Search>>,
    /// What the tables lack, and how exact the numbers are.
    pub completeness: Completeness,
    /// Statistics of the unwinder.
    pub unwinder: UnwinderStats,
    /// How its allocations are attributed to functions.
    pub attribution: Attribution,
}

/// How much was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Totals, lanes, histograms.
    Counters,
    /// In addition, a site for every stack, scope path and label.
    Stacks,
    /// Like `Stacks`, but without stacks.
    Scopes,
}

impl Mode {
    /// Returns the name in options and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Counters => "counters",
            Mode::Stacks => "stacks",
            Mode::Scopes => "scopes",
        }
    }
}

/// Statistics of the unwinder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnwinderStats {
    /// Frames unwound by a rule.
    pub frames_stepped: u64,
    /// Rules evaluated.
    pub rules_evaluated: u64,
}

impl Process {
    /// Returns whether all live blocks of the heap are known: the recording began with the program,
    /// and was never off.
    pub fn knows_all_blocks(&self) -> bool {
        let Completeness { starts_in_middle, off, .. } = self.completeness;
        !starts_in_middle && off == Off::Never && !self.identity.forked
    }

    /// Returns the shapes of each label, in order of first use.
    pub fn shapes_by_label(&self) -> Vec<Vec<&Shape>> {
        let mut by_label = vec![Vec::new(); self.tables.labels.len()];
        for shape in &self.tables.shapes {
            if let Some(shapes) = by_label.get_mut(shape.label.0 as usize) {
                shapes.push(shape);
            }
        }
        by_label
    }

    /// Returns whether the timeline covers the same events as the totals. It covers more if blocks
    /// were excluded or counters start at a reset. A running process may have continued between the
    /// two reads.
    pub fn has_timeline_of_totals(&self) -> bool {
        if self.time.samples_have_more {
            return false;
        }
        let totals = &self.totals;
        let is_running = self.lifetime.end == End::Running;
        let most = totals.peak_bytes.saturating_add(self.completeness.peak_bound_bytes);
        self.time.samples.iter().all(|sample| {
            let made = is_running || sample.allocations <= totals.allocations;
            made && sample.live_bytes <= most
        })
    }

    /// Returns whether the events of its memory were recorded, so that they can be replayed.
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// assert!(!process.has_trace()); // recorded with --mode stacks
    /// ```
    pub fn has_trace(&self) -> bool {
        !self.time.traces.is_empty() && !self.time.traces_are_partial
    }
}

impl Process {
    /// Returns the name of the recording mode, as used in options.
    pub fn mode_name(&self) -> &'static str {
        match self.mode {
            _ if self.sampling.is_some() => heaptide_format::SAMPLED,
            mode => mode.name(),
        }
    }

    /// Returns whether this is a part of a sampled process, so that even the totals are estimates.
    pub fn is_part_of_sampled(&self) -> bool {
        // Sums of the same numbers in a different order differ by less than this.
        const ROUNDING: f32 = 1e-3;
        self.sampling.is_some_and(|sampling| {
            let (part, whole) = (self.totals.spread, sampling.whole);
            let lacks = |part: f32, whole: f32| part < whole * (1.0 - ROUNDING);
            lacks(part.allocated, whole.allocated) || lacks(part.live, whole.live)
        })
    }

    /// Returns the 95 % interval of a metric of a row of this process; `None` if the metric is
    /// exact or has no interval ([`Sampling::interval`]).
    pub fn interval(&self, metric: Measure, row: &Measures) -> Option<Interval> {
        let Interval { low, mut high } = self.sampling.as_ref()?.interval(metric, row)?;
        if !self.is_part_of_sampled() {
            // The total is exact, and no row has more.
            let metric = metric.of_sites();
            high = high.min(metric.of(&self.totals).max(metric.of(row)));
        }
        Some(Interval { low, high })
    }
}
