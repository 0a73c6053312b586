//! `tree`: paths as a tree, with the other columns beside it.

use std::borrow::Cow;
use std::io::{self, Write};

use heaptide_analysis::text::printable;
use rustc_hash::FxHashMap;

use super::cells::{cell, globals, length, widest};
use super::columns::{Column, Source, in_paths, titled_columns};
use crate::query::{Format, Query};
use crate::table::{Attribute, AttributeId, Form, Node, NodeId, Table};
use crate::value::{Bits, Kind};

/// A place of the tree. 0 is no place, and no record.
#[derive(Clone, Copy, Default)]
struct Place {
    /// What is there.
    value: Option<(AttributeId, Bits)>,
    level: u32,
    /// Places right below it, the first and the last.
    below: [u32; 2],
    /// The place after it below the same.
    next: u32,
    /// Records of just this path, numbered from 1: the first and the last.
    rows: [u32; 2],
}

/// The tree, its root first.
struct Places {
    all: Vec<Place>,
    /// By record, the next one of the same path.
    next_rows: Vec<u32>,
}

impl Places {
    fn new(rows: usize) -> Places {
        Places { all: vec![Place::default()], next_rows: vec![0; rows + 1] }
    }

    /// A new place below another.
    fn add(&mut self, up: u32, value: (AttributeId, Bits)) -> u32 {
        let id = self.all.len() as u32;
        let above = &mut self.all[up as usize];
        let level = if up == 0 { 0 } else { above.level + 1 };
        let last = std::mem::replace(&mut above.below[1], id);
        match last {
            0 => above.below[0] = id,
            last => self.all[last as usize].next = id,
        }
        self.all.push(Place { value: Some(value), level, ..Place::default() });
        id
    }

    fn add_row(&mut self, at: u32, row: usize) {
        if at == 0 {
            return;
        }
        let row = row as u32 + 1;
        let rows = &mut self.all[at as usize].rows;
        match std::mem::replace(&mut rows[1], row) {
            0 => rows[0] = row,
            last => self.next_rows[last as usize] = row,
        }
    }

    /// The places right below one.
    fn below(&self, place: &Place) -> impl Iterator<Item = &Place> {
        let at = |id: u32| Some(&self.all[id as usize]).filter(|_| id > 0);
        std::iter::successors(at(place.below[0]), move |place| at(place.next))
    }

    /// The records of a place.
    fn rows(&self, place: &Place) -> impl Iterator<Item = usize> {
        let there = |row: u32| Some(row).filter(|row| *row > 0);
        let next = move |row: &u32| there(self.next_rows[*row as usize]);
        std::iter::successors(there(place.rows[0]), next).map(|row| row as usize - 1)
    }
}

/// Writes the records that have a path.
pub(super) fn write(
    out: &mut dyn Write,
    query: &Query,
    format: &Format,
    answer: &Table,
) -> io::Result<()> {
    globals(out, format, answer)?;
    let paths = Paths::of(format, answer);
    let places = paths.places();
    let mut columns = titled_columns(query, answer);
    columns.retain(|column| match column.source {
        Source::Attribute(id) => !paths.has[id.0 as usize],
        Source::Path | Source::Nothing => false,
    });
    Printer::of(format, answer, &places, columns).print(out)
}

/// Which values are the path.
struct Paths<'a> {
    answer: &'a Table,
    /// By attribute.
    has: Vec<bool>,
    /// Attributes that were named, in order; none for the paths that records have.
    named: Option<Vec<AttributeId>>,
}

