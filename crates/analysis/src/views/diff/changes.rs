//! Computes the changes between two processes: rows of functions, stacks and scopes.
//!
//! For sampled recordings, a change is shown only if it exceeds the errors of the estimates: if its
//! 95 % interval does not contain 0. The limits of a difference are computed from those of both
//! values (Zou and Donner, Statistics in Medicine 27, 2008).

use std::cell::Cell;
use std::cmp::Reverse;

use super::change::{Change, Side};
use super::comparison::Difference;
use super::name::{By, Name};
use super::paths::{EFFECTIVE, PathId};
use crate::attribution::{Role, owners_in_tree};
use crate::model::{Combine, Measures, Process, Spread};

/// Rows that changed.
#[derive(Clone, Debug)]
pub struct Changes<R> {
    /// Rows with a significant change, largest changes first.
    pub rows: Vec<R>,
    /// Number of other rows, whose changes can be errors of estimates.
    pub uncertain: usize,
}

/// The 95 % interval of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The lower limit.
    pub low: i128,
    /// The upper limit.
    pub high: i128,
}

/// The change of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionChange {
    /// Index into [`Difference::names`]; `None` for allocations without a stack.
    pub name: Option<u32>,
    /// Change of its own allocations, as [`crate::views::aggregate::Group::own`].
    pub own: Change,
    /// Change including its callees.
    pub inclusive: Change,
    /// The limits of both changes, if they are estimates.
    pub limits: Option<[Limits; 2]>,
    /// The path whose own value changed most among those owned by the function; the root if it owns
    /// none.
    pub path: PathId,
}

/// The change of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathChange {
    /// The path.
    pub path: PathId,
    /// Change of the value at the path itself.
    pub own: Change,
    /// Change including longer paths.
    pub inclusive: Change,
    /// The limits of both changes, if they are estimates.
    pub limits: Option<[Limits; 2]>,
}

impl Limits {
    /// Returns whether the interval contains 0.
    pub fn may_be_none(self) -> bool {
        self.low <= 0 && self.high >= 0
    }
}

/// A row of a difference.
trait Row {
    fn changes(&self) -> [Change; 2];
    fn limits(&self) -> Option<[Limits; 2]>;
}

impl Row for FunctionChange {
    fn changes(&self) -> [Change; 2] {
        [self.own, self.inclusive]
    }

    fn limits(&self) -> Option<[Limits; 2]> {
        self.limits
    }
}

impl Row for PathChange {
    fn changes(&self) -> [Change; 2] {
        [self.own, self.inclusive]
    }

    fn limits(&self) -> Option<[Limits; 2]> {
        self.limits
    }
}

/// Keeps the rows that changed significantly, ordered by their changes and then by `key`.
fn changed<R: Row, K: Ord>(mut rows: Vec<R>, key: impl Fn(&R) -> K) -> Changes<R> {
    rows.retain(|row| row.changes().iter().any(|change| change.amount() != 0));
    let all = rows.len();
    let is_certain = |row: &R| match row.limits() {
        Some(limits) => limits.iter().any(|limits| !limits.may_be_none()),
        None => true,
    };
    rows.retain(is_certain);
    let size = |change: Change| Reverse(change.amount().unsigned_abs());
    rows.sort_by_key(|row| (row.changes().map(size), key(row)));
    Changes { uncertain: all - rows.len(), rows }
}

impl Difference {
    /// Returns the functions with a changed value, ordered by their own change, then by the change
    /// including callees. Each stack counts once per function, even with recursion.
    pub fn functions(&self) -> Changes<FunctionChange> {
        let combine = self.measure.of_sites().combine();
        let owners = self.owners();
        let mut rows = self.function_rows(&self.paths.own, &owners, combine);
        if !self.paths.effective.is_empty() {
            let effective = self.function_rows(&self.paths.effective, &owners, Combine::Sum);
            for (row, effective) in rows.iter_mut().zip(effective) {
                row.limits = self.limits_of(row.changes(), effective.changes());
            }
        }
        changed(rows, |row| row.name)
    }

    /// Returns a row for each name, and one for allocations without a stack, computed from values
    /// of paths.
    fn function_rows(
        &self,
        values: &[Change],
        owners: &[PathId],
        combine: Combine,
    ) -> Vec<FunctionChange> {
        let (none, path) = (Change::default(), PathId(0));
        let row = |name| FunctionChange { name, own: none, inclusive: none, limits: None, path };
        let names = 0..self.names.len() as u32;
        let mut rows: Vec<FunctionChange> = names.map(|name| row(Some(name))).collect();
        let nodes = &self.paths.nodes;
        let inclusive = self.paths.sums(values, combine);
        let open: Vec<Cell<u32>> =
            vec![0u32; self.names.len()].into_iter().map(Cell::new).collect();
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
        self.put_down(values, owners, combine, &mut rows);
        rows.push(FunctionChange { own: values[0], inclusive: values[0], ..row(None) });
        rows
    }

