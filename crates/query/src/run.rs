//! Runs a query on records.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use heaptide_analysis::threads;

use crate::aggregate::{Grouping, Groups};
use crate::derive::Derived;
use crate::filter::Filter;
use crate::order::{self, order};
use crate::query::Query;
use crate::stream::{Batch, Stream};
use crate::supply::Supply;
use crate::table::Table;

/// Runs a query: computes derived attributes, filters records, merges them by GROUP BY, and sorts
/// the results. Uses all processors.
///
/// ```
/// use heaptide_query::{cali, parse, run, stream::Stream, table::Table};
/// let mut table = Table::default();
/// let lines = "__rec=node,id=20,attr=10,data=2112,parent=2\n\
///              __rec=node,id=21,attr=8,data=size,parent=20\n\
///              __rec=ctx,attr=21,data=40\n__rec=ctx,attr=21,data=2\n";
/// cali::read(lines.as_bytes(), &mut table).unwrap();
/// let answer = run(&parse("SELECT sum(size)").unwrap(), Stream::of(table));
/// let sum = answer.named("sum#size").unwrap();
/// assert_eq!(answer.text(0, sum).as_deref(), Some("42"));
/// ```
pub fn run(query: &Query, stream: Stream) -> Table {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let plan = Plan::of(query, stream.template());
    // If the first records suffice, reading ahead would be wasted.
    let supply = if plan.stops_early() { Supply::on_demand } else { Supply::ahead }(stream);
    let work = || {
        let mut part = plan.part();
        while let Some(batch) = plan.next(&supply) {
            plan.add(&mut part, batch);
        }
        part
    };
    let parts = threads::together(threads, work);
    drop(supply);
    let mut answer = plan.finish(parts);
    if !query.having.is_empty() {
        let rows = Filter::all(&query.having, &answer).rows(&answer);
        answer.keep(&rows);
    }
    order(query, &mut answer);
    answer.settle_paths();
    answer
}

/// A query, prepared for a stream.
struct Plan<'q> {
    query: &'q Query,
    lets: Vec<Derived<'q>>,
    filter: Filter<'q>,
    grouping: Option<Grouping<'q>>,
    /// A table like those of batches, with the derived attributes.
    template: Table,
    /// Number of records kept so far.
    kept: AtomicUsize,
    /// Ranks of paths for the sort keys, for all batches.
    paths: order::Paths,
}

/// The result of a thread's batches.
enum Part {
    Groups(Groups),
    /// Ungrouped records, in pieces.
    Records(Vec<Piece>),
}

/// Records, with the number of each.
struct Piece {
    numbers: Vec<u64>,
    table: Table,
}

/// The number of records that a thread collects before it discards those outside of LIMIT.
const KEPT: usize = 1 << 17;

impl<'q> Plan<'q> {
    fn of(query: &'q Query, template: &Table) -> Plan<'q> {
        let mut table = template.without_rows();
        table.globals.clone_from(&template.globals);
        let lets = query.lets.iter().map(|one| Derived::of(one, &mut table)).collect();
        let filter = Filter::all(&query.filter, &table);
        let grouping = (!query.aggregations.is_empty()).then(|| Grouping::of(query, &table));
        let (kept, paths) = (AtomicUsize::new(0), order::Paths::default());
        Plan { query, lets, filter, grouping, template: table, kept, paths }
    }

    fn part(&self) -> Part {
        match &self.grouping {
            Some(grouping) => Part::Groups(grouping.none()),
            None => Part::Records(Vec::new()),
        }
    }

    /// Returns the next batch, unless the records so far suffice.
    fn next<'a>(&self, supply: &Supply<'a>) -> Option<Batch<'a>> {
        let has_room = |limit| self.kept.load(Relaxed) < limit;
        let more = !self.stops_early() || self.limit().is_none_or(has_room);
        more.then(|| supply.next())?
    }

    /// Returns whether the first records that pass the filter are the result.
    fn stops_early(&self) -> bool {
        self.limit().is_some() && self.query.order.is_empty()
    }

    /// Returns the limit of ungrouped records, if there is one.
    fn limit(&self) -> Option<usize> {
        self.query.limit.filter(|_| self.grouping.is_none() && self.query.having.is_empty())
    }

    fn add(&self, part: &mut Part, batch: Batch) {
        let first = batch.first;
        let mut table = batch.table();
        table.adopt(&self.template);
        self.lets.iter().for_each(|derived| derived.apply(&mut table));
        let mut rows = self.filter.rows(&table);
        if self.limit().is_some_and(|limit| limit < rows.len()) {
            rows = order::first(self.query, &table, rows, &self.paths);
        }
        match (part, &self.grouping) {
            (Part::Groups(groups), Some(grouping)) => grouping.add(groups, &table, &rows, first),
            (Part::Records(pieces), _) if !rows.is_empty() => {
                table.keep(&rows);
                let numbers = rows.iter().map(|&row| first + row as u64).collect();
                self.kept.fetch_add(rows.len(), Relaxed);
                pieces.push(Piece { numbers, table });
                if let Some(limit) = self.limit()
                    && pieces.iter().map(|piece| piece.numbers.len()).sum::<usize>()
                        > limit.saturating_mul(2).max(KEPT)
                {
                    *pieces =
                        vec![self.joined(std::mem::take(pieces)).ordered(self.query, &self.paths)];
                }
            }
            _ => {}
        }
    }

    /// Concatenates pieces in order.
    fn joined(&self, pieces: Vec<Piece>) -> Piece {
        let mut all = Piece { numbers: Vec::new(), table: self.template.without_rows() };
        all.table.globals.clone_from(&self.template.globals);
        for piece in pieces {
            all.numbers.extend(piece.numbers);
            all.table.append(&piece.table);
        }
        let mut rows: Vec<usize> = (0..all.numbers.len()).collect();
        rows.sort_unstable_by_key(|&row| all.numbers[row]);
        all.keep(&rows);
        all
    }

    fn finish(self, parts: Vec<Part>) -> Table {
        let (mut pieces, mut groups) = (Vec::new(), None);
        for part in parts {
            match (part, &self.grouping, &mut groups) {
                (Part::Records(more), ..) => pieces.extend(more),
                (Part::Groups(part), Some(grouping), Some(groups)) => grouping.merge(groups, part),
                (Part::Groups(part), _, groups) => *groups = Some(part),
            }
        }
        match self.grouping.zip(groups) {
            Some((grouping, groups)) => grouping.finish(groups),
            None => Plan { grouping: None, ..self }.joined(pieces).table,
        }
    }
}

impl Piece {
    fn keep(&mut self, rows: &[usize]) {
        self.table.keep(rows);
        self.numbers = rows.iter().map(|&row| self.numbers[row]).collect();
    }

    /// Sorts the records by the query's order, and applies LIMIT.
    fn ordered(mut self, query: &Query, paths: &order::Paths) -> Piece {
        let rows = order::first(query, &self.table, (0..self.numbers.len()).collect(), paths);
        self.keep(&rows);
        self
    }
}
