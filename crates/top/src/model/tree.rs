//! The callers or callees of a row, as a tree.

use heaptide_analysis::attribution::FunctionId;
use heaptide_analysis::collections::trie::Trie;
use heaptide_analysis::model::StackId;
use heaptide_analysis::recording::live::Counts;

use super::numbers::{Moments, Numbers};
use super::tables::{Mask, Tables};
use super::view::{Column, Key};

/// Nodes below this fraction of the total (1/1000) are omitted.
const SHOWN_PART: i128 = 1000;
/// The most nodes to show: a few screens.
const SHOWN_MAX: usize = 500;
/// Marks a missing node.
const NONE: u32 = u32::MAX;

/// The direction of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Direction {
    /// From a function to its callers.
    #[default]
    Callers,
    /// From a function to its callees.
    Callees,
}

impl Direction {
    /// Returns the opposite direction.
    pub(crate) fn turned(self) -> Direction {
        match self {
            Direction::Callers => Direction::Callees,
            Direction::Callees => Direction::Callers,
        }
    }

    /// Returns its title.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Direction::Callers => "callers",
            Direction::Callees => "callees",
        }
    }
}

/// The call paths from or to a function on which it allocates. Node 0 is the function itself.
pub(crate) struct Tree {
    functions: Vec<Option<FunctionId>>,
    parents: Vec<u32>,
    /// By row of the tables, the last node of its path; missing if it is not in the tree.
    of_row: Vec<u32>,
}

/// A visible node of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Branch {
    /// Depth in the tree.
    pub(crate) depth: usize,
    pub(crate) function: Option<FunctionId>,
    pub(crate) numbers: Numbers,
}

impl Tree {
    /// Builds the tree of a row: an owner, a function or a stack. `None` for other rows.
    pub(crate) fn new(
        tables: &Tables,
        key: Key,
        direction: Direction,
        mask: &Mask,
    ) -> Option<Tree> {
        let top = match key {
            Key::Owner(function) | Key::Function(function) => function?,
            Key::Stack(stack) if stack != StackId(0) => tables.owner(stack)?,
            Key::Line(frame) => tables.owners.functions.of_frame(frame?),
            _ => return None,
        };
        let start_of = |stack: StackId| match key {
            Key::Owner(_) => {
                let owner = tables.owners.stack(stack);
                (tables.owner(stack) == Some(top)).then_some(owner)
            }
            Key::Line(line) => (tables.line(stack) == line).then(|| tables.owners.stack(stack)),
            Key::Stack(only) => (stack == only).then(|| tables.owners.stack(stack)),
            _ => outermost(tables, stack, top),
        };
        let mut trie = Trie::with_room(64);
        let mut of_stack = vec![None; tables.process.tables.stacks.len()];
        let mut of_row = vec![NONE; tables.process.tables.sites.len()];
        for (row, site) in tables.process.tables.sites.iter().enumerate() {
            if !mask.has(row as u32) {
                continue;
            }
            let stack = site.stack.0 as usize;
            let node = *of_stack[stack].get_or_insert_with(|| {
                let start = start_of(site.stack);
                start.map_or(NONE, |start| leaf(tables, &mut trie, site.stack, start, direction))
            });
            of_row[row] = node;
        }
        let nodes = trie.into_nodes();
        let functions = nodes.iter().map(|node| Some(FunctionId(node.key)));
        let mut functions: Vec<_> = functions.collect();
        functions[0] = Some(top);
        Some(Tree { functions, parents: nodes.iter().map(|node| node.parent).collect(), of_row })
    }

    /// Returns the visible nodes in depth-first order, siblings sorted by size.
    pub(crate) fn branches(
        &self,
        tables: &Tables,
        moments: &Moments,
        mask: &Mask,
        column: Column,
    ) -> Vec<Branch> {
        let mut sums = vec![Numbers::default(); self.functions.len()];
        tables.each_slot(moments, mask, |slot, row| {
            let node = row.map_or(NONE, |row| self.of_row[row as usize]);
            if node != NONE {
                sums[node as usize].add(&moments.of_slot(slot, Counts::add));
            }
        });
        for index in (1..sums.len()).rev() {
            let numbers = sums[index];
            sums[self.parents[index] as usize].add(&numbers);
        }
        let least = sums[0].of(column).abs() / SHOWN_PART;
        let mut below: Vec<Vec<u32>> = vec![Vec::new(); sums.len()];
        for index in 1..sums.len() {
            if sums[index].of(column).abs() > least {
                below[self.parents[index] as usize].push(index as u32);
            }
        }
        let mut branches = Vec::new();
        let mut todo = vec![(0u32, 0)];
        while let Some((node, depth)) = todo.pop() {
            if branches.len() == SHOWN_MAX {
                break;
            }
            let (function, numbers) = (self.functions[node as usize], sums[node as usize]);
            branches.push(Branch { depth, function, numbers });
            let mut next = std::mem::take(&mut below[node as usize]);
            next.sort_by_key(|&node| sums[node as usize].of(column)); // the last pops first
            todo.extend(next.into_iter().map(|node| (node, depth + 1)));
        }
        branches
    }
}

/// Returns the outermost occurrence of a function in a stack, if any.
fn outermost(tables: &Tables, stack: StackId, function: FunctionId) -> Option<StackId> {
    let (mut at, mut found) = (stack, None);
    while at != StackId(0) {
        let node = tables.process.tables.stacks[at.0 as usize];
        if tables.owners.functions.of_frame(node.frame) == function {
            found = Some(at);
        }
        at = node.parent;
    }
    found
}

/// Returns the last node of a stack's path from the start of the tree. Direct recursion is merged
/// into one node.
fn leaf(
    tables: &Tables,
    trie: &mut Trie,
    stack: StackId,
    start: StackId,
    direction: Direction,
) -> u32 {
    let stacks = &tables.process.tables.stacks;
    let (mut at, end) = match direction {
        Direction::Callers => (stacks[start.0 as usize].parent, StackId(0)),
        Direction::Callees => (stack, start),
    };
    let mut way = Vec::new();
    while at != end && at != StackId(0) {
        let node = stacks[at.0 as usize];
        way.push(tables.owners.functions.of_frame(node.frame).0);
        at = node.parent;
    }
    if direction == Direction::Callees {
        way.reverse();
    }
    let own = tables.owners.functions.of_frame(stacks[start.0 as usize].frame).0;
    way.insert(0, own);
    way.dedup();
    way.into_iter().skip(1).fold(0, |node, function| trie.child(node, function))
}
