//! A sparse array of numbers. Its indices are the ids of a profile's records, which are places in
//! the file: large, and close together within an extent.

/// Ids whose numbers are kept together.
const PAGE: usize = 64;

/// A number for each id; 0 where none was set. It takes memory for ids near those that were set,
/// and a 64th of a word for each id up to the largest.
#[derive(Clone, Debug, Default)]
pub(crate) struct SparseArray {
    /// By page of ids: index plus one into `pages`, or 0.
    directory: Vec<u32>,
    pages: Vec<[u32; PAGE]>,
}

impl SparseArray {
    pub(crate) fn set(&mut self, id: u32, number: u32) {
        let (page, place) = (id as usize / PAGE, id as usize % PAGE);
        if self.directory.len() <= page {
            self.directory.resize(page + 1, 0);
        }
        if self.directory[page] == 0 {
            self.pages.push([0; PAGE]);
            self.directory[page] = self.pages.len() as u32;
        }
        self.pages[self.directory[page] as usize - 1][place] = number;
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> u32 {
        let page = self.directory.get(id as usize / PAGE).copied().unwrap_or(0);
        let page = self.pages.get((page as usize).wrapping_sub(1));
        page.map_or(0, |page| page[id as usize % PAGE])
    }

    /// Changes every number that is not 0.
    pub(crate) fn change(&mut self, mut new: impl FnMut(u32) -> u32) {
        let numbers = self.pages.iter_mut().flatten().filter(|number| **number != 0);
        numbers.for_each(|number| *number = new(*number));
    }

    /// The numbers that are not 0.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.pages.iter().flatten().copied().filter(|&number| number != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_id() {
        let mut by_id = SparseArray::default();
        for (id, number) in [(70, 1), (71, 2), (1 << 26, 3), (70, 4)] {
            by_id.set(id, number);
        }
        by_id.change(|number| number * 2);
        let found = [0, 69, 70, 71, 1 << 26, u32::MAX].map(|id| by_id.get(id));
        assert_eq!(found, [0, 0, 8, 4, 6, 0]);
        assert_eq!(by_id.numbers().collect::<Vec<_>>(), [8, 4, 6]);
    }
}
