//! Who allocated the blocks of what keeps memory: sums by function of [`crate::model::retained`].

use rustc_hash::FxHashMap;

use crate::attribution::Owners;
use crate::model::retained::Kept;
use crate::model::{FrameId, Process, SiteRow};

/// The functions that allocated the sites of a process.
pub struct OfSites<'a> {
    process: &'a Process,
    owners: Owners,
}

impl<'a> OfSites<'a> {
    /// Finds them; the process must have the rows of its sites.
    pub fn of(process: &'a Process) -> OfSites<'a> {
        OfSites { process, owners: Owners::of(process) }
    }

    /// Returns the frame that owns the blocks of a site; `None` without a stack.
    pub fn frame(&self, site: u32) -> Option<FrameId> {
        let rows = self.process.time.site_rows.as_ref()?;
        let SiteRow::At(row) = rows.row(site) else { return None };
        self.owners.frame(self.process, self.process.tables.sites.get(row as usize)?.stack)
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
