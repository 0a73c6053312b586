//! Data structures that serve several layers: a trie and a sparse array.

pub(crate) mod sparse_array;
pub mod trie;
