//! The rows of the table, in the selected order.

use heaptide_analysis::attribution::FunctionId;

use super::numbers::{Moments, Numbers};
use super::tables::{Mask, Tables};
use super::tree::{Branch, Tree};
use super::view::{Column, Key, View};

/// The sort order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Order {
    #[default]
    LargestFirst,
    SmallestFirst,
}

/// The rows of the table.
#[derive(Default)]
pub(crate) struct Page {
    /// The sum over all rows that pass the filter.
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

/// A visible row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    /// Depth in a tree.
    pub(crate) depth: usize,
    pub(crate) key: Key,
    pub(crate) numbers: Numbers,
}

impl Page {
    /// Computes the rows of a view.
    pub(crate) fn of_view(tables: &Tables, view: View, moments: &Moments, mask: &Mask) -> Page {
        let (rows, sum) = tables.sums(view, moments, mask);
        Page { sum, rows: Rows::Flat(rows) }
    }

    /// Computes the rows of a tree.
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

    /// Sorts the first `count` rows; the others stay unsorted. Trees keep their own order.
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

    /// Returns the position of a row in the order.
    pub(crate) fn place(&self, key: Key, column: Column, order: Order) -> Option<usize> {
        let Rows::Flat(rows) = &self.rows else { return None };
        let row = rows.iter().find(|row| row.0 == key)?;
        let own = rank(row, column, order);
        Some(rows.iter().filter(|row| rank(row, column, order) < own).count())
    }

    /// Returns the row at a position, which must be sorted unless it is in a tree.
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

/// Returns the sort key of rows; rows with equal values are sorted by live bytes.
fn rank((key, numbers): &(Key, Numbers), column: Column, order: Order) -> (i128, i128, Key) {
    let (value, live) = (numbers.of(column), numbers.of(Column::Live));
    match order {
        Order::LargestFirst => (-value, -live, *key),
        Order::SmallestFirst => (value, live, *key),
    }
}
