//! Reads the stack tree of a profile, and the places in code that it refers to.

use heaptide_format as format;
use heaptide_format::Kind;
use rustc_hash::FxHashMap;

use super::extents::Walk;
use super::parents_first::parents_first;
use super::parsed::{Module, NO_MODULE, Node, PYTHON, Place};
use super::python::{Assembly, Lines, Part, PythonLine, Raw};
use super::strings::Strings;
use super::texts::Texts;
use crate::collections::optional_index::OptionalIndex;
use crate::collections::sparse_array::SparseArray;
use crate::collections::trie::Trie;

/// The stack tree, parents first, and the mapping of ids in the file to its nodes.
pub(super) struct Nodes {
    pub(super) nodes: Vec<Node>,
    pub(super) places: Vec<Place>,
    pub(super) python: Vec<PythonLine>,
    /// Creation times of nodes of generated code: see [`super::parsed::Profile::made`].
    pub(super) made: Vec<(u32, u32)>,
    /// Indices into `nodes`.
    pub(super) by_id: SparseArray,
}

impl Nodes {
    /// Returns the places of native frames, without stacks.
    pub(super) fn places(walk: &Walk, modules: &[Module], by_index: &FxHashMap<u64, u32>) -> Nodes {
        let nodes = walk.records::<format::Node>(Kind::Nodes);
        let python = format::NODE_PYTHON | format::NODE_PYTHON_STACK;
        let native = nodes.filter(|(_, node, _)| node.flags & python == 0);
        let mut places = Places::default();
        for (_, node, _) in native {
            places.id(place((node.key, node.flags), modules, by_index));
        }
        Nodes {
            nodes: Vec::new(),
            places: places.list,
            python: Vec::new(),
            made: Vec::new(),
            by_id: SparseArray::default(),
        }
    }

    pub(super) fn read(
        walk: &Walk,
        strings: &Strings,
        modules: &[Module],
        by_index: &FxHashMap<u64, u32>,
    ) -> Nodes {
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
        let raw = |parent, &(key, flags): &(u64, u32)| Raw { parent, key, flags };
        let mut nodes: Vec<Raw> = Vec::with_capacity(keys.len());
        if parents.iter().zip(0..).all(|(&parent, index)| parent <= index) {
            // True for profiles written by a single thread, which are most.
            let parents = parents.iter().map(|&parent| OptionalIndex::from_slot(parent));
            nodes.extend(parents.zip(&keys).map(|(parent, key)| raw(parent, key)));
        } else {
            // Index in `nodes` by slot of the index in the file.
            let mut position = vec![OptionalIndex::NONE; keys.len() + 1];
            for (index, parent) in parents_first(&parents) {
                nodes.push(raw(position[parent as usize], &keys[index as usize]));
                position[index as usize + 1] = OptionalIndex::from_slot(nodes.len() as u32);
            }
            by_id.change(|index| position[index.slot()]);
        }
        let mut places = Places::default();
        let mut place = |raw: &Raw| places.id(place((raw.key, raw.flags), modules, by_index));
        if nodes.iter().any(|raw| raw.flags & format::NODE_PYTHON_STACK != 0) {
            let lines = Lines::read(walk, &mut Texts::new(strings, walk.length()));
            return with_python(&nodes, lines, by_id, modules, by_index);
        }
        let made = nodes.iter().zip(0..).filter_map(|(raw, index)| Some((index, made(raw)?)));
        let made = made.collect();
        let nodes = nodes.iter().map(|raw| Node { parent: raw.parent, place: place(raw) });
        let nodes = nodes.collect();
        Nodes { nodes, places: places.list, python: Vec::new(), made, by_id }
    }
}

