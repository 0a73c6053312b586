//! `tree`: paths as a tree, with the other columns beside it.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::{Column, Source, cell, globals, in_paths, length, titled_columns, widest};
use crate::query::{Format, Query};
use crate::table::{Attribute, AttributeId, Form, Node, NodeId, Table};
use crate::value::Bits;

/// A place of the tree.
struct Place {
    label: String,
    level: usize,
    children: Vec<usize>,
    /// Records of just this path.
    rows: Vec<usize>,
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

    /// The path of a record, outermost first.
    fn path(&self, row: usize) -> Vec<(AttributeId, Bits)> {
        let chain =
            |node: NodeId| self.answer.chain(node).filter(|of| self.has[of.attribute.0 as usize]);
        let of = |node: &Node| (node.attribute, node.value);
        let mut path: Vec<_> = chain(self.answer.paths[row]).map(of).collect();
        let Some(named) = &self.named else {
            path.reverse();
            return path;
        };
        path.extend(chain(self.answer.others[row]).map(of));
        path.reverse();
        for &id in named {
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

    /// The tree, its root first.
    fn places(&self) -> Vec<Place> {
        let place = |label, level| Place { label, level, children: Vec::new(), rows: Vec::new() };
        let mut places = vec![place(String::new(), 0)];
        let mut ids: FxHashMap<(usize, AttributeId, Bits), usize> = FxHashMap::default();
        for row in 0..self.answer.rows() {
            let mut at = 0;
            for (level, (attribute, value)) in self.path(row).into_iter().enumerate() {
                let up = at;
                at = *ids.entry((up, attribute, value)).or_insert_with(|| {
                    let kind = self.answer.of(attribute).kind;
                    places.push(place(value.show(kind, &self.answer.strings), level));
                    let id = places.len() - 1;
                    places[up].children.push(id);
                    id
                });
            }
            if at != 0 {
                places[at].rows.push(row);
            }
        }
        places
    }
}

/// The tree as lines.
struct Printer<'a> {
    answer: &'a Table,
    places: &'a [Place],
    columns: Vec<(Column<'a>, usize)>,
    /// Width of the paths' column.
    width: usize,
}

impl<'a> Printer<'a> {
    fn of(
        format: &Format,
        answer: &'a Table,
        places: &'a [Place],
        columns: Vec<Column<'a>>,
    ) -> Printer<'a> {
        let most = widest(format, 48);
        let fits = |width: usize| width.min(most).max(4);
        let of_place = |place: &Place| 2 * place.level + length(&place.label);
        let width = fits(places.iter().map(of_place).max().unwrap_or(0));
        let rows = || places.iter().flat_map(|place| &place.rows);
        let of_column = |column: Column<'a>| {
            let texts = rows().filter_map(|&row| column.text(answer, row));
            let width = texts.map(|text| length(&text)).max().unwrap_or(0);
            let width = fits(width.max(length(column.title)));
            (column, width)
        };
        let columns = columns.into_iter().map(of_column).collect();
        Printer { answer, places, columns, width }
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = String::new();
        cell(&mut line, "Path", self.width, false);
        for (column, width) in &self.columns {
            cell(&mut line, column.title, *width, false);
        }
        writeln!(out, "{}", line.trim_end())?;
        let mut open: Vec<usize> = self.places[0].children.iter().rev().copied().collect();
        while let Some(id) = open.pop() {
            self.print_place(out, &self.places[id])?;
            open.extend(self.places[id].children.iter().rev());
        }
        Ok(())
    }

    /// A line; of several records one each, below the path's.
    fn print_place(&self, out: &mut dyn Write, place: &Place) -> io::Result<()> {
        let mut line = self.path_cell(place.level, &place.label);
        match place.rows[..] {
            [] => {}
            [row] => self.add_record(&mut line, row),
            _ => {
                for &row in &place.rows {
                    writeln!(out, "{}", line.trim_end())?;
                    line = self.path_cell(place.level, " |-");
                    self.add_record(&mut line, row);
                }
            }
        }
        writeln!(out, "{}", line.trim_end())
    }

    fn path_cell(&self, level: usize, label: &str) -> String {
        let indent = (2 * level).min(self.width - 2);
        let mut line = " ".repeat(indent);
        match 2 * level >= self.width {
            true => line.push_str(".. "),
            false => cell(&mut line, label, self.width - indent, false),
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
