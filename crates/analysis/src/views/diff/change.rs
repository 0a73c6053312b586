//! A value before and after.

use crate::model::Combine;

/// One of the two compared processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The first process.
    Before,
    /// The second process.
    After,
}

/// A value in both processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// In the first process.
    pub before: u64,
    /// In the second process.
    pub after: u64,
}

impl Change {
    /// Returns the increase from before to after.
    ///
    /// ```
    /// use heaptide_analysis::views::diff::Change;
    /// assert_eq!(Change { before: 5, after: 3 }.amount(), -2);
    /// ```
    pub fn amount(self) -> i128 {
        i128::from(self.after) - i128::from(self.before)
    }

    /// Combines both values with those of another change.
    pub fn add(&mut self, other: Change, combine: Combine) {
        self.before = combine.of(self.before, other.before);
        self.after = combine.of(self.after, other.after);
    }

    pub(super) fn of_mut(&mut self, side: Side) -> &mut u64 {
        match side {
            Side::Before => &mut self.before,
            Side::After => &mut self.after,
        }
    }
}