/// Returns the tree with Python frames inserted into their stacks.
fn with_python(
    raw: &[Raw],
    lines: Lines,
    mut by_id: SparseArray,
    modules: &[Module],
    by_index: &FxHashMap<u64, u32>,
) -> Nodes {
    let mut places = Places::default();
    let mut tree = Trie::with_room(raw.len());
    let mut times = Vec::new();
    let mut position = vec![OptionalIndex::NONE; raw.len() + 1];
    let most = raw.len().saturating_mul(NODES_A_NODE).saturating_add(1 << 16);
    let mut assembly = Assembly::new(raw, &lines, &by_id);
    // Places by node, as a native frame and as one of the interpreter; and by Python line.
    let mut native = [(); 2].map(|()| vec![OptionalIndex::NONE; raw.len()]);
    let mut python = vec![OptionalIndex::NONE; lines.lines.len()];
    let mut below = |tree: &mut Trie, at: u32, part: Part| {
        let known = match part {
            Part::Native(node) => &mut native[0][node as usize],
            Part::Interpreter(node) => &mut native[1][node as usize],
            Part::Python(line) => &mut python[line as usize],
        };
        if known.is_none() {
            let of_node = |node: u32| {
                let raw = raw[node as usize];
                place((raw.key, raw.flags), modules, by_index)
            };
            *known = OptionalIndex::from_index(places.id(match part {
                Part::Native(node) => of_node(node),
                Part::Interpreter(node) => Place { is_interpreter: true, ..of_node(node) },
                Part::Python(line) => {
                    Place { module: PYTHON, offset: line.into(), is_interpreter: false }
                }
            }));
        }
        let child = tree.child(at, known.get().unwrap_or_default());
        if let Part::Native(node) = part {
            times.extend(made(&raw[node as usize]).map(|time| (child - 1, time)));
        }
        child
    };
    for (index, node) in (0..).zip(raw) {
        if node.flags & format::NODE_PYTHON != 0 {
            continue;
        }
        let is_stack = node.flags & format::NODE_PYTHON_STACK != 0;
        let together = (tree.nodes().len() < most)
            .then(|| assembly.node(index, &position, &mut |at, part| below(&mut tree, at, part)));
        let at = together.flatten().unwrap_or_else(|| {
            let caller = position[node.parent.slot()].slot() as u32;
            // Without room, in a damaged file, only its native frames are kept.
            if is_stack { caller } else { below(&mut tree, caller, Part::Native(index)) }
        });
        position[index as usize + 1] = OptionalIndex::from_slot(at);
    }
    let nodes = tree.into_nodes().into_iter().skip(1);
    let nodes = nodes.map(|n| Node { parent: OptionalIndex::from_slot(n.parent), place: n.key });
    let nodes = nodes.collect();
    by_id.change(|index| position[index.slot()]);
    times.sort_by_key(|&(node, _)| node);
    times.dedup_by_key(|&mut (node, _)| node); // keep the earliest
    Nodes { nodes, places: places.list, python: lines.lines, made: times, by_id }
}

/// Returns the flags of a node of generated code, if they include its creation time.
fn made(raw: &Raw) -> Option<u32> {
    let is_generated = (format::PAGE..1 << format::ADDRESS_BITS).contains(&raw.key);
    (is_generated && format::node_made_ns(raw.flags).is_some()).then_some(raw.flags)
}

/// Maximum number of nodes of assembled stacks per node in the file, a limit for damaged files.
const NODES_A_NODE: usize = 64;

/// Distinct places, numbered in order of occurrence.
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

/// Returns the place of a node's key and flags.
fn place((key, flags): (u64, u32), modules: &[Module], by_index: &FxHashMap<u64, u32>) -> Place {
    let address = key & ((1 << format::ADDRESS_BITS) - 1);
    let number = key >> format::ADDRESS_BITS;
    let is_mark = number == 0 && address < format::PAGE;
    let exact = is_mark || flags & format::NODE_EXACT_PC != 0;
    let address = if exact { address } else { address.saturating_sub(1) };
    match by_index.get(&number) {
        Some(&module) => {
            let bias = modules[module as usize].bias;
            Place { module, offset: address.wrapping_sub(bias), is_interpreter: false }
        }
        None => Place { module: NO_MODULE, offset: address, is_interpreter: false },
    }
}
