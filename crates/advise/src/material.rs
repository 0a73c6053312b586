//! What rules look at: stacks with their owners, by the line of code that allocates.

use std::cmp::Reverse;

use heaptide_analysis::attribution::{FunctionId, Owners, Role, is_of_libc};
use heaptide_analysis::model::{CodeKind, Frame, FrameId, Measures, Process, StackId};
use heaptide_analysis::views::aggregate::by_stack;
use rustc_hash::FxHashMap;

use crate::finding::Place;

/// What a process had live at several moments, in order of time: its snapshots. Its end is none of
/// them, for there programs free what they had.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// When, nanoseconds from the start of the process.
    pub times_ns: Vec<u64>,
    /// The tables at these moments.
    pub processes: Vec<Process>,
}

/// The sums of a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The stack.
    pub(crate) stack: StackId,
    /// Sums over its sites.
    pub(crate) measures: Measures,
}

/// Stacks that have the line of their owner in common.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The function.
    pub(crate) function: FunctionId,
    /// One of the frames of that line.
    pub(crate) frame: FrameId,
    /// Its stacks.
    pub(crate) rows: Vec<Row>,
    /// Sums over them.
    pub(crate) measures: Measures,
}

/// A process and what rules need of it.
pub(crate) struct Material<'a> {
    pub(crate) process: &'a Process,
    /// Who allocated.
    pub(crate) owners: Owners,
    /// By line of code, those that a finding may be of.
    pub(crate) groups: Vec<Group>,
    /// Earlier states, if there are snapshots.
    pub(crate) history: &'a History,
}

/// What tells lines of one function apart; without lines all of it is one.
type Key = (FunctionId, Option<u32>);

impl<'a> Material<'a> {
    pub(crate) fn of(process: &'a Process, history: &'a History) -> Material<'a> {
        let owners = Owners::of(process);
        let mut groups: Vec<Group> = Vec::new();
        let mut indices: FxHashMap<Key, usize> = FxHashMap::default();
        for (stack, measures) in by_stack(process) {
            let Some(id) = owners.frame(process, stack) else { continue };
            let frame = &process.tables.frames[id.0 as usize];
            let function = owners.functions.of_frame(id);
            if !can_be_advised(process, frame, owners.role(function)) {
                continue;
            }
            let index = *indices.entry((function, frame.line)).or_insert_with(|| {
                let (rows, measures) = (Vec::new(), Measures::default());
                groups.push(Group { function, frame: id, rows, measures });
                groups.len() - 1
            });
            groups[index].measures.add(&measures);
            groups[index].rows.push(Row { stack, measures });
        }
        Material { process, owners, groups, history }
    }

    /// A frame.
    pub(crate) fn frame(&self, id: FrameId) -> &'a Frame {
        &self.process.tables.frames[id.0 as usize]
    }

    /// Whether the owner of a group is a function of Python.
    pub(crate) fn is_python(&self, group: &Group) -> bool {
        self.frame(group.frame).code == CodeKind::Python
    }

    /// The frames inside the owner of a stack, innermost first: what it allocates through.
    pub(crate) fn inside(&self, stack: StackId) -> impl Iterator<Item = &'a Frame> {
        let owner = self.owners.stack(stack);
        let mut at = stack;
        std::iter::from_fn(move || {
            if at == owner || at == StackId(0) {
                return None;
            }
            let node = &self.process.tables.stacks[at.0 as usize];
            at = node.parent;
            Some(self.frame(node.frame))
        })
    }

    /// The place of some rows of a group, of which there is at least one: `weight` finds the
    /// heaviest.
    pub(crate) fn place(&self, rows: &[Row], weight: impl Fn(&Measures) -> u64) -> Option<Place> {
        let heaviest = rows.iter().max_by_key(|row| (weight(&row.measures), Reverse(row.stack)))?;
        let mut measures = Measures::default();
        rows.iter().for_each(|row| measures.add(&row.measures));
        Some(Place {
            frame: self.owners.frame(self.process, heaviest.stack)?,
            stack: heaviest.stack,
            owner: self.owners.stack(heaviest.stack),
            stacks: rows.len(),
            measures,
        })
    }

    /// Whether a number of allocations is a part of all that is worth a finding.
    pub(crate) fn is_many(&self, allocations: u64) -> bool {
        allocations >= ALLOCATIONS_MIN
            && allocations >= self.process.totals.allocations / PART_OF_ALL
    }

    /// Whether bytes are a part of peak usage that is worth a finding.
    pub(crate) fn is_much(&self, bytes: u64) -> bool {
        bytes >= BYTES_MIN && bytes >= self.process.totals.peak_bytes / PART_OF_ALL
    }

    /// Whether bytes that are allocated are a part of all of them that is worth a finding.
    pub(crate) fn is_part_of_bytes(&self, bytes: u64) -> bool {
        bytes >= self.process.totals.usable_bytes / PART_OF_ALL
    }
}

/// What is less than one part in so many of peak usage, or of all allocations, nobody would change
/// a program for.
const PART_OF_ALL: u64 = 100;
/// Fewer allocations take less than a millisecond.
const ALLOCATIONS_MIN: u64 = 10_000;
/// Less than a few pages is lost in what a program needs to start.
const BYTES_MIN: u64 = 64 << 10;

/// Usable bytes of the smallest blocks of glibc. Whether a request is tiny or has slack: larger
/// ones may have slack, and for others the number of blocks is the matter.
pub(crate) const TINY_MAX: u64 = 24;

/// Whether a reader can open the code of an owner and change it: it has a name, and is no part of a
/// runtime or of the C library, which own a stack only where nothing else does.
fn can_be_advised(process: &Process, frame: &Frame, role: Role) -> bool {
    let is_code = frame.code == CodeKind::Python || role == Role::Owner;
    is_code && frame.function.is_some() && !frame.is_scope() && !is_of_libc(process, frame)
}
