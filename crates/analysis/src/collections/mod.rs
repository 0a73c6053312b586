//! Data structures used by several layers: a trie, a sparse array and optional indices.

pub mod optional_index;
pub(crate) mod sparse_array;
pub mod trie;
