//! Which row of the tables each site of a profile is, for readers that follow its counters.

use crate::collections::optional_index::OptionalIndex;
use crate::collections::sparse_array::SparseArray;

/// The rows of the sites of a profile in [`super::Tables::sites`], by the ids of their records. A
/// site that a selection left out has none.
#[derive(Clone, Debug, Default)]
pub struct SiteRows {
    rows: SparseArray,
}

impl SiteRows {
    /// Notes the row of each id.
    pub(crate) fn new(rows: impl Iterator<Item = (u32, Option<u32>)>) -> SiteRows {
        let mut known = SiteRows::default();
        for (id, row) in rows {
            if let Some(row) = row {
                known.rows.set(id, OptionalIndex::from_index(row));
            }
        }
        known
    }

    /// The row of a site; none if it was left out, or came later than the tables.
    #[inline]
    pub fn row(&self, id: u32) -> Option<u32> {
        self.rows.get(id).get()
    }

    /// Sites have new rows; none for those that are left out.
    pub(crate) fn move_sites(&mut self, new: impl Fn(u32) -> Option<u32>) {
        self.rows.change(|index| {
            let new = index.get().and_then(&new);
            new.map_or(OptionalIndex::NONE, OptionalIndex::from_index)
        });
    }
}
