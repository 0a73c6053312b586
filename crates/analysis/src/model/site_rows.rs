//! Which row of the tables each site of a profile is, for readers that follow its counters.

use crate::collections::optional_index::OptionalIndex;
use crate::collections::sparse_array::SparseArray;

/// The rows of the sites of a profile in [`super::Tables::sites`], by the ids of their records.
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
    /// A selection left the site out.
    LeftOut,
    /// The tables were read before there was such a site.
    Unknown,
}

/// Stands for a site that was left out: there are fewer sites than this.
const LEFT_OUT: OptionalIndex = OptionalIndex::from_index(u32::MAX - 1);

impl SiteRows {
    /// Notes the row of each id.
    pub(crate) fn new(rows: impl Iterator<Item = (u32, Option<u32>)>) -> SiteRows {
        let mut known = SiteRows::default();
        for (id, row) in rows {
            known.rows.set(id, row.map_or(LEFT_OUT, OptionalIndex::from_index));
            known.sites += 1;
        }
        known
    }

    /// The row of a site.
    #[inline]
    pub fn row(&self, id: u32) -> SiteRow {
        match self.rows.get(id) {
            LEFT_OUT => SiteRow::LeftOut,
            index => index.get().map_or(SiteRow::Unknown, SiteRow::At),
        }
    }

    /// Sites that the tables were made of, those included that were left out.
    pub fn sites(&self) -> usize {
        self.sites
    }

    /// Sites have new rows; none for those that are left out.
    pub(crate) fn move_sites(&mut self, new: impl Fn(u32) -> Option<u32>) {
        self.rows.change(|index| {
            let row = index.get().filter(|_| index != LEFT_OUT);
            row.and_then(&new).map_or(LEFT_OUT, OptionalIndex::from_index)
        });
    }
}
