//! A trace held against the counters of its process: what the recorder counted as it went must be
//! what its events add up to.

use super::blocks::Unpaired;
use super::event::{Event, Operation};
use crate::error::Error;
use crate::model::{Measures, Process, Site, SiteKind};

/// What the events of a process add up to.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// By index into [`crate::model::Tables::sites`]: allocations, frees, reallocations, failures,
    /// temporary blocks, bytes, the largest request, and what is live.
    pub sites: Vec<Measures>,
    /// Most bytes live at once.
    pub peak_bytes: u64,
    /// Events in all.
    pub events: u64,
    /// What did not fit together.
    pub unpaired: Unpaired,
    /// What a person should know of how complete they are.
    pub notes: Vec<String>,
}

/// A figure of a site that its events do not add up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Index into [`crate::model::Tables::sites`].
    pub site: usize,
    /// The measure.
    pub measure: &'static str,
    /// As the recorder counted it.
    pub counted: u64,
    /// As the events have it.
    pub replayed: u64,
}

impl Process {
    /// Adds up its events.
    ///
    /// Errors: as those of [`Process::replay`].
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
        Operation::Begin | Operation::End => {}
    }
}

impl Replayed {
    /// What the process's counters say otherwise: nothing, of a process whose trace is whole and
    /// that was not changed by selections.
    pub fn differences(&self, process: &Process) -> Vec<Difference> {
        let pairs = self.sites.iter().zip(&process.tables.sites).enumerate();
        pairs.flat_map(|(index, (replayed, site))| differences(index, replayed, site)).collect()
    }
}

fn differences(index: usize, replayed: &Measures, site: &Site) -> impl Iterator<Item = Difference> {
    // What a pool lends is not live at its chunks, and they were not freed.
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
