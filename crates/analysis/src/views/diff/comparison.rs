//! Compares two processes: joins functions, stacks and scopes by name, not by address, so that the
//! processes can be different builds.
//!
//! A process is reduced to a tree of names, and its tables are dropped before the next one is read.
//! Neither tree stores a text for each stack.

use super::change::{Change, Side};
use super::name::{By, Name};
use super::names::Names;
use super::paths::{self, PathId, Paths};
use crate::model::{Measure, Measures, Process, Tables};
use crate::views::aggregate::by_stack;
use crate::views::scopes;

/// A comparison while processes are added.
pub struct Comparison {
    measure: Measure,
    by: By,
    names: Names,
    paths: paths::Trie,
}

/// The result of comparing two processes.
#[derive(Debug)]
pub struct Difference {
    /// The metric of the values.
    pub measure: Measure,
    /// The elements of paths.
    pub by: By,
    /// The first process, without its frames, stacks, scopes and sites.
    pub before: Process,
    /// The second process, likewise.
    pub after: Process,
    /// The elements of paths; equal ones of both processes are merged.
    pub names: Vec<Name>,
    /// The paths of both.
    pub paths: Paths,
}

impl Comparison {
    /// Returns an empty comparison.
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
    /// assert!(difference.functions().rows.is_empty());
    /// ```
    pub fn new(measure: Measure, by: By) -> Comparison {
        Comparison { measure, by, names: Names::default(), paths: paths::Trie::new() }
    }

    /// Adds the first process and drops its tables.
    pub fn before(mut self, process: Process) -> HalfCompared {
        self.add(Side::Before, &process);
        HalfCompared { comparison: self, before: without_tables(process) }
    }

    /// Adds the paths with a value.
    fn add(&mut self, side: Side, process: &Process) {
        match self.by {
            By::Stacks | By::Lines => self.add_stacks(side, process),
            By::Scopes => self.add_scopes(side, process),
        }
    }

    fn add_stacks(&mut self, side: Side, process: &Process) {
        let measure = self.measure.of_sites();
        let spread = |sums: &Measures| spread_of(process, measure, sums);
        let values = by_stack(process).map(|(stack, m)| (stack, measure.of(&m), spread(&m)));
        let values: Vec<_> = values.filter(|(_, value, _)| *value > 0).collect();
        let mut needed = vec![false; process.tables.stacks.len()];
        values.iter().for_each(|&(stack, ..)| needed[stack.0 as usize] = true);
        for index in (1..needed.len()).rev() {
            needed[process.tables.stacks[index].parent.0 as usize] |= needed[index];
        }
        self.paths.reserve(needed.iter().filter(|needed| **needed).count());
        let names = self.names.of_frames(process, self.by);
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
            // Functions without names cannot be distinguished in different builds.
            let joins = self.names.is_nameless(name) && self.paths.name(parent) == Some(name);
            path_of[index] = if joins { parent } else { self.paths.child(parent, name) };
        }
        for (stack, value, spread) in values {
            self.add_value(path_of[stack.0 as usize], side, value, spread);
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
            let (measure, own) = (self.measure.of_sites(), &sums[index].own);
            let spread = spread_of(process, measure, own);
            self.add_value(path_of[index], side, measure.of(own), spread);
        }
    }

    fn add_value(&mut self, path: PathId, side: Side, value: u64, spread: Option<f32>) {
        self.paths.add(path, side, value, self.measure.of_sites().combine());
        if let Some(spread) = spread {
            self.paths.add_effective(path, side, spread);
        }
    }
}

/// Returns the effective number of a metric of a row; `None` in a process whose blocks were all
/// recorded.
fn spread_of(process: &Process, measure: Measure, row: &Measures) -> Option<f32> {
    process.sampling.and_then(|_| row.spread.of(measure))
}

/// A comparison with the first process.
pub struct HalfCompared {
    comparison: Comparison,
    before: Process,
}

impl HalfCompared {
    /// Adds the second process and drops its tables.
    pub fn after(mut self, process: Process) -> Difference {
        self.comparison.add(Side::After, &process);
        let Comparison { measure, by, names, paths } = self.comparison;
        let (names, paths) = (names.finish(), paths.finish());
        let after = without_tables(process);
        Difference { measure, by, before: self.before, after, names, paths }
    }
}

/// Returns the process without its large tables, which views of a difference do not use.
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
    /// Returns the totals of the metric. For `peak_bytes` these are the peaks, while paths have the
    /// bytes live at peak.
    pub fn total(&self) -> Change {
        self.total_of(self.measure)
    }

    /// Returns the totals of any metric.
    pub fn total_of(&self, measure: Measure) -> Change {
        Change { before: measure.of(&self.before.totals), after: measure.of(&self.after.totals) }
    }
}
