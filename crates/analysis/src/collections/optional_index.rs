//! An index that may be missing, in the size of an index.

/// An index or none, as the index plus one or 0: a profile has millions of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OptionalIndex(u32);

impl OptionalIndex {
    /// No index.
    pub const NONE: OptionalIndex = OptionalIndex(0);

    /// This index. The largest number is no index.
    pub const fn from_index(index: u32) -> OptionalIndex {
        OptionalIndex(index.wrapping_add(1))
    }

    /// The index whose slot this is; see [`OptionalIndex::slot`].
    pub const fn from_slot(slot: u32) -> OptionalIndex {
        OptionalIndex(slot)
    }

    /// The index.
    ///
    /// ```
    /// use heaptide_analysis::collections::optional_index::OptionalIndex;
    /// assert_eq!(OptionalIndex::from_slot(3).get(), Some(2));
    /// assert_eq!(OptionalIndex::NONE.get(), None);
    /// ```
    pub const fn get(self) -> Option<u32> {
        self.0.checked_sub(1)
    }

    /// Its place in a table that begins with an entry for none: the index plus one, or 0.
    pub const fn slot(self) -> usize {
        self.0 as usize
    }

    /// Whether there is no index.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}
