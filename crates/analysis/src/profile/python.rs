//! Python frames of a profile, and stacks that have some, with each in its place: those that a
//! native frame of the interpreter executes follow it.
//!
//! As everything in a profile they are untrusted: nodes may refer to anything, and what they are
//! put together to is bounded by a multiple of the nodes that there are.

use std::sync::Arc;

use heaptide_format as format;
use heaptide_format::Kind;

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

/// The lines of a profile, and the way from ids in the file to them.
pub(super) struct Lines {
    pub(super) lines: Vec<PythonLine>,
    by_id: SparseArray,
}

impl Lines {
    pub(super) fn read(walk: &Walk, texts: &mut Texts) -> Lines {
        let mut lines = Lines { lines: Vec::new(), by_id: SparseArray::default() };
        for (_, record, offset) in walk.records::<format::PythonLine>(Kind::PythonLines) {
            lines.lines.push(PythonLine {
                function: texts.get(record.function),
                file: texts.get(record.file),
                line: record.line,
            });
            let index = OptionalIndex::from_slot(lines.lines.len() as u32);
            lines.by_id.set((offset / format::PYTHON_LINE_GRANULE) as u32, index);
        }
        lines
    }
}

/// A node as the file has it, with parents that come first.
#[derive(Clone, Copy)]
pub(super) struct Raw {
    /// Slot of the parent among the nodes.
    pub(super) parent: OptionalIndex,
    pub(super) key: u64,
    pub(super) flags: u32,
}

impl Raw {
    /// Whether it is a Python frame, and not the root of all.
    fn is_python_frame(&self) -> bool {
        self.flags & format::NODE_PYTHON != 0 && self.key != format::PYTHON_ROOT
    }

    /// Whether it is of Python frames, and not of native ones.
    fn is_python(&self) -> bool {
        self.flags & (format::NODE_PYTHON | format::NODE_PYTHON_STACK) != 0
    }
}

/// A frame of a stack that was put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// The native frame of this node.
    Native(u32),
    /// The same of the interpreter, whose Python frames follow.
    Interpreter(u32),
    /// The Python line with this index.
    Python(u32),
}

/// Puts stacks with Python frames together.
pub(super) struct Assembly<'a> {
    pub(super) nodes: &'a [Raw],
    pub(super) lines: &'a Lines,
    /// By node id of the file, the slot of the node.
    pub(super) by_id: &'a SparseArray,
    /// Frames that may still be looked at.
    pub(super) room: usize,
}

