//! The tree of paths of a comparison, with a value before and after.

use std::hash::{BuildHasher, BuildHasherDefault};

use hashbrown::HashTable;
use rustc_hash::FxHasher;

use super::change::{Change, Side};
use crate::model::Combine;

/// Index into [`Paths::nodes`]; 0 is the empty path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PathId(pub u32);

/// An element below a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// The parent path.
    pub parent: PathId,
    /// Index of the element; unused for the root.
    pub name: u32,
}

/// The merged paths of both recordings.
#[derive(Debug)]
pub struct Paths {
    /// Parents come before children; node 0 is the root.
    pub nodes: Vec<Node>,
    /// The own value of each node.
    pub own: Vec<Change>,
    /// The effective numbers of the own values ([`crate::model::Spread`]), times [`EFFECTIVE`];
    /// empty if all blocks were recorded in both recordings.
    pub effective: Vec<Change>,
}

/// Factor of effective numbers, so that they can be added as integers.
pub const EFFECTIVE: f64 = 1024.0;

/// The tree while paths are added.
pub(super) struct Trie {
    paths: Paths,
    /// Nodes by parent and name, with only four bytes each, because there are millions.
    index: HashTable<u32>,
}

/// Returns the hash of a node.
fn hash(node: &Node) -> u64 {
    let hasher = BuildHasherDefault::<FxHasher>::default();
    hasher.hash_one(u64::from(node.parent.0) << 32 | u64::from(node.name))
}

impl Trie {
    pub(super) fn new() -> Trie {
        let nodes = vec![Node { parent: PathId(0), name: 0 }];
        let paths = Paths { nodes, own: vec![Change::default()], effective: Vec::new() };
        Trie { paths, index: HashTable::new() }
    }

    /// Reserves memory for this many further nodes.
    pub(super) fn reserve(&mut self, more: usize) {
        self.paths.nodes.reserve(more);
        self.paths.own.reserve(more);
        let nodes = &self.paths.nodes;
        self.index.reserve(more, |&id| hash(&nodes[id as usize]));
    }

    /// Returns the path of a name below another path.
    pub(super) fn child(&mut self, parent: PathId, name: u32) -> PathId {
        let node = Node { parent, name };
        let Paths { nodes, own, .. } = &mut self.paths;
        let same = |&id: &u32| nodes[id as usize] == node;
        let of = |&id: &u32| hash(&nodes[id as usize]);
        let vacant = match self.index.entry(hash(&node), same, of) {
            hashbrown::hash_table::Entry::Occupied(found) => return PathId(*found.get()),
            hashbrown::hash_table::Entry::Vacant(vacant) => vacant,
        };
        let id = nodes.len() as u32;
        vacant.insert(id);
        nodes.push(node);
        own.push(Change::default());
        PathId(id)
    }

    /// Returns the last name of a path; `None` for the root.
    pub(super) fn name(&self, path: PathId) -> Option<u32> {
        (path != PathId(0)).then(|| self.paths.nodes[path.0 as usize].name)
    }

    /// Adds to the own value of a path.
    pub(super) fn add(&mut self, path: PathId, side: Side, value: u64, combine: Combine) {
        let value_of = self.paths.own[path.0 as usize].of_mut(side);
        *value_of = combine.of(*value_of, value);
    }

    /// Adds to the effective number of the own value of a path.
    pub(super) fn add_effective(&mut self, path: PathId, side: Side, number: f32) {
        let Paths { nodes, effective, .. } = &mut self.paths;
        effective.resize(nodes.len(), Change::default());
        let sum = effective[path.0 as usize].of_mut(side);
        *sum = sum.saturating_add((f64::from(number) * EFFECTIVE).round() as u64);
    }

    /// Replaces the names of all paths. Names that satisfy `joins` are merged with a parent of the
    /// same name.
    pub(super) fn rename(&mut self, new: &[u32], joins: impl Fn(u32) -> bool, combine: Combine) {
        let old = std::mem::replace(self, Trie::new()).finish();
        self.reserve(old.nodes.len());
        let mut path_of = vec![PathId(0)];
        self.paths.own[0] = old.own[0];
        self.paths.effective.extend(old.effective.first());
        for (node, &own) in old.nodes.iter().zip(&old.own).skip(1) {
            let (parent, name) = (path_of[node.parent.0 as usize], new[node.name as usize]);
            let path = if joins(name) && self.name(parent) == Some(name) {
                parent
            } else {
                self.child(parent, name)
            };
            self.paths.own[path.0 as usize].add(own, combine);
            if let Some(&effective) = old.effective.get(path_of.len()) {
                self.paths.effective.resize(self.paths.nodes.len(), Change::default());
                self.paths.effective[path.0 as usize].add(effective, Combine::Sum);
            }
            path_of.push(path);
        }
    }

    pub(super) fn finish(mut self) -> Paths {
        if !self.paths.effective.is_empty() {
            self.paths.effective.resize(self.paths.nodes.len(), Change::default());
        }
        self.paths
    }
}

impl Paths {
    /// Returns the names of a path, innermost first.
    pub fn names_of(&self, path: PathId) -> impl Iterator<Item = u32> {
        let mut at = path;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at.0 as usize).filter(|_| at != PathId(0))?;
            at = node.parent;
            Some(node.name)
        })
    }

    /// Returns the sum of each node over itself and its descendants.
    pub fn inclusive(&self, combine: Combine) -> Vec<Change> {
        self.sums(&self.own, combine)
    }

    /// Returns, for a value of each node, its sum over the node and its descendants.
    pub fn sums(&self, own: &[Change], combine: Combine) -> Vec<Change> {
        let mut inclusive = own.to_vec();
        for index in (1..inclusive.len()).rev() {
            let below = inclusive[index];
            inclusive[self.nodes[index].parent.0 as usize].add(below, combine);
        }
        inclusive
    }

    /// Calls `enter` and `leave` for every node except the root, in depth-first order.
    pub(super) fn walk(&self, mut enter: impl FnMut(PathId), mut leave: impl FnMut(PathId)) {
        let mut first_child = vec![0u32; self.nodes.len()];
        let mut next = vec![0u32; self.nodes.len()];
        for (id, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let first = &mut first_child[node.parent.0 as usize];
            next[id] = std::mem::replace(first, id as u32);
        }
        let mut at = first_child[0];
        while at != 0 {
            enter(PathId(at));
            if first_child[at as usize] != 0 {
                at = first_child[at as usize];
                continue;
            }
            leave(PathId(at));
            while at != 0 && next[at as usize] == 0 {
                at = self.nodes[at as usize].parent.0;
                if at != 0 {
                    leave(PathId(at));
                }
            }
            at = next[at as usize];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_enters_and_leaves_every_path() {
        let mut growing = Trie::new();
        let a = growing.child(PathId(0), 7);
        let b = growing.child(a, 8);
        growing.child(b, 9);
        growing.child(a, 10);
        growing.child(PathId(0), 8);
        assert_eq!(growing.child(a, 8), b);
        let paths = growing.finish();
        let steps = std::cell::RefCell::new(String::new());
        let note = |sign: char, id: PathId| {
            let name = paths.nodes[id.0 as usize].name;
            steps.borrow_mut().push_str(&format!("{sign}{name}"));
        };
        paths.walk(|id| note('+', id), |id| note('-', id));
        assert_eq!(steps.into_inner(), "+7+8+9-9-8+10-10-7+8-8");
    }
}
