//! `tree`: paths as a tree, with the other columns next to it.

use std::cell::OnceCell;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::cells::{Shown, cell, globals, length, shown_cell, spaces, widest};
use super::columns::{Column, Source, in_paths, titled_columns};
use crate::query::{Format, Query};
use crate::table::{Attribute, AttributeId, Form, Node, NodeId, Table};
use crate::value::{Bits, Kind};

/// A node of the output tree. Indices of 0 mean no node, and no record.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Its value.
    value: Option<(AttributeId, Bits)>,
    level: u32,
    /// Its first child.
    below: u32,
    /// Its next sibling.
    next: u32,
    /// The first and the last record with exactly this path, numbered from 1.
    rows: [u32; 2],
}

/// The output tree, its root first.
struct Places {
    all: Vec<Place>,
    /// By node, its last child.
    last_below: Vec<u32>,
    /// By record, the next one with the same path.
    next_rows: Vec<u32>,
}

impl Places {
    fn new(rows: usize) -> Places {
        Places { all: vec![Place::default()], last_below: vec![0], next_rows: vec![0; rows + 1] }
    }

    /// Adds a node below another.
    fn add(&mut self, up: u32, value: (AttributeId, Bits)) -> u32 {
        let id = self.all.len() as u32;
        let above = &mut self.all[up as usize];
        let level = if up == 0 { 0 } else { above.level + 1 };
        match std::mem::replace(&mut self.last_below[up as usize], id) {
            0 => above.below = id,
            last => self.all[last as usize].next = id,
        }
        self.all.push(Place { value: Some(value), level, ..Place::default() });
        self.last_below.push(0);
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

    /// Returns the children of a node.
    fn below(&self, place: &Place) -> impl Iterator<Item = &Place> {
        let at = |id: u32| Some(&self.all[id as usize]).filter(|_| id > 0);
        std::iter::successors(at(place.below), move |place| at(place.next))
    }

    /// Returns the records of a node.
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
    let paths = Paths::of(query, format, answer);
    let places = paths.places();
    let mut columns = titled_columns(query, format, answer);
    columns.retain(|column| match column.source {
        Source::Attribute(id) => !paths.has[id.0 as usize],
        Source::Path | Source::Nothing => false,
    });
    Printer::of(format, answer, &places, columns).print(out)
}

/// The values that form the path.
struct Paths<'a> {
    answer: &'a Table,
    /// By attribute, whether it is part of the path.
    has: Vec<bool>,
    /// The attributes that were named, in order; `None` to use the records' own paths.
    named: Option<Vec<AttributeId>>,
    /// The order of siblings.
    order: Order,
}

/// The order of siblings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// By first record.
    Records,
    /// By first node: scopes in the order in which they were first entered.
    Nodes,
}

