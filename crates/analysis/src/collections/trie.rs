//! A trie: a tree whose nodes are found by their parent and a key.

use rustc_hash::FxHashMap;

/// A node below another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrieNode {
    /// Index of the node above; the root's is its own.
    pub parent: u32,
    /// What it stands for.
    pub key: u32,
}

/// A tree of keys, each once below one node. Node 0 is the root; nodes come after their parents.
///
/// Most nodes have one below them, or none. Only further ones are in a map, which would be far from
/// any cache with all of millions.
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
    /// By node: the one below it that came first; 0 if none did.
    first_below: Vec<u32>,
    further: FxHashMap<(u32, u32), u32>,
}

impl Trie {
    /// A root with room for so many nodes.
    pub fn with_room(nodes: usize) -> Trie {
        let mut tree = Trie {
            nodes: Vec::with_capacity(nodes + 1),
            first_below: Vec::with_capacity(nodes + 1),
            further: FxHashMap::default(),
        };
        tree.push(TrieNode { parent: 0, key: 0 });
        tree
    }

    /// The node of a key below another; new unless it is there.
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

    /// The nodes so far.
    pub fn nodes(&self) -> &[TrieNode] {
        &self.nodes
    }

    /// The nodes, and no way to find them any more.
    pub fn into_nodes(self) -> Vec<TrieNode> {
        self.nodes
    }

    fn push(&mut self, node: TrieNode) {
        self.nodes.push(node);
        self.first_below.push(0);
    }
}
