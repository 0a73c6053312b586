//! An optional index in the size of an index.

/// An optional index, stored as the index plus one, or 0 for none: a profile has millions of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OptionalIndex(u32);

impl OptionalIndex {
    /// No index.
    pub const NONE: OptionalIndex = OptionalIndex(0);

    /// Returns this index. The largest number is not a valid index.
    pub const fn from_index(index: u32) -> OptionalIndex {
        OptionalIndex(index.wrapping_add(1))
    }

    /// Returns the index with this slot; see [`OptionalIndex::slot`].
    pub const fn from_slot(slot: u32) -> OptionalIndex {
        OptionalIndex(slot)
    }

    /// Returns the index.
    ///
    /// ```
    /// use heaptide_analysis::collections::optional_index::OptionalIndex;
    /// assert_eq!(OptionalIndex::from_slot(3).get(), Some(2));
    /// assert_eq!(OptionalIndex::NONE.get(), None);
    /// ```
    pub const fn get(self) -> Option<u32> {
        self.0.checked_sub(1)
    }

    /// Returns the position in a table whose first entry stands for none: the index plus one, or 0.
    pub const fn slot(self) -> usize {
        self.0 as usize
    }

    /// Returns whether there is no index.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}
