//! Inserts the Python frames of a profile into native stacks: those that a frame of the interpreter
//! executes come below it.
//!
//! All contents of a profile are untrusted: nodes can refer to anything, and the number of
//! assembled frames is limited to a multiple of the number of nodes.

use std::sync::Arc;

use heaptide_format as format;
use heaptide_format::Kind;
use rustc_hash::FxHashMap;

use super::extents::Walk;
use super::texts::Texts;
use crate::collections::optional_index::OptionalIndex;
use crate::collections::sparse_array::SparseArray;

/// A line of a Python function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PythonLine {
    /// The qualified name of the function, before CPython 3.11 the name.
    pub function: Arc<str>,
    /// The file; empty if there is none.
    pub file: Arc<str>,
    /// The line; 0 if the instruction has none.
    pub line: u32,
}

impl PythonLine {
    /// Returns whether it is of the frame that CPython since 3.12 inserts where a class is called,
    /// before that of its `__init__`, and that tracebacks omit: `__init__` is also its file.
    fn is_inserted(&self) -> bool {
        &*self.function == "__init__" && self.file == self.function
    }
}

/// The lines of a profile by their ids in the file; without those that are not in stacks.
pub(super) struct Lines {
    pub(super) lines: Vec<PythonLine>,
    by_id: SparseArray,
}

impl Lines {
    pub(super) fn read(walk: &Walk, texts: &mut Texts) -> Lines {
        let mut lines = Lines { lines: Vec::new(), by_id: SparseArray::default() };
        for (_, record, offset) in walk.records::<format::PythonLine>(Kind::PythonLines) {
            let line = PythonLine {
                function: texts.get(record.function),
                file: texts.get(record.file),
                line: record.line,
            };
            if line.is_inserted() {
                continue;
            }
            lines.lines.push(line);
            let index = OptionalIndex::from_slot(lines.lines.len() as u32);
            lines.by_id.set((offset / format::PYTHON_LINE_GRANULE) as u32, index);
        }
        lines
    }
}

/// A node as stored in the file, parents first.
#[derive(Clone, Copy)]
pub(super) struct Raw {
    /// Slot of the parent among the nodes.
    pub(super) parent: OptionalIndex,
    pub(super) key: u64,
    pub(super) flags: u32,
}

impl Raw {
    /// Returns whether it is a Python frame other than the root.
    fn is_python_frame(&self) -> bool {
        self.flags & format::NODE_PYTHON != 0 && self.key != format::PYTHON_ROOT
    }

    /// Returns whether it is a native frame.
    fn is_native(&self) -> bool {
        self.flags & (format::NODE_PYTHON | format::NODE_PYTHON_STACK) == 0
    }

    fn is_interpreter(&self) -> bool {
        self.flags & format::NODE_INTERPRETER != 0
    }

    fn is_entry(&self) -> bool {
        self.key & format::PYTHON_ENTRY != 0
    }
}

/// A frame of an assembled stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// The native frame of this node.
    Native(u32),
    /// The frame of the interpreter of this node; Python frames follow.
    Interpreter(u32),
    /// The Python line with this index.
    Python(u32),
}

/// A frame of the interpreter with the native frames below it, and the Python frames that it
/// executes.
#[derive(Clone, Copy)]
struct Piece {
    /// The innermost of the native frames; the interpreter's own if there are none.
    innermost: OptionalIndex,
    /// None if there is no such frame, so that the Python frames are the outermost ones.
    interpreter: OptionalIndex,
    /// The innermost Python frame.
    python: u32,
    /// The outermost Python frame; none for all remaining ones.
    entry: OptionalIndex,
}

/// Assembles stacks with Python frames, as paths of a tree that the caller builds. Stacks share
/// most of their outer frames, so the result for a frame of the interpreter with the same innermost
/// Python frame is reused.
pub(super) struct Assembly<'a> {
    nodes: &'a [Raw],
    lines: &'a Lines,
    /// Slot of the node by id in the file.
    by_id: &'a SparseArray,
    /// Remaining number of frames that may be visited.
    room: usize,
    /// By node, the first one outwards from it: for a native node the first frame of the
    /// interpreter, for a Python node the first entry.
    first: Vec<OptionalIndex>,
    /// By slot of a frame of the interpreter and innermost Python frame: the tree's node of the
    /// latter.
    known: FxHashMap<(u32, u32), u32>,
    /// Buffer of [`Assembly::run`].
    path: Vec<u32>,
    /// Buffer of [`Assembly::node`].
    pieces: Vec<Piece>,
}