impl<'a> Paths<'a> {
    fn of(format: &Format, answer: &'a Table) -> Paths<'a> {
        let names = format.arguments.get("path-attributes").map(|names| names.split(','));
        let names: Option<Vec<&str>> = names.map(|names| names.map(str::trim).collect());
        let names =
            names.filter(|names| !names.iter().all(|n| matches!(*n, "path" | "prop:nested")));
        let Some(names) = names else {
            return Paths { answer, has: in_paths(answer), named: None };
        };
        let named: Vec<AttributeId> = names.iter().filter_map(|name| answer.named(name)).collect();
        let mut has = vec![false; answer.attributes.len()];
        named.iter().for_each(|id| has[id.0 as usize] = true);
        Paths { answer, has, named: Some(named) }
    }

    /// The path of a record by the attributes that were named, outermost first.
    fn path(&self, row: usize) -> Vec<(AttributeId, Bits)> {
        let chain =
            |node: NodeId| self.answer.chain(node).filter(|of| self.has[of.attribute.0 as usize]);
        let of = |node: &Node| (node.attribute, node.value);
        let mut path: Vec<_> = chain(self.answer.paths[row]).map(of).collect();
        path.extend(chain(self.answer.others[row]).map(of));
        path.reverse();
        for &id in self.named.iter().flatten() {
            let Attribute { form, ref column, .. } = *self.answer.of(id);
            match column.get(row) {
                Some(bits) if form == Form::Tree => {
                    let from = path.len();
                    path.extend(chain(NodeId(bits.0 as u32)).map(of));
                    path[from..].reverse();
                }
                value => path.extend(value.map(|value| (id, value))),
            }
        }
        path
    }

    /// The tree.
    fn places(&self) -> Places {
        if self.named.is_none() {
            return self.places_of_nodes();
        }
        let mut places = Places::new(self.answer.rows());
        let mut ids: FxHashMap<(u32, AttributeId, Bits), u32> = FxHashMap::default();
        for row in 0..self.answer.rows() {
            let at = self.path(row).into_iter().fold(0, |up, (attribute, value)| {
                let id = ids.entry((up, attribute, value));
                *id.or_insert_with(|| places.add(up, (attribute, value)))
            });
            places.add_row(at, row);
        }
        places
    }

    /// Of the paths that records have, each node is a place.
    fn places_of_nodes(&self) -> Places {
        let nodes = &self.answer.nodes;
        let mut places = Places::new(self.answer.rows());
        let mut known = vec![0; nodes.len()];
        let mut open = Vec::new();
        for (row, &path) in self.answer.paths.iter().enumerate() {
            let mut node = path;
            while node != NodeId(0) && known[node.0 as usize] == 0 {
                open.push(node);
                node = nodes[node.0 as usize].parent;
            }
            let mut at = known[node.0 as usize];
            while let Some(id) = open.pop() {
                let node = nodes[id.0 as usize];
                at = places.add(at, (node.attribute, node.value));
                known[id.0 as usize] = at;
            }
            places.add_row(at, row);
        }
        places
    }
}

/// The tree as lines.
struct Printer<'a> {
    answer: &'a Table,
    places: &'a Places,
    columns: Vec<(Column<'a>, usize)>,
    /// Width of the paths' column.
    width: usize,
}

impl<'a> Printer<'a> {
    fn of(
        format: &Format,
        answer: &'a Table,
        places: &'a Places,
        columns: Vec<Column<'a>>,
    ) -> Printer<'a> {
        let most = widest(format, 48);
        let fits = |width: usize| width.min(most).max(4);
        let mut printer = Printer { answer, places, columns: Vec::new(), width: 0 };
        let all = || places.all.iter().skip(1);
        let of_place = |place: &Place| 2 * place.level as usize + length(&printer.label(place));
        printer.width = fits(all().map(of_place).max().unwrap_or(0));
        let of_column = |column: Column<'a>| {
            let rows = all().flat_map(|place| places.rows(place));
            let texts = rows.filter_map(|row| column.text(answer, row));
            let width = texts.map(|text| length(&text)).max().unwrap_or(0);
            let width = fits(width.max(length(column.title)));
            (column, width)
        };
        printer.columns = columns.into_iter().map(of_column).collect();
        printer
    }

    /// What is at a place.
    fn label(&self, place: &Place) -> Cow<'a, str> {
        let Some((attribute, value)) = place.value else {
            return Cow::Borrowed("");
        };
        match self.answer.of(attribute).kind {
            Kind::Text => printable(self.answer.strings.get(value)),
            kind => Cow::Owned(value.show(kind, &self.answer.strings)),
        }
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = String::new();
        cell(&mut line, "Path", self.width, false);
        for (column, width) in &self.columns {
            cell(&mut line, column.title, *width, false);
        }
        writeln!(out, "{}", line.trim_end())?;
        let mut open = vec![&self.places.all[0]];
        while let Some(place) = open.pop() {
            if place.value.is_some() {
                self.print_place(out, place)?;
            }
            let from = open.len();
            open.extend(self.places.below(place));
            open[from..].reverse();
        }
        Ok(())
    }

    /// A line; of several records one each, below the path's.
    fn print_place(&self, out: &mut dyn Write, place: &Place) -> io::Result<()> {
        let mut line = self.path_cell(place.level, &self.label(place));
        let several = place.rows[0] != place.rows[1];
        for row in self.places.rows(place) {
            if several {
                writeln!(out, "{}", line.trim_end())?;
                line = self.path_cell(place.level, " |-");
            }
            self.add_record(&mut line, row);
        }
        writeln!(out, "{}", line.trim_end())
    }

    fn path_cell(&self, level: u32, label: &str) -> String {
        let indent = 2 * level as usize;
        let shown = indent.min(self.width - 2);
        let mut line = " ".repeat(shown);
        if indent >= self.width {
            line.push_str(".. ")
        } else {
            cell(&mut line, label, self.width - shown, false)
        }
        line
    }

    fn add_record(&self, line: &mut String, row: usize) {
        for (column, width) in &self.columns {
            let text = column.text(self.answer, row).unwrap_or_default();
            cell(line, &text, *width, column.is_number(self.answer));
        }
    }
}