    /// Adds the value of each path to the row of its owner.
    fn put_down(
        &self,
        values: &[Change],
        owners: &[PathId],
        combine: Combine,
        rows: &mut [FunctionChange],
    ) {
        // Sums for paths to an owner over the paths below it.
        let mut of_path = vec![Change::default(); owners.len()];
        for (own, &owner) in values.iter().zip(owners).skip(1) {
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

    /// Returns, for each path, the path that ends at its owner.
    fn owners(&self) -> Vec<PathId> {
        let roles: Vec<Role> = self.names.iter().map(Name::role).collect();
        let nodes = self.paths.nodes.iter().skip(1);
        let nodes = nodes.map(|node| (node.parent.0, roles[node.name as usize]));
        owners_in_tree(nodes).into_iter().map(PathId).collect()
    }

    /// Returns the paths whose own value changed, with the change; for scopes also those where only
    /// longer paths changed.
    pub fn paths(&self) -> Changes<PathChange> {
        let sums = |own: &[Change], combine| match self.by {
            By::Stacks | By::Lines => own.to_vec(),
            By::Scopes => self.paths.sums(own, combine),
        };
        let inclusive = sums(&self.paths.own, self.measure.of_sites().combine());
        let effective = sums(&self.paths.effective, Combine::Sum);
        let row = |(&own, id): (&Change, u32)| {
            let inner = |of: &[Change], own| if id > 0 { of[id as usize] } else { own };
            let inclusive = inner(&inclusive, own);
            let limits = self.paths.effective.get(id as usize).and_then(|&numbers| {
                self.limits_of([own, inclusive], [numbers, inner(&effective, numbers)])
            });
            PathChange { path: PathId(id), own, inclusive, limits }
        };
        let rows: Vec<PathChange> = self.paths.own.iter().zip(0..).map(row).collect();
        changed(rows, |row| row.path)
    }

    /// Returns whether the own value of a path changed significantly.
    pub fn is_certain(&self, own: Change, effective: Change) -> bool {
        self.limits(own, effective).is_none_or(|limits| !limits.may_be_none())
    }

    /// Returns the limits of the change of the total; `None` if it is exact.
    pub fn limits_of_total(&self) -> Option<Limits> {
        if ![&self.before, &self.after].into_iter().any(Process::is_part_of_sampled) {
            return None;
        }
        let of = |process: &Process| {
            let number = process.totals.spread.of(self.measure.of_sites());
            (f64::from(number.unwrap_or(0.0)) * EFFECTIVE) as u64
        };
        self.limits(self.total(), Change { before: of(&self.before), after: of(&self.after) })
    }

    fn limits_of(&self, changes: [Change; 2], effective: [Change; 2]) -> Option<[Limits; 2]> {
        let own = self.limits(changes[0], effective[0])?;
        Some([own, self.limits(changes[1], effective[1])?])
    }

    /// Returns the limits of a change of the metric, given the effective numbers of both values;
    /// `None` if both are exact.
    fn limits(&self, change: Change, effective: Change) -> Option<Limits> {
        let before = self.deviations(Side::Before, change, effective);
        let after = self.deviations(Side::After, change, effective);
        if before.is_none() && after.is_none() {
            return None;
        }
        let ([fewer_before, more_before], [fewer, more]) =
            (before.unwrap_or_default(), after.unwrap_or_default());
        let amount = change.amount();
        let below = fewer.hypot(more_before).ceil() as i128;
        let above = more.hypot(fewer_before).ceil() as i128;
        Some(Limits { low: amount - below, high: amount + above })
    }

    /// Returns the distances of the value of one side from its limits; `None` if it is exact.
    fn deviations(&self, side: Side, change: Change, effective: Change) -> Option<[f64; 2]> {
        let (process, value, number) = match side {
            Side::Before => (&self.before, change.before, effective.before),
            Side::After => (&self.after, change.after, effective.after),
        };
        let measure = self.measure.of_sites();
        let number = (number as f64 / EFFECTIVE) as f32;
        let spread = Spread { allocated: number, live: number, at_peak: number };
        let mut row = Measures { spread, ..Measures::default() };
        measure.set(&mut row, value);
        let interval = process.interval(measure, &row)?;
        Some([value - interval.low, interval.high - value].map(|bytes| bytes as f64))
    }
}