impl Assembly<'_> {
    /// Frames of all stacks that are put together for so many nodes: beyond, stacks have their
    /// native frames only. Programs need some hundred a node.
    pub(super) fn room_for(nodes: usize) -> usize {
        const FRAMES_A_NODE: usize = 1 << 12;
        nodes.saturating_mul(FRAMES_A_NODE).saturating_add(1 << 20)
    }

    /// The frames of a stack with Python frames, outermost first; none if it is none, or there is
    /// no more room.
    pub(super) fn frames(&mut self, node: u32) -> Option<Vec<Part>> {
        let raw = self.nodes.get(node as usize)?;
        if raw.flags & format::NODE_PYTHON_STACK == 0 {
            return None;
        }
        let native = self.path(raw.parent, |raw| !raw.is_python())?;
        let python = self.by_id.get(raw.key as u32);
        let python = self.path(python, Raw::is_python_frame)?;
        // From the inside to the outside: each interpreter's frame has those up to an entry.
        let mut python = python.into_iter().peekable();
        let mut frames = Vec::with_capacity(native.len() + python.len());
        let mut native = native.into_iter().peekable();
        while let Some(node) = native.next() {
            let is_interpreter = self.flags(node) & format::NODE_INTERPRETER != 0;
            if !is_interpreter || python.peek().is_none() {
                frames.push(Part::Native(node));
                continue;
            }
            let is_last = !native.clone().any(|n| self.flags(n) & format::NODE_INTERPRETER != 0);
            for inner in python.by_ref() {
                let raw = self.nodes[inner as usize];
                frames.extend(self.line(raw.key));
                // Without further frames of the interpreter, what is left is this one's.
                if raw.key & format::PYTHON_ENTRY != 0 && !is_last {
                    break;
                }
            }
            frames.push(Part::Interpreter(node));
        }
        // Python frames of which no native frame is known are outside of all.
        frames.extend(python.filter_map(|node| self.line(self.nodes[node as usize].key)));
        frames.reverse();
        Some(frames)
    }

    fn flags(&self, node: u32) -> u32 {
        self.nodes[node as usize].flags
    }

    fn line(&self, key: u64) -> Option<Part> {
        self.lines.by_id.get(key as u32).get().map(Part::Python)
    }

    /// The nodes from one to the outermost, of a kind, innermost first.
    fn path(&mut self, from: OptionalIndex, is_of: fn(&Raw) -> bool) -> Option<Vec<u32>> {
        let mut path = Vec::new();
        let mut at = from;
        while let Some(index) = at.get() {
            let raw = self.nodes.get(index as usize)?;
            if !is_of(raw) {
                break;
            }
            self.room = self.room.checked_sub(1)?;
            path.push(index);
            at = raw.parent;
        }
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{
        NODE_INTERPRETER, NODE_PYTHON, NODE_PYTHON_STACK, PYTHON_ENTRY, PYTHON_FRAME, PYTHON_STACK,
    };

    /// Node `index` has the id `index + 1`; line `index` has the id `index + 1`, too.
    fn frames(nodes: &[Raw], lines: u32, room: usize) -> Option<Vec<Part>> {
        let ids = |count: u32| {
            let mut ids = SparseArray::default();
            (1..=count).for_each(|id| ids.set(id, OptionalIndex::from_slot(id)));
            ids
        };
        let lines = Lines { lines: Vec::new(), by_id: ids(lines) };
        let by_id = ids(nodes.len() as u32);
        let mut assembly = Assembly { nodes, lines: &lines, by_id: &by_id, room };
        assembly.frames(nodes.len() as u32 - 1)
    }

    fn node(parent: u32, key: u64, flags: u32) -> Raw {
        Raw { parent: OptionalIndex::from_slot(parent), key, flags }
    }

    /// A path of native frames, true for those of the interpreter; a root and a path of Python
    /// frames, true for entries; and the stack with both.
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

    /// The frames as letters: native ones `n`, of the interpreter `i`, Python lines as digits.
    fn shown(native: &[bool], python: &[bool]) -> String {
        let frames = frames(&stack(native, python), python.len() as u32, 1000);
        let letter = |part: &Part| match part {
            Part::Native(_) => 'n',
            Part::Interpreter(_) => 'i',
            Part::Python(line) => char::from_digit(line + 1, 10).unwrap_or('?'),
        };
        frames.expect("frames").iter().map(letter).collect()
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
        // A thread state that knows none of the outer frames, as of a coroutine's own stack.
        assert_eq!(shown(&[i, n, i], &[entry]), "nni1");
        // Outer native frames were cut.
        assert_eq!(shown(&[n, i], &[entry, entry]), "ni12");
        assert_eq!(shown(&[n, n], &[entry, entry]), "12nn", "none is marked");
        assert_eq!(shown(&[], &[entry]), "1");
    }

    #[test]
    fn damaged_nodes_end_a_path() {
        assert_eq!(frames(&stack(&[false; 9], &[true; 9]), 9, 17), None, "no room");
        // Lines that are not there are no frames.
        let found = frames(&stack(&[true], &[true, false]), 1, 100);
        assert_eq!(found, Some(vec![Part::Interpreter(0), Part::Python(0)]));
        // A stack as the parent of a stack, or as a Python frame.
        let nested = [node(0, PYTHON_STACK | 1, NODE_PYTHON_STACK); 2];
        assert_eq!(frames(&nested, 1, 100), Some(Vec::new()));
        let plain = [node(0, 0x1000, 0)];
        assert_eq!(frames(&plain, 1, 100), None, "no stack with Python frames");
    }
}
