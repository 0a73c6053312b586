//! Lifetimes of the blocks of each site, computed from a trace in one pass over its events.
//!
//! Lifetimes are counted in classes, so that quantiles of any group of sites can be computed: 8
//! classes for each power of two. The middle of a class is within 6 % of all lifetimes in it.

use std::ops::Range;

use crate::error::Error;
use crate::model::{Process, SiteKind};
use crate::trace::{Event, Operation};

/// Number of classes for each power of two, as binary logarithm.
const PARTS_LOG2: u32 = 3;
const PARTS: u64 = 1 << PARTS_LOG2;

/// Lifetimes of freed blocks, by site.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lifetimes {
    /// In the order of the sites of the process.
    pub sites: Vec<OfSite>,
    /// Restrictions of completeness of the trace, for users.
    pub notes: Vec<String>,
}

/// Lifetimes of the blocks of a site.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OfSite {
    /// Sum of lifetimes.
    pub sum_ns: u64,
    /// Longest lifetime.
    pub max_ns: u64,
    /// Occurring classes in order, with the number of blocks in each.
    pub classes: Vec<(u16, u64)>,
}

impl Lifetimes {
    /// Replays the trace of a process. Counts blocks freed in a time span, in nanoseconds from the
    /// start, by their site at that time. Blocks of pools and memory outside the heap are excluded.
    /// A reallocation ends a block and begins another one, as in the table `lifetimes` of queries.
    ///
    /// Errors: the same as those of [`Process::replay`].
    ///
    /// ```
    /// use heaptide_analysis::views::lifetimes::Lifetimes;
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// assert!(Lifetimes::of(&process, 0..u64::MAX).is_err()); // it has no trace
    /// ```
    pub fn of(process: &Process, span: Range<u64>) -> Result<Lifetimes, Error> {
        let mut replay = process.replay()?;
        let mut lifetimes = Lifetimes {
            sites: vec![OfSite::default(); process.tables.sites.len()],
            notes: Vec::new(),
        };
        let sites = &process.tables.sites;
        let is_counted = |event: &Event| {
            let site = sites.get(event.site as usize);
            event.operation == Operation::Free
                && span.contains(&event.time_ns)
                // The lifetime of a block from before the beginning of the trace is unknown.
                && event.allocated_number > 0
                && site.is_some_and(|site| is_in_sums(site.kind))
        };
        let mut batch = Vec::new();
        while replay.fill(&mut batch) {
            for event in batch.iter().filter(|event| is_counted(event)) {
                let lifetime_ns = event.time_ns.saturating_sub(event.allocated_ns);
                lifetimes.sites[event.site as usize].add(lifetime_ns);
            }
            if batch.last().is_some_and(|last| last.time_ns >= span.end) {
                break;
            }
        }
        lifetimes.notes = replay.notes();
        Ok(lifetimes)
    }
}

impl OfSite {
    /// Returns the number of freed blocks.
    pub fn freed(&self) -> u64 {
        self.classes.iter().map(|(_, blocks)| blocks).sum()
    }

    fn add(&mut self, lifetime_ns: u64) {
        self.sum_ns = self.sum_ns.saturating_add(lifetime_ns);
        self.max_ns = self.max_ns.max(lifetime_ns);
        let class = class(lifetime_ns);
        match self.classes.binary_search_by_key(&class, |of| of.0) {
            Ok(at) => self.classes[at].1 += 1,
            Err(at) => self.classes.insert(at, (class, 1)),
        }
    }
}

/// Returns whether memory of this kind is from the allocator or the kernel, and counted once.
const fn is_in_sums(kind: SiteKind) -> bool {
    matches!(kind, SiteKind::Heap | SiteKind::PoolChunk | SiteKind::Mapped(_))
}

/// Returns the class of a lifetime. The first 8 classes have one nanosecond each; class `c` above
/// them begins at `(8 + c % 8) << (c / 8 - 1)`.
///
/// ```
/// use heaptide_analysis::views::lifetimes::class;
/// assert_eq!([0, 7, 8, 15, 16, 17, 18].map(class), [0, 7, 8, 15, 16, 16, 17]);
/// assert_eq!(class(u64::MAX), 495);
/// ```
pub const fn class(lifetime_ns: u64) -> u16 {
    if lifetime_ns < PARTS {
        return lifetime_ns as u16;
    }
    let shift = lifetime_ns.ilog2() - PARTS_LOG2;
    let part = (lifetime_ns >> shift) % PARTS;
    ((shift as u64 + 1) * PARTS + part) as u16
}
