//! The tables of a process's mappings, until a kind of memory is selected.

use std::sync::Arc;

use super::tables::{Lane, Site, SizeClass};
use super::time::Sample;

/// The tables of a process's mappings. Lanes, scopes and stacks are those of the process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// Sites of mappings; their kind is [`super::SiteKind::Mapped`].
    pub sites: Vec<Site>,
    /// The mapped file of each site, if it has a name.
    pub files: Vec<Option<Arc<str>>>,
    /// The lanes of the process, with sums over their mappings.
    pub lanes: Vec<Lane>,
    /// Counts by size class.
    pub histogram: Vec<SizeClass>,
    /// Mapped bytes over time.
    pub samples: Vec<Sample>,
}
