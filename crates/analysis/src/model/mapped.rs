//! The tables of a process's mappings, or of its device memory, until a kind of memory is selected.

use std::sync::Arc;

use super::tables::{Lane, Site, SizeClass};
use super::time::Sample;

/// The tables of a process's mappings, or of its device memory. Lanes, scopes and stacks are those
/// of the process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// Sites; their kind is [`super::SiteKind::Mapped`], or [`super::SiteKind::Device`].
    pub sites: Vec<Site>,
    /// The mapped file of each site, if it has a name.
    pub files: Vec<Option<Arc<str>>>,
    /// The lanes of the process, with sums over their mappings.
    pub lanes: Vec<Lane>,
    /// Counts by size class.
    pub histogram: Vec<SizeClass>,
    /// Mapped bytes over time.
    pub samples: Vec<Sample>,
    /// All changes in their order, unless there were too many to be recorded.
    pub changes: Vec<MappedChange>,
}

/// A change of the mapped bytes of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedChange {
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// Set if the heap reached its peak later.
    pub is_before_heap_peak: bool,
    /// The index of its site in [`Mapped::sites`].
    pub site: u32,
    /// Mappings that began, or minus those that ended.
    pub mappings: i64,
    /// Bytes that were mapped, or minus those that were unmapped.
    pub bytes: i64,
}
