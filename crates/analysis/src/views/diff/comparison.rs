//! Compares two processes: joins functions, stacks and scopes by name, not by address, so that the
//! processes may be of different builds.
//!
//! A process is reduced to a tree of names and its tables are dropped, before the next is read:
//! neither holds a text for each stack.

use super::change::{Change, Side};
use super::name::Name;
use super::names::Names;
use super::paths::{self, PathId, Paths};
use crate::attribution::{Role, owners_in_tree};
use crate::model::{Measure, Process, Tables};
use crate::views::aggregate::by_stack;
use crate::views::scopes;

/// What paths are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Functions: of a stack.
    Stacks,
    /// Scopes.
    Scopes,
}

/// A function, and what changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionChange {
    /// Index into [`Difference::names`]; none for allocations without a stack.
    pub name: Option<u32>,
    /// What it allocates itself, as [`crate::views::aggregate::Group::own`].
    pub own: Change,
    /// And with what it calls.
    pub inclusive: Change,
    /// The path to it whose own value changed most, of those that it owns; the root if it owns
    /// none.
    pub path: PathId,
}

/// A path, and what changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathChange {
    /// The path.
    pub path: PathId,
    /// What ends there.
    pub own: Change,
    /// And further in.
    pub inclusive: Change,
}

/// A comparison as processes are added.
pub struct Comparison {
    measure: Measure,
    by: By,
    names: Names,
    paths: paths::Trie,
}

/// Two processes joined.
#[derive(Debug)]
pub struct Difference {
    /// The measure of the values.
    pub measure: Measure,
    /// What paths are made of.
    pub by: By,
    /// The first process, without its frames, stacks, scopes and sites.
    pub before: Process,
    /// The second, likewise.
    pub after: Process,
    /// What paths go through; equal ones of both are one.
    pub names: Vec<Name>,
    /// The paths of both.
    pub paths: Paths,
}

impl Comparison {
    /// Nothing yet.
    ///
    /// ```
    /// use heaptide_analysis::views::diff::{By, Comparison};
    /// use heaptide_analysis::model::Measure;
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # let read = || {
    /// #     heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap()
    /// # };
    /// let comparison = Comparison::new(Measure::LiveBytes, By::Stacks);
    /// let difference = comparison.before(read()).after(read());
    /// assert_eq!(difference.total().amount(), 0);
    /// assert!(difference.functions().is_empty());
    /// ```
    pub fn new(measure: Measure, by: By) -> Comparison {
        Comparison { measure, by, names: Names::default(), paths: paths::Trie::new() }
    }

    /// Takes the first process, and drops its tables.
    pub fn before(mut self, process: Process) -> HalfCompared {
        self.add(Side::Before, &process);
        HalfCompared { comparison: self, before: without_tables(process) }
    }

    /// Adds the paths that have a value.
    fn add(&mut self, side: Side, process: &Process) {
        match self.by {
            By::Stacks => self.add_stacks(side, process),
            By::Scopes => self.add_scopes(side, process),
        }
    }

    fn add_stacks(&mut self, side: Side, process: &Process) {
        let measure = self.measure.of_sites();
        let values = by_stack(process).map(|(stack, sums)| (stack, measure.of(&sums)));
        let values: Vec<_> = values.filter(|(_, value)| *value > 0).collect();
        let mut needed = vec![false; process.tables.stacks.len()];
        values.iter().for_each(|&(stack, _)| needed[stack.0 as usize] = true);
        for index in (1..needed.len()).rev() {
            needed[process.tables.stacks[index].parent.0 as usize] |= needed[index];
        }
        self.paths.reserve(needed.iter().filter(|needed| **needed).count());
        let names = self.names.of_frames(process);
        if let Some(names) = self.names.merge_places() {
            self.paths.rename(
                &names,
                |name| self.names.is_nameless(name),
                self.measure.of_sites().combine(),
            );
        }
        let mut path_of = vec![PathId(0); process.tables.stacks.len()];
        for index in (1..needed.len()).filter(|&index| needed[index]) {
            let node = process.tables.stacks[index];
            let parent = path_of[node.parent.0 as usize];
            let name = names[node.frame.0 as usize];
            // Functions without names cannot be told apart in another build.
            let joins = self.names.is_nameless(name) && self.paths.name(parent) == Some(name);
            path_of[index] = if joins { parent } else { self.paths.child(parent, name) };
        }
        for (stack, value) in values {
            self.add_value(path_of[stack.0 as usize], side, value);
        }
    }

    fn add_scopes(&mut self, side: Side, process: &Process) {
        let sums = scopes::sums(process, None);
        let mut path_of = vec![PathId(0); process.tables.scopes.len()];
        for (index, scope) in process.tables.scopes.iter().enumerate() {
            if index > 0 {
                let name = self.names.of_scope(scope);
                path_of[index] = self.paths.child(path_of[scope.parent.0 as usize], name);
            }
            let value = self.measure.of_sites().of(&sums[index].own);
            self.add_value(path_of[index], side, value);
        }
    }

    fn add_value(&mut self, path: PathId, side: Side, value: u64) {
        self.paths.add(path, side, value, self.measure.of_sites().combine());
    }
}

