//! The stack tree of a profile, and the places in code that it goes through.

use heaptide_format as format;
use heaptide_format::Kind;
use rustc_hash::FxHashMap;

use super::extents::Walk;
use super::parents_first::parents_first;
use super::parsed::{Module, NO_MODULE, Node, Place};
use crate::collections::optional_index::OptionalIndex;
use crate::collections::sparse_array::SparseArray;

/// The stack tree with callers first, and the way from ids in the file to it.
pub(super) struct Nodes {
    pub(super) nodes: Vec<Node>,
    pub(super) places: Vec<Place>,
    /// Index into `nodes`.
    pub(super) by_id: SparseArray,
}

impl Nodes {
    pub(super) fn read(walk: &Walk, modules: &[Module], by_index: &FxHashMap<u64, u32>) -> Nodes {
        let mut keys = Vec::new();
        let mut parents = Vec::new();
        let mut by_id = SparseArray::default();
        for (_, node, offset) in walk.records::<format::Node>(Kind::Nodes) {
            keys.push((node.key, node.flags));
            parents.push(node.parent);
            let index = OptionalIndex::from_slot(keys.len() as u32);
            by_id.set((offset / format::NODE_GRANULE) as u32, index);
        }
        parents.iter_mut().for_each(|parent| *parent = by_id.get(*parent).slot() as u32);
        let mut places = Places::default();
        let mut nodes = Vec::with_capacity(keys.len());
        if parents.iter().zip(0..).all(|(&parent, index)| parent <= index) {
            // As one thread alone writes them, and so the most.
            let place = |key: &(u64, u32)| places.id(place(*key, modules, by_index));
            let parent_of = OptionalIndex::from_slot;
            let node = |(&parent, place)| Node { parent: parent_of(parent), place };
            nodes.extend(parents.iter().zip(keys.iter().map(place)).map(node));
            return Nodes { nodes, places: places.list, by_id };
        }
        // By slot of the index in the file, the index in `nodes`.
        let mut position = vec![OptionalIndex::NONE; keys.len() + 1];
        for (index, parent) in parents_first(&parents) {
            let place = places.id(place(keys[index as usize], modules, by_index));
            let parent = position[parent as usize];
            nodes.push(Node { parent, place });
            position[index as usize + 1] = OptionalIndex::from_slot(nodes.len() as u32);
        }
        by_id.change(|index| position[index.slot()]);
        Nodes { nodes, places: places.list, by_id }
    }
}

/// Distinct places, numbered as they come.
#[derive(Default)]
struct Places {
    list: Vec<Place>,
    ids: FxHashMap<Place, u32>,
}

impl Places {
    fn id(&mut self, place: Place) -> u32 {
        *self.ids.entry(place).or_insert_with(|| {
            self.list.push(place);
            (self.list.len() - 1) as u32
        })
    }
}

/// The place of a node's key and flags.
fn place((key, flags): (u64, u32), modules: &[Module], by_index: &FxHashMap<u64, u32>) -> Place {
    let address = key & ((1 << format::ADDRESS_BITS) - 1);
    let number = key >> format::ADDRESS_BITS;
    let is_mark = number == 0 && address < format::PAGE;
    let exact = is_mark || flags & format::NODE_EXACT_PC != 0;
    let address = if exact { address } else { address.saturating_sub(1) };
    match by_index.get(&number) {
        Some(&module) => {
            let bias = modules[module as usize].bias;
            Place { module, offset: address.wrapping_sub(bias) }
        }
        None => Place { module: NO_MODULE, offset: address },
    }
}
