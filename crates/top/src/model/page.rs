//! The rows of the table, in the order that the user chose.

use heaptide_analysis::attribution::FunctionId;

use super::numbers::{Moments, Numbers};
use super::tables::{Mask, Tables};
use super::tree::{Branch, Tree};
use super::view::{Column, Key, View};

/// Which rows are first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Order {
    #[default]
    LargestFirst,
    SmallestFirst,
}

/// The rows of the table.
#[derive(Default)]
pub(crate) struct Page {
    /// The sum over all rows that count.
    pub(crate) sum: Numbers,
    pub(crate) rows: Rows,
}

/// Rows of a view, or of a tree.
pub(crate) enum Rows {
    Flat(Vec<(Key, Numbers)>),
    Tree(Vec<Branch>),
}

impl Default for Rows {
    fn default() -> Rows {
        Rows::Flat(Vec::new())
    }
}

/// A row as it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    /// Levels below the top of a tree.
    pub(crate) depth: usize,
    pub(crate) key: Key,
    pub(crate) numbers: Numbers,
}

impl Page {
    /// The rows of a view.
    pub(crate) fn of_view(tables: &Tables, view: View, moments: &Moments, mask: &Mask) -> Page {
        let (rows, sum) = tables.sums(view, moments, mask);
        Page { sum, rows: Rows::Flat(rows) }
    }

    /// The rows of a tree.
    pub(crate) fn of_tree(
        tables: &Tables,
        tree: &Tree,
        moments: &Moments,
        mask: &Mask,
        column: Column,
    ) -> Page {
        let branches = tree.branches(tables, moments, mask, column);
        let sum = branches.first().map_or_else(Numbers::default, |top| top.numbers);
        Page { sum, rows: Rows::Tree(branches) }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.rows {
            Rows::Flat(rows) => rows.len(),
            Rows::Tree(branches) => branches.len(),
        }
    }

    /// Orders the first `count` rows; the order of the others is any. A tree has its own.
    pub(crate) fn order(&mut self, column: Column, order: Order, count: usize) {
        let Rows::Flat(rows) = &mut self.rows else { return };
        let rank = |row: &(Key, Numbers)| rank(row, column, order);
        if count < rows.len() {
            rows.select_nth_unstable_by_key(count, rank);
            rows[..count].sort_unstable_by_key(rank);
        } else {
            rows.sort_unstable_by_key(rank);
        }
    }

    /// Where a row is in the order.
    pub(crate) fn place(&self, key: Key, column: Column, order: Order) -> Option<usize> {
        let Rows::Flat(rows) = &self.rows else { return None };
        let row = rows.iter().find(|row| row.0 == key)?;
        let own = rank(row, column, order);
        Some(rows.iter().filter(|row| rank(row, column, order) < own).count())
    }

    /// A row by its place; places of a flat page have to be in order.
    pub(crate) fn row(&self, place: usize) -> Option<Row> {
        match &self.rows {
            Rows::Flat(rows) => {
                let (key, numbers) = *rows.get(place)?;
                Some(Row { depth: 0, key, numbers })
            }
            Rows::Tree(branches) => {
                let Branch { depth, function, numbers } = *branches.get(place)?;
                let function: Option<FunctionId> = function;
                Some(Row { depth, key: Key::Function(function), numbers })
            }
        }
    }
}

/// What rows are ordered by; equal ones by live bytes.
fn rank((key, numbers): &(Key, Numbers), column: Column, order: Order) -> (i128, i128, Key) {
    let (value, live) = (numbers.of(column), numbers.of(Column::Live));
    match order {
        Order::LargestFirst => (-value, -live, *key),
        Order::SmallestFirst => (value, live, *key),
    }
}
