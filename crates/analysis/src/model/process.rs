//! The tables of a process image, by topic.
//!
//! Everything is plain data with typed ids; a view reads the tables and never the profile file.

use super::attribution::Attribution;
use super::completeness::Completeness;
use super::identity::{Identity, Lifetime};
use super::mapped::Mapped;
use super::mapping::MappedTotals;
use super::measure::Measures;
use super::sampling::Sampling;
use super::tables::{Shape, Tables};
use super::time::TimeTables;

/// One process image: from its start (or fork, or exec) to its end.
#[derive(Clone, Debug)]
pub struct Process {
    /// Which process image it is.
    pub identity: Identity,
    /// When it ran, and how it ended.
    pub lifetime: Lifetime,
    /// What was recorded.
    pub mode: Mode,
    /// How blocks were sampled: then what sites have is estimated, and totals are exact. None if
    /// all blocks were recorded.
    pub sampling: Option<Sampling>,
    /// Sums over the sites, each block once (see [`crate::model::Sum`]), with the
    /// process-wide peak.
    pub totals: Measures,
    /// When the peak was reached, nanoseconds from the start.
    pub peak_time_ns: u64,
    /// Sites, and what they refer to.
    pub tables: Tables,
    /// What is known by time.
    pub time: TimeTables,
    /// What was mapped in all, whatever is selected; none if nothing was.
    pub mapped: Option<MappedTotals>,
    /// Mappings, until a kind of memory is selected ([`Process::select_kind`]).
    pub mappings: Option<Box<Mapped>>,
    /// What is missing, and how exact the numbers are.
    pub completeness: Completeness,
    /// What the unwinder did.
    pub unwinder: UnwinderStats,
    /// How its allocations are put down to functions.
    pub attribution: Attribution,
}

/// How much was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Totals, lanes, histograms.
    Counters,
    /// And a site for every stack, scope path and label.
    Stacks,
    /// The same without stacks.
    Scopes,
}

impl Mode {
    /// Its name in options and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Counters => "counters",
            Mode::Stacks => "stacks",
            Mode::Scopes => "scopes",
        }
    }
}

/// Counts of the unwinder's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnwinderStats {
    /// Frames stepped by rule.
    pub frames_stepped: u64,
    /// Rules evaluated.
    pub rules_evaluated: u64,
}

impl Process {
    /// By label the shapes of the memory that has it, in order of first use.
    pub fn shapes_by_label(&self) -> Vec<Vec<&Shape>> {
        let mut by_label = vec![Vec::new(); self.tables.labels.len()];
        for shape in &self.tables.shapes {
            if let Some(shapes) = by_label.get_mut(shape.label.0 as usize) {
                shapes.push(shape);
            }
        }
        by_label
    }

    /// Whether its events were recorded, so that they can be replayed.
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
        !self.time.traces.is_empty()
    }
}
