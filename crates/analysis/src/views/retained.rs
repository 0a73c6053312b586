//! Who allocated the blocks of what keeps memory: sums by function of [`crate::model::retained`].

use rustc_hash::FxHashMap;

use crate::attribution::Owners;
use crate::model::retained::Kept;
use crate::model::{FrameId, Process, Site, SiteRow};

/// The functions that allocated the sites of a process.
pub struct OfSites<'a> {
    process: &'a Process,
    owners: Owners,
    /// The first frame with the function, module and line of each one.
    first: Vec<FrameId>,
}

impl<'a> OfSites<'a> {
    /// Finds them; the process must have the rows of its sites.
    pub fn of(process: &'a Process) -> OfSites<'a> {
        let mut known = FxHashMap::default();
        let frames = process.tables.frames.iter().zip(0..);
        let first = frames.map(|(frame, id)| match &frame.function {
            Some(function) => {
                let place = (function, frame.module, &frame.file, frame.line);
                *known.entry(place).or_insert(FrameId(id))
            }
            None => FrameId(id),
        });
        OfSites { process, owners: Owners::of(process), first: first.collect() }
    }

    /// Returns a site by its number; `None` if a selection excluded it.
    pub fn site(&self, number: u32) -> Option<&'a Site> {
        site(self.process, number)
    }

    /// Returns the frame that owns the blocks of a site, the first with its function and line;
    /// `None` without a stack.
    pub fn frame(&self, site: u32) -> Option<FrameId> {
        let frame = self.owners.frame(self.process, self.site(site)?.stack)?;
        self.first.get(frame.0 as usize).copied()
    }

    /// Sums sites by the frame that owns them, the most bytes first.
    pub fn by_frame(
        &self,
        sites: impl Iterator<Item = (u32, Kept)>,
    ) -> Vec<(Option<FrameId>, Kept)> {
        let mut sums: FxHashMap<Option<FrameId>, Kept> = FxHashMap::default();
        for (site, kept) in sites {
            sums.entry(self.frame(site)).or_default().plus(kept);
        }
        let mut sums: Vec<(Option<FrameId>, Kept)> = sums.into_iter().collect();
        sums.sort_by_key(|(frame, kept)| (std::cmp::Reverse(kept.bytes), *frame));
        sums
    }
}

/// Returns a site of a process by its number; `None` if a selection excluded it.
pub fn site(process: &Process, number: u32) -> Option<&Site> {
    let rows = process.time.site_rows.as_ref()?;
    let SiteRow::At(row) = rows.row(number) else { return None };
    process.tables.sites.get(row as usize)
}
