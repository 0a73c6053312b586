//! Compares a trace with the counters of its process: the counters of the recorder must equal the
//! sums of the events.

use super::blocks::Unpaired;
use super::event::{Event, Operation};
use crate::error::Error;
use crate::model::{Measures, Process, Site, SiteKind};

/// Sums over the events of a process.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// By index into [`crate::model::Tables::sites`]: allocations, frees, reallocations, failures,
    /// temporary blocks, bytes, the largest request, and live blocks.
    pub sites: Vec<Measures>,
    /// Highest live bytes.
    pub peak_bytes: u64,
    /// Number of events.
    pub events: u64,
    /// Inconsistencies of the trace.
    pub unpaired: Unpaired,
    /// Restrictions of completeness, for people.
    pub notes: Vec<String>,
}

/// A metric of a site that differs between counters and events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Index into [`crate::model::Tables::sites`].
    pub site: usize,
    /// The metric.
    pub measure: &'static str,
    /// The value counted by the recorder.
    pub counted: u64,
    /// The value computed from the events.
    pub replayed: u64,
}

impl Process {
    /// Sums up the events of the process.
    ///
    /// Errors: the same as those of [`Process::replay`].
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// if let Ok(replayed) = process.replayed() {
    ///     assert!(replayed.differences(&process).is_empty());
    /// }
    /// ```
    pub fn replayed(&self) -> Result<Replayed, Error> {
        let mut replay = self.replay()?;
        let mut sites = vec![Measures::default(); self.tables.sites.len()];
        let (mut peak_bytes, mut batch) = (0, Vec::new());
        while replay.fill(&mut batch) {
            for event in &batch {
                peak_bytes = event.live_bytes.max(peak_bytes);
                add(&mut sites, event);
            }
        }
        for site in &mut sites {
            site.live_blocks = site.allocations.wrapping_sub(site.frees);
            site.live_bytes = site.usable_bytes.wrapping_sub(site.freed_bytes);
        }
        let (events, unpaired, notes) = (replay.events(), replay.unpaired(), replay.notes());
        Ok(Replayed { sites, peak_bytes, events, unpaired, notes })
    }
}

fn add(sites: &mut [Measures], event: &Event) {
    let Event { site, site_before, requested, usable, .. } = *event;
    let site = site as usize;
    let counted = |sites: &mut [Measures]| {
        let m = &mut sites[site];
        m.allocations += 1;
        m.reallocations += u64::from(event.reallocated);
        m.requested_bytes = m.requested_bytes.wrapping_add(requested);
        m.usable_bytes = m.usable_bytes.wrapping_add(usable);
        m.largest_bytes = m.largest_bytes.max(requested);
    };
    let freed = |m: &mut Measures| {
        m.frees = m.frees.wrapping_add(1);
        m.freed_bytes = m.freed_bytes.wrapping_add(usable);
    };
    match event.operation {
        Operation::Allocate => counted(sites),
        Operation::Free => {
            freed(&mut sites[site]);
            sites[site].temporary += u64::from(event.temporary);
        }
        Operation::Fail => sites[site].failed += 1,
        Operation::Relabel => {
            freed(&mut sites[site_before as usize]);
            counted(sites);
        }
        Operation::Unlabel => {
            freed(&mut sites[site_before as usize]);
            let m = &mut sites[site];
            m.frees = m.frees.wrapping_sub(1);
            m.freed_bytes = m.freed_bytes.wrapping_sub(usable);
        }
        Operation::Begin | Operation::End | Operation::Mark => {}
    }
}

impl Replayed {
    /// Returns the differences to the counters of the process. There are none if the trace is
    /// complete and the process was not changed by selections.
    pub fn differences(&self, process: &Process) -> Vec<Difference> {
        let pairs = self.sites.iter().zip(&process.tables.sites).enumerate();
        pairs.flat_map(|(index, (replayed, site))| differences(index, replayed, site)).collect()
    }
}

fn differences(index: usize, replayed: &Measures, site: &Site) -> impl Iterator<Item = Difference> {
    // Bytes lent by a chunk are neither live nor freed there.
    let lent = match site.kind {
        SiteKind::PoolChunk | SiteKind::OutsidePoolChunk => site.lent_bytes,
        _ => 0,
    };
    let (is, has) = (&site.measures, *replayed);
    let figures = [
        ("allocations", is.allocations, has.allocations),
        ("frees", is.frees, has.frees),
        ("reallocations", is.reallocations, has.reallocations),
        ("failed", is.failed, has.failed),
        ("requested_bytes", is.requested_bytes, has.requested_bytes),
        ("usable_bytes", is.usable_bytes, has.usable_bytes),
        ("freed_bytes", is.freed_bytes, has.freed_bytes),
        ("temporary", is.temporary, has.temporary),
        ("largest_bytes", is.largest_bytes, has.largest_bytes),
        ("live_blocks", is.live_blocks, has.live_blocks),
        ("live_bytes", is.live_bytes.saturating_add(lent), has.live_bytes),
    ];
    let differ = figures.into_iter().filter(|(_, counted, replayed)| counted != replayed);
    differ.map(move |(measure, counted, replayed)| Difference {
        site: index,
        measure,
        counted,
        replayed,
    })
}