impl<'a> Paths<'a> {
    fn of(query: &Query, format: &Format, answer: &'a Table) -> Paths<'a> {
        let order = if query.order.is_empty() { Order::Nodes } else { Order::Records };
        let names = format.arguments.get("path-attributes").map(|names| names.split(','));
        let names: Option<Vec<&str>> = names.map(|names| names.map(str::trim).collect());
        let names =
            names.filter(|names| !names.iter().all(|n| matches!(*n, "path" | "prop:nested")));
        let Some(names) = names else {
            return Paths { answer, has: in_paths(answer), named: None, order };
        };
        let named: Vec<AttributeId> = names.iter().filter_map(|name| answer.named(name)).collect();
        let mut has = vec![false; answer.attributes.len()];
        named.iter().for_each(|id| has[id.0 as usize] = true);
        Paths { answer, has, named: Some(named), order }
    }

    /// Returns the path of a record from the named attributes, outermost first.
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

    /// Builds the tree.
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

    /// Builds the tree from the records' own paths.
    fn places_of_nodes(&self) -> Places {
        let nodes = &self.answer.nodes;
        let mut places = Places::new(self.answer.rows());
        let mut known = vec![0; nodes.len()];
        let mut open = Vec::new();
        if self.order == Order::Nodes {
            for id in self.nodes_with_records() {
                let node = nodes[id];
                let above = known[node.parent.0 as usize];
                known[id] = places.add(above, (node.attribute, node.value));
            }
        }
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

    /// Returns the nodes in paths of records, parents first.
    fn nodes_with_records(&self) -> impl Iterator<Item = usize> {
        let mut has_records = vec![false; self.answer.nodes.len()];
        for &path in &self.answer.paths {
            let mut at = path;
            while at != NodeId(0) && !std::mem::replace(&mut has_records[at.0 as usize], true) {
                at = self.answer.nodes[at.0 as usize].parent;
            }
        }
        has_records.into_iter().enumerate().filter_map(|(id, has)| has.then_some(id))
    }
}

/// Formats the tree as lines.
struct Printer<'a> {
    answer: &'a Table,
    places: &'a Places,
    labels: Labels<'a>,
    columns: Vec<(Column<'a>, usize)>,
    /// Width of the column with paths.
    width: usize,
}

/// The texts of nodes, many of which are shared.
struct Labels<'a> {
    answer: &'a Table,
    /// By the bits of a text that a node has.
    texts: Vec<OnceCell<Shown<'a>>>,
}

impl<'a> Labels<'a> {
    fn of(answer: &'a Table) -> Labels<'a> {
        let texts = (0..answer.strings.all().len()).map(|_| OnceCell::new()).collect();
        Labels { answer, texts }
    }

    /// Calls `look` with the text of a node.
    fn with<T>(&self, place: &Place, look: impl FnOnce(&Shown) -> T) -> T {
        let Some((attribute, value)) = place.value else {
            return look(&Shown::of(""));
        };
        let strings = &self.answer.strings;
        match (self.answer.of(attribute).kind, self.texts.get(value.0 as usize)) {
            (Kind::Text, Some(text)) => look(text.get_or_init(|| Shown::of(strings.get(value)))),
            (kind, _) => look(&Shown::of(value.show(kind, strings))),
        }
    }
}

/// Approximate number of bytes of lines to write at once.
const LINES_BYTES: usize = 1 << 16;

impl<'a> Printer<'a> {
    fn of(
        format: &Format,
        answer: &'a Table,
        places: &'a Places,
        columns: Vec<Column<'a>>,
    ) -> Printer<'a> {
        let most = widest(format, 48);
        let fits = |width: usize| width.min(most).max(4);
        let labels = Labels::of(answer);
        let all = || places.all.iter().skip(1);
        let of_place =
            |place: &Place| 2 * place.level as usize + labels.with(place, |text| text.length);
        let width = fits(all().map(of_place).max().unwrap_or(0));
        let mut text = String::new();
        let mut of_column = |column: Column<'a>| {
            let rows = all().flat_map(|place| places.rows(place));
            let widths = rows.map(|row| {
                text.clear();
                column.write(answer, row, &mut text);
                length(&text)
            });
            let width = fits(widths.max().unwrap_or(0).max(length(column.title)));
            (column, width)
        };
        let columns = columns.into_iter().map(&mut of_column).collect();
        Printer { answer, places, labels, columns, width }
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut lines = String::new();
        cell(&mut lines, "Path", self.width, false);
        for (column, width) in &self.columns {
            cell(&mut lines, column.title, *width, false);
        }
        end_line(&mut lines, 0);
        let mut open = vec![&self.places.all[0]];
        while let Some(place) = open.pop() {
            if place.value.is_some() {
                self.add_place(&mut lines, place);
            }
            if lines.len() >= LINES_BYTES {
                out.write_all(lines.as_bytes())?;
                lines.clear();
            }
            let from = open.len();
            open.extend(self.places.below(place));
            open[from..].reverse();
        }
        out.write_all(lines.as_bytes())
    }

    /// Appends the line of a node. If it has several records, each gets a line below.
    fn add_place(&self, lines: &mut String, place: &Place) {
        let mut begin = lines.len();
        self.labels.with(place, |label| self.add_path(lines, place.level, label));
        let several = place.rows[0] != place.rows[1];
        for row in self.places.rows(place) {
            if several {
                end_line(lines, begin);
                begin = lines.len();
                self.add_path(lines, place.level, &Shown::of(" |-"));
            }
            self.add_record(lines, row);
        }
        end_line(lines, begin);
    }

    fn add_path(&self, line: &mut String, level: u32, label: &Shown) {
        let indent = 2 * level as usize;
        let shown = indent.min(self.width - 2);
        spaces(line, shown);
        if indent >= self.width {
            line.push_str(".. ")
        } else {
            shown_cell(line, label, self.width - shown, false)
        }
    }

    fn add_record(&self, line: &mut String, row: usize) {
        let mut text = String::new();
        for (column, width) in &self.columns {
            text.clear();
            column.write(self.answer, row, &mut text);
            cell(line, &text, *width, column.is_number(self.answer));
        }
    }
}

/// Trims the line that starts at this byte, and ends it.
fn end_line(lines: &mut String, begin: usize) {
    let length = lines[begin..].trim_end().len();
    lines.truncate(begin + length);
    lines.push('\n');
}
