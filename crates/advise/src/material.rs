//! The input of rules: stacks with their owners, grouped by the allocating line of code.

use std::cmp::Reverse;

use heaptide_analysis::attribution::{FunctionId, Owners, Role, is_of_libc};
use heaptide_analysis::model::{CodeKind, Frame, FrameId, Measures, Process, StackId};
use heaptide_analysis::views::aggregate::by_stack;
use rustc_hash::FxHashMap;

use crate::finding::Place;

/// Live memory of a process at several times, in order: its snapshots. The end of the process is
/// not included, because programs free their data there.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The times, in nanoseconds from the start of the process.
    pub times_ns: Vec<u64>,
    /// The tables at these times.
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

/// Stacks with the same line of their owner.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The function.
    pub(crate) function: FunctionId,
    /// One of the frames of that line.
    pub(crate) frame: FrameId,
    /// Its stacks.
    pub(crate) rows: Vec<Row>,
    /// Sums over these stacks.
    pub(crate) measures: Measures,
}

/// A process with the data that rules need.
pub(crate) struct Material<'a> {
    pub(crate) process: &'a Process,
    /// The owners of allocations.
    pub(crate) owners: Owners,
    /// Groups, by line of code, for which there may be findings.
    pub(crate) groups: Vec<Group>,
    /// Earlier states, if there are snapshots.
    pub(crate) history: &'a History,
}

/// The key of a group; without line numbers a function is one group.
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

    /// Returns a frame.
    pub(crate) fn frame(&self, id: FrameId) -> &'a Frame {
        &self.process.tables.frames[id.0 as usize]
    }

    /// Returns whether the owner of a group is a Python function.
    pub(crate) fn is_python(&self, group: &Group) -> bool {
        self.frame(group.frame).code == CodeKind::Python
    }

    /// Returns the frames inside the owner of a stack, innermost first, through which it allocates.
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

    /// Returns the location of some rows of a group, which must not be empty; `weight` determines
    /// the heaviest.
    pub(crate) fn place(&self, rows: &[Row], weight: impl Fn(&Measures) -> u64) -> Option<Place> {
        self.place_by(rows, |row| weight(&row.measures))
    }

    /// Does the same with a weight that is no measure.
    pub(crate) fn place_by(&self, rows: &[Row], weight: impl Fn(&Row) -> u64) -> Option<Place> {
        let heaviest = rows.iter().max_by_key(|row| (weight(row), Reverse(row.stack)))?;
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

    /// Returns the index of the group of each stack that has one.
    pub(crate) fn groups_of_stacks(&self) -> FxHashMap<StackId, usize> {
        let indexed = (0..).zip(&self.groups);
        indexed.flat_map(|(at, group)| group.rows.iter().map(move |row| (row.stack, at))).collect()
    }

    /// Returns the name of the owner of a stack with its line; `None` without a stack.
    pub(crate) fn name_of_owner(&self, stack: StackId) -> Option<String> {
        let id = self.owners.frame(self.process, stack)?;
        let name = self.process.label(id);
        let frame = self.frame(id);
        Some(match (&frame.file, frame.line) {
            (Some(file), Some(line)) => {
                format!("{name} ({}:{line})", file.rsplit('/').next().unwrap_or(file))
            }
            _ => name.into_owned(),
        })
    }

    /// Returns whether a number of allocations is large enough for a finding.
    pub(crate) fn is_many(&self, allocations: u64) -> bool {
        allocations >= ALLOCATIONS_MIN
            && allocations >= self.process.totals.allocations / PART_OF_ALL
    }

    /// Returns whether a number of bytes at peak is large enough for a finding.
    pub(crate) fn is_much(&self, bytes: u64) -> bool {
        bytes >= BYTES_MIN && bytes >= self.process.totals.peak_bytes / PART_OF_ALL
    }

    /// Returns whether a number of allocated bytes is large enough for a finding.
    pub(crate) fn is_part_of_bytes(&self, bytes: u64) -> bool {
        bytes >= self.process.totals.usable_bytes / PART_OF_ALL
    }
}

/// Less than this fraction of peak usage, or of all allocations, is not worth a change.
const PART_OF_ALL: u64 = 100;
/// Fewer allocations take less than a millisecond.
const ALLOCATIONS_MIN: u64 = 10_000;
/// Less than a few pages is normal for the start of a program.
const BYTES_MIN: u64 = 64 << 10;

/// The usable size of glibc's smallest blocks, which separates tiny blocks from those with slack:
/// larger blocks may have slack, for smaller ones the number of blocks matters.
pub(crate) const TINY_MAX: u64 = 24;

/// Returns whether a reader can open and change the code of an owner: it has a name, and does not
/// belong to a runtime or to the C library, which own a stack only if nothing else does.
fn can_be_advised(process: &Process, frame: &Frame, role: Role) -> bool {
    let is_code = frame.code == CodeKind::Python || role == Role::Owner;
    is_code && frame.function.is_some() && !frame.is_scope() && !is_of_libc(process, frame)
}
