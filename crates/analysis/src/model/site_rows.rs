//! Maps each site of a profile to its row of the tables, for readers that follow its counters.

use crate::collections::optional_index::OptionalIndex;
use crate::collections::sparse_array::SparseArray;

/// The row of each site of a profile in [`super::Tables::sites`], by the id of its record.
#[derive(Clone, Debug, Default)]
pub struct SiteRows {
    rows: SparseArray,
    sites: usize,
}

/// The row of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SiteRow {
    /// Index into [`super::Tables::sites`].
    At(u32),
    /// A selection excluded the site.
    LeftOut,
    /// The site is newer than the tables.
    Unknown,
}

/// Marks an excluded site: row numbers are below this.
const LEFT_OUT: OptionalIndex = OptionalIndex::from_index(u32::MAX - 1);

impl SiteRows {
    /// Stores the row of each id.
    pub(crate) fn new(rows: impl Iterator<Item = (u32, Option<u32>)>) -> SiteRows {
        let mut known = SiteRows::default();
        for (id, row) in rows {
            known.rows.set(id, row.map_or(LEFT_OUT, OptionalIndex::from_index));
            known.sites += 1;
        }
        known
    }

    /// Returns the row of a site.
    #[inline]
    pub fn row(&self, id: u32) -> SiteRow {
        match self.rows.get(id) {
            LEFT_OUT => SiteRow::LeftOut,
            index => index.get().map_or(SiteRow::Unknown, SiteRow::At),
        }
    }

    /// Returns the number of sites from which the tables were built, including excluded ones.
    pub fn sites(&self) -> usize {
        self.sites
    }

    /// Replaces the rows of sites; `new` returns `None` for sites that are excluded.
    pub(crate) fn move_sites(&mut self, new: impl Fn(u32) -> Option<u32>) {
        self.rows.change(|index| {
            let row = index.get().filter(|_| index != LEFT_OUT);
            row.and_then(&new).map_or(LEFT_OUT, OptionalIndex::from_index)
        });
    }
}
