//! JSON lists that are written while they are iterated.

use serde::ser::{Serialize, Serializer};

/// A list that serializes the items of an iterator one by one.
pub(crate) struct Seq<I>(I);

/// Returns a list of the items.
pub(crate) fn seq<I: Iterator + Clone>(items: I) -> Seq<I> {
    Seq(items)
}

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Seq<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}
