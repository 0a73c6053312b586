//! A trie: a tree whose nodes are identified by their parent and a key.

use rustc_hash::FxHashMap;

/// A node of a trie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrieNode {
    /// Index of the parent; the root's is its own.
    pub parent: u32,
    /// The key, unique below its parent.
    pub key: u32,
}

/// A tree of keys. Node 0 is the root; nodes follow their parents.
///
/// Most nodes have at most one child. Only further children are in a map; a map of all of millions
/// of nodes would not fit into any cache.
///
/// ```
/// use heaptide_analysis::collections::trie::Trie;
/// let mut tree = Trie::with_room(2);
/// let main = tree.child(0, 7);
/// let parse = tree.child(main, 8);
/// assert_eq!((tree.child(0, 7), tree.child(main, 8)), (main, parse));
/// assert_ne!(tree.child(main, 9), parse);
/// assert_eq!(tree.nodes().len(), 4);
/// ```
#[derive(Debug)]
pub struct Trie {
    nodes: Vec<TrieNode>,
    /// First child of each node; 0 if it has none.
    first_below: Vec<u32>,
    further: FxHashMap<(u32, u32), u32>,
}

impl Trie {
    /// Returns a root with room for `nodes` further nodes.
    pub fn with_room(nodes: usize) -> Trie {
        let mut tree = Trie {
            nodes: Vec::with_capacity(nodes + 1),
            first_below: Vec::with_capacity(nodes + 1),
            further: FxHashMap::default(),
        };
        tree.push(TrieNode { parent: 0, key: 0 });
        tree
    }

    /// Returns the child of `parent` with this key, and creates it if it does not exist.
    pub fn child(&mut self, parent: u32, key: u32) -> u32 {
        let new = self.nodes.len() as u32;
        let first = &mut self.first_below[parent as usize];
        let child = match *first {
            0 => {
                *first = new;
                new
            }
            first if self.nodes[first as usize].key == key => first,
            _ => *self.further.entry((parent, key)).or_insert(new),
        };
        if child == new {
            self.push(TrieNode { parent, key });
        }
        child
    }

    /// Returns the nodes so far.
    pub fn nodes(&self) -> &[TrieNode] {
        &self.nodes
    }

    /// Returns the nodes and drops the index.
    pub fn into_nodes(self) -> Vec<TrieNode> {
        self.nodes
    }

    fn push(&mut self, node: TrieNode) {
        self.nodes.push(node);
        self.first_below.push(0);
    }
}