impl<'a> Assembly<'a> {
    pub(super) fn new(nodes: &'a [Raw], lines: &'a Lines, by_id: &'a SparseArray) -> Assembly<'a> {
        let mut first: Vec<OptionalIndex> = Vec::with_capacity(nodes.len());
        for (raw, index) in nodes.iter().zip(1..) {
            let is_python = raw.flags & format::NODE_PYTHON != 0;
            let is_first = if is_python { raw.is_entry() } else { raw.is_interpreter() };
            let outer = raw.parent.get().and_then(|parent| first.get(parent as usize));
            let outer = outer.copied().unwrap_or(OptionalIndex::NONE);
            first.push(if is_first { OptionalIndex::from_slot(index) } else { outer });
        }
        let room = room_for(nodes.len());
        Assembly {
            nodes,
            lines,
            by_id,
            room,
            first,
            known: FxHashMap::default(),
            path: Vec::new(),
            pieces: Vec::new(),
        }
    }

    /// Returns the tree's node of a stack with Python frames; `None` if it is not one, or the limit
    /// of frames is reached. `native` has the tree's nodes of native stacks by slot; `child`
    /// returns the tree's node of a frame below another.
    pub(super) fn node(
        &mut self,
        node: u32,
        native: &[OptionalIndex],
        child: &mut impl FnMut(u32, Part) -> u32,
    ) -> Option<u32> {
        let raw = self.nodes.get(node as usize)?;
        if raw.flags & format::NODE_PYTHON_STACK == 0 || self.room == 0 {
            return None;
        }
        let (mut frame, mut python) = (
            self.only(raw.parent, Raw::is_native),
            self.only(self.by_id.get(raw.key as u32), Raw::is_python_frame),
        );
        // Innermost first: each frame of the interpreter executes the Python frames up to an entry.
        let mut pieces = std::mem::take(&mut self.pieces);
        let (mut at, mut is_known) = loop {
            let Some(innermost) = python.get() else {
                break (native[frame.slot()].slot() as u32, false);
            };
            let piece = self.piece(frame, innermost);
            pieces.push(piece);
            if let Some(&known) = self.known.get(&piece.name()) {
                break (known, true);
            }
            let Some(interpreter) = piece.interpreter.get() else {
                break (0, false);
            };
            frame = self.outer(interpreter, Raw::is_native);
            let entry = piece.entry.get();
            python = entry.map_or(OptionalIndex::NONE, |at| self.outer(at, Raw::is_python_frame));
        };
        for piece in pieces.drain(..).rev() {
            if !std::mem::take(&mut is_known) {
                at = self.executed(piece, at, child);
            }
            at = self.run(piece.innermost, piece.interpreter, at, &mut |at, node| {
                child(at, Part::Native(node))
            });
        }
        self.pieces = pieces;
        Some(at)
    }

    /// Returns the native frames from this one outwards up to a frame of the interpreter, which
    /// executes this Python frame.
    fn piece(&self, frame: OptionalIndex, python: u32) -> Piece {
        let first = |at: OptionalIndex| {
            at.get().map_or(OptionalIndex::NONE, |index| self.first[index as usize])
        };
        let interpreter = first(frame);
        let further = interpreter.get().map(|at| first(self.outer(at, Raw::is_native)));
        // If this is the outermost frame of the interpreter, it executes all remaining Python
        // frames.
        let is_last = further.is_none_or(|further| further.get().is_none());
        let entry = if is_last { OptionalIndex::NONE } else { self.first[python as usize] };
        Piece { innermost: frame, interpreter, python, entry }
    }

    /// Returns the tree's node of the innermost Python frame of a piece, whose outer frames end at
    /// `at`.
    fn executed(
        &mut self,
        piece: Piece,
        mut at: u32,
        child: &mut impl FnMut(u32, Part) -> u32,
    ) -> u32 {
        if let Some(interpreter) = piece.interpreter.get() {
            at = child(at, Part::Interpreter(interpreter));
        }
        let outside = piece
            .entry
            .get()
            .map_or(OptionalIndex::NONE, |entry| self.outer(entry, Raw::is_python_frame));
        let (lines, nodes) = (self.lines, self.nodes);
        let python = OptionalIndex::from_slot(piece.python + 1);
        at = self.run(python, outside, at, &mut |at, node| {
            let line = lines.by_id.get(nodes[node as usize].key as u32).get();
            line.map_or(at, |line| child(at, Part::Python(line)))
        });
        self.known.insert(piece.name(), at);
        self.room = self.room.saturating_sub(KNOWN_FRAMES);
        at
    }

    /// Visits the nodes of a kind from `to` (exclusive) inwards to `from`.
    fn run(
        &mut self,
        from: OptionalIndex,
        to: OptionalIndex,
        mut at: u32,
        child: &mut impl FnMut(u32, u32) -> u32,
    ) -> u32 {
        let Some(innermost) = from.get() else {
            return at;
        };
        let is_native = self.nodes[innermost as usize].is_native();
        let is_of = if is_native { Raw::is_native } else { Raw::is_python_frame };
        let mut path = std::mem::take(&mut self.path);
        let mut next = from;
        while let Some(index) = next.get().filter(|_| next != to) {
            path.push(index);
            next = self.outer(index, is_of);
        }
        self.room = self.room.saturating_sub(path.len());
        for index in path.drain(..).rev() {
            at = child(at, index);
        }
        self.path = path;
        at
    }

    /// Returns the parent node, if it is of this kind.
    fn outer(&self, node: u32, is_of: fn(&Raw) -> bool) -> OptionalIndex {
        self.only(self.nodes[node as usize].parent, is_of)
    }

    /// Returns a node, if it is of this kind.
    fn only(&self, at: OptionalIndex, is_of: fn(&Raw) -> bool) -> OptionalIndex {
        let is = at.get().and_then(|index| self.nodes.get(index as usize)).is_some_and(is_of);
        if is { at } else { OptionalIndex::NONE }
    }
}

impl Piece {
    fn name(self) -> (u32, u32) {
        (self.interpreter.slot() as u32, self.python)
    }
}

/// Number of visited frames that an entry of `known` counts as, because it takes memory.
const KNOWN_FRAMES: usize = 64;

/// Returns the maximum number of visited frames for this number of nodes: beyond it, stacks have
/// only their native frames. Real programs visit a few frames per node.
fn room_for(nodes: usize) -> usize {
    const FRAMES_A_NODE: usize = 1 << 12;
    nodes.saturating_mul(FRAMES_A_NODE).saturating_add(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{
        NODE_INTERPRETER, NODE_PYTHON, NODE_PYTHON_STACK, PYTHON_ENTRY, PYTHON_FRAME, PYTHON_STACK,
    };

    /// Returns the frames of the last node's stack. Node `index` has the id `index + 1`, and so has
    /// line `index`.
    fn frames(nodes: &[Raw], lines: u32, room: usize) -> Option<Vec<Part>> {
        let ids = |count: u32| {
            let mut ids = SparseArray::default();
            (1..=count).for_each(|id| ids.set(id, OptionalIndex::from_slot(id)));
            ids
        };
        let lines = Lines { lines: Vec::new(), by_id: ids(lines) };
        let by_id = ids(nodes.len() as u32);
        let mut assembly = Assembly::new(nodes, &lines, &by_id);
        assembly.room = room;
        let mut tree: Vec<(u32, Option<Part>)> = vec![(0, None)];
        let mut child = |at: u32, part: Part| {
            tree.push((at, Some(part)));
            tree.len() as u32 - 1
        };
        let mut native = vec![OptionalIndex::NONE];
        for (raw, index) in nodes.iter().zip(0..) {
            let at = native[raw.parent.slot()].slot() as u32;
            let at = if raw.is_native() { child(at, Part::Native(index)) } else { at };
            native.push(OptionalIndex::from_slot(at));
        }
        // The second call must find the same result in `known`.
        let [first, second] =
            [(); 2].map(|()| assembly.node(nodes.len() as u32 - 1, &native, &mut child));
        let path = |at: u32| {
            let outwards = std::iter::successors(Some(tree[at as usize]), |&(at, part)| {
                part.map(|_| tree[at as usize])
            });
            let mut parts: Vec<_> = outwards.filter_map(|(_, part)| part).collect();
            parts.reverse();
            parts
        };
        if room > nodes.len() + KNOWN_FRAMES * nodes.len() {
            assert_eq!(first.map(path), second.map(path));
        }
        first.map(path)
    }

    fn node(parent: u32, key: u64, flags: u32) -> Raw {
        Raw { parent: OptionalIndex::from_slot(parent), key, flags }
    }

    /// Returns a path of native frames, true for those of the interpreter; a root and a path of
    /// Python frames, true for entries; and the stack with both.
    fn stack(native: &[bool], python: &[bool]) -> Vec<Raw> {
        let mut nodes = Vec::new();
        for &is_interpreter in native {
            let flags = if is_interpreter { NODE_INTERPRETER } else { 0 };
            nodes.push(node(nodes.len() as u32, 0x1000, flags));
        }
        nodes.push(node(0, PYTHON_FRAME, NODE_PYTHON));
        for (&is_entry, line) in python.iter().zip(1..) {
            let entry = if is_entry { PYTHON_ENTRY } else { 0 };
            nodes.push(node(nodes.len() as u32, PYTHON_FRAME | entry | line, NODE_PYTHON));
        }
        let innermost = nodes.len() as u64;
        nodes.push(node(native.len() as u32, PYTHON_STACK | innermost, NODE_PYTHON_STACK));
        nodes
    }

    /// Returns the frames as letters: native ones `n`, of the interpreter `i`, Python lines as
    /// digits.
    fn shown(native: &[bool], python: &[bool]) -> String {
        let frames = frames(&stack(native, python), python.len() as u32, 10_000);
        let letter = |part: &Part| match part {
            Part::Native(_) => 'n',
            Part::Interpreter(_) => 'i',
            Part::Python(line) => char::from_digit(line + 1, 10).unwrap_or('?'),
        };
        frames.expect("frames").iter().map(letter).collect()
    }

    #[test]
    fn the_frame_before_that_of_init_is_recognised() {
        let line = |function: &str, file: &str| PythonLine {
            function: function.into(),
            file: file.into(),
            line: 0,
        };
        assert!(line("__init__", "__init__").is_inserted());
        assert!(!line("Store.__init__", "store.py").is_inserted());
        assert!(!line("[unknown Python code]", "").is_inserted());
    }

    #[test]
    fn python_frames_follow_the_frame_that_executes_them() {
        let (n, i, entry, inner) = (false, true, true, false);
        assert_eq!(shown(&[n, i, n], &[entry, inner]), "ni12n");
        assert_eq!(shown(&[n, i, n, i, n], &[entry, inner, entry]), "ni12ni3n");
        assert_eq!(shown(&[i, i], &[entry, entry, inner]), "i1i23");
    }

    #[test]
    fn where_numbers_differ_the_inner_ones_belong_together() {
        let (n, i, entry) = (false, true, true);
        // A thread state without the outer frames, as on a coroutine's own stack.
        assert_eq!(shown(&[i, n, i], &[entry]), "nni1");
        // Outer native frames were cut.
        assert_eq!(shown(&[n, i], &[entry, entry]), "ni12");
        assert_eq!(shown(&[n, n], &[entry, entry]), "12nn", "none is marked");
        assert_eq!(shown(&[], &[entry]), "1");
    }

    #[test]
    fn damaged_nodes_end_a_path() {
        assert_eq!(frames(&stack(&[false; 9], &[true; 9]), 9, 0), None, "no room");
        // References to missing lines are not frames.
        let found = frames(&stack(&[true], &[true, false]), 1, 10_000);
        assert_eq!(found, Some(vec![Part::Interpreter(0), Part::Python(0)]));
        // A stack as the parent of a stack, or as a Python frame.
        let nested = [node(0, PYTHON_STACK | 1, NODE_PYTHON_STACK); 2];
        assert_eq!(frames(&nested, 1, 100), Some(Vec::new()));
        let plain = [node(0, 0x1000, 0)];
        assert_eq!(frames(&plain, 1, 100), None, "no stack with Python frames");
    }
}
