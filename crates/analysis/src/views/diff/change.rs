//! A value before and after.

use crate::model::Combine;

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The first.
    Before,
    /// The second.
    After,
}

/// A value of both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Of the first.
    pub before: u64,
    /// Of the second.
    pub after: u64,
}

impl Change {
    /// Returns how much more it became.
    ///
    /// ```
    /// use heaptide_analysis::views::diff::Change;
    /// assert_eq!(Change { before: 5, after: 3 }.amount(), -2);
    /// ```
    pub fn amount(self) -> i128 {
        i128::from(self.after) - i128::from(self.before)
    }

    /// Adds another to both.
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