/// A comparison that has the first process.
pub struct HalfCompared {
    comparison: Comparison,
    before: Process,
}

impl HalfCompared {
    /// Takes the second process, and drops its tables.
    pub fn after(mut self, process: Process) -> Difference {
        self.comparison.add(Side::After, &process);
        let Comparison { measure, by, names, paths } = self.comparison;
        let (names, paths) = (names.finish(), paths.finish());
        let after = without_tables(process);
        Difference { measure, by, before: self.before, after, names, paths }
    }
}

/// The process without its large tables, which views of a difference do not need.
fn without_tables(mut process: Process) -> Process {
    let tables = process.tables;
    process.tables = Tables {
        frames: Vec::new(),
        stacks: Vec::new(),
        scopes: Vec::new(),
        entered: Vec::new(),
        sites: Vec::new(),
        ..tables
    };
    process
}

impl Difference {
    /// The totals of the measure; of `peak_bytes` they are the peaks, and paths have what was live
    /// then.
    pub fn total(&self) -> Change {
        self.total_of(self.measure)
    }

    /// The totals of any measure.
    pub fn total_of(&self, measure: Measure) -> Change {
        Change { before: measure.of(&self.before.totals), after: measure.of(&self.after.totals) }
    }

    /// Adds what ends at each path to the row of its owner.
    fn put_down(&self, rows: &mut [FunctionChange]) {
        let combine = self.measure.of_sites().combine();
        let owners = self.owners();
        // By path to an owner, over the stacks inside it.
        let mut of_path = vec![Change::default(); owners.len()];
        for (own, &owner) in self.paths.own.iter().zip(&owners).skip(1) {
            of_path[owner.0 as usize].add(*own, combine);
        }
        let mut most = vec![0; rows.len()];
        for ((change, node), id) in of_path.iter().zip(&self.paths.nodes).zip(0..).skip(1) {
            let row = &mut rows[node.name as usize];
            row.own.add(*change, combine);
            let size = change.amount().unsigned_abs();
            if size > most[node.name as usize] {
                (most[node.name as usize], row.path) = (size, PathId(id));
            }
        }
    }

    /// Of each path the one that ends with its owner.
    fn owners(&self) -> Vec<PathId> {
        let roles: Vec<Role> = self.names.iter().map(Name::role).collect();
        let nodes = self.paths.nodes.iter().skip(1);
        let nodes = nodes.map(|node| (node.parent.0, roles[node.name as usize]));
        owners_in_tree(nodes).into_iter().map(PathId).collect()
    }

    /// The functions with a value that changed, by how much their own did, then by how much with
    /// what they call. Each stack counts once for a function, however often it goes through it.
    pub fn functions(&self) -> Vec<FunctionChange> {
        let combine = self.measure.of_sites().combine();
        let row = |name| FunctionChange {
            name: Some(name),
            own: Change::default(),
            inclusive: Change::default(),
            path: PathId(0),
        };
        let mut rows: Vec<FunctionChange> = (0..self.names.len() as u32).map(row).collect();
        let nodes = &self.paths.nodes;
        let inclusive = self.paths.inclusive(combine);
        let open = vec![0u32; self.names.len()];
        let open: Vec<std::cell::Cell<u32>> = open.into_iter().map(Into::into).collect();
        let name = |path: PathId| nodes[path.0 as usize].name as usize;
        let enter = |path: PathId| {
            let open = &open[name(path)];
            open.set(open.get() + 1);
            if open.get() == 1 {
                rows[name(path)].inclusive.add(inclusive[path.0 as usize], combine);
            }
        };
        let leave = |path: PathId| open[name(path)].set(open[name(path)].get() - 1);
        self.paths.walk(enter, leave);
        self.put_down(&mut rows);
        let own = self.paths.own[0];
        rows.push(FunctionChange { name: None, own, inclusive: own, path: PathId(0) });
        rows.retain(|row| row.own.amount() != 0 || row.inclusive.amount() != 0);
        let size = |change: Change| std::cmp::Reverse(change.amount().unsigned_abs());
        rows.sort_by_key(|row| (size(row.own), size(row.inclusive), row.name));
        rows
    }

    /// The paths whose own value changed, by how much; and those that only changed further in, if
    /// they are scopes.
    pub fn paths(&self) -> Vec<PathChange> {
        let inclusive = match self.by {
            By::Stacks => Vec::new(),
            By::Scopes => self.paths.inclusive(self.measure.of_sites().combine()),
        };
        let own = self.paths.own.iter().zip(0..);
        let row = |(&own, id): (&Change, u32)| {
            let inclusive = inclusive.get(id as usize).filter(|_| id > 0).copied().unwrap_or(own);
            PathChange { path: PathId(id), own, inclusive }
        };
        let changed = |row: &PathChange| row.own.amount() != 0 || row.inclusive.amount() != 0;
        let mut rows: Vec<PathChange> = own.map(row).filter(changed).collect();
        let size = |change: Change| std::cmp::Reverse(change.amount().unsigned_abs());
        rows.sort_by_key(|row| (size(row.own), size(row.inclusive), row.path));
        rows
    }
}
