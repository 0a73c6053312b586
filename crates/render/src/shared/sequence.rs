//! Lists of JSON that are written while they are iterated.

use serde::ser::{Serialize, Serializer};

/// Serializes the items of an iterator one after the other.
pub(crate) struct Seq<I>(I);

/// A list of the items.
pub(crate) fn seq<I: Iterator + Clone>(items: I) -> Seq<I> {
    Seq(items)
}

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Seq<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}
