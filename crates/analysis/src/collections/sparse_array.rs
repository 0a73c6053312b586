//! A sparse array of indices. Its keys are ids of a profile's records, which are positions in the
//! file: large, and close together within an extent.

use super::optional_index::OptionalIndex;

/// Number of ids in a page.
const PAGE_IDS: usize = 64;

/// An optional index for each id. It uses memory for ids near those that were set, and a 64th of a
/// word for each id up to the largest.
#[derive(Clone, Debug, Default)]
pub(crate) struct SparseArray {
    /// The position in `pages` of each page of ids.
    directory: Vec<OptionalIndex>,
    pages: Vec<[OptionalIndex; PAGE_IDS]>,
}

impl SparseArray {
    pub(crate) fn set(&mut self, id: u32, index: OptionalIndex) {
        let (page, place) = (id as usize / PAGE_IDS, id as usize % PAGE_IDS);
        if self.directory.len() <= page {
            self.directory.resize(page + 1, OptionalIndex::NONE);
        }
        let at = self.directory[page].get().unwrap_or_else(|| {
            let at = self.pages.len() as u32;
            self.pages.push([OptionalIndex::NONE; PAGE_IDS]);
            self.directory[page] = OptionalIndex::from_index(at);
            at
        });
        self.pages[at as usize][place] = index;
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> OptionalIndex {
        let page = self.directory.get(id as usize / PAGE_IDS).and_then(|page| page.get());
        let page = page.and_then(|page| self.pages.get(page as usize));
        page.map_or(OptionalIndex::NONE, |page| page[id as usize % PAGE_IDS])
    }

    /// Replaces every index that was set.
    pub(crate) fn change(&mut self, mut new: impl FnMut(OptionalIndex) -> OptionalIndex) {
        for index in self.pages.iter_mut().flatten().filter(|index| !index.is_none()) {
            *index = new(*index);
        }
    }

    /// Returns the indices that were set.
    pub(crate) fn indices(&self) -> impl Iterator<Item = OptionalIndex> {
        self.pages.iter().flatten().copied().filter(|index| !index.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_found_by_id() {
        let mut by_id = SparseArray::default();
        for (id, index) in [(70, 0), (71, 1), (1 << 26, 2), (70, 3)] {
            by_id.set(id, OptionalIndex::from_index(index));
        }
        by_id.change(|index| OptionalIndex::from_slot(2 * index.slot() as u32));
        let found = [0, 69, 70, 71, 1 << 26, u32::MAX].map(|id| by_id.get(id).get());
        assert_eq!(found, [None, None, Some(7), Some(3), Some(5), None]);
        let indices: Vec<_> = by_id.indices().filter_map(OptionalIndex::get).collect();
        assert_eq!(indices, [7, 3, 5]);
    }
}
