//! `json-split`: rows, the names of their columns, and a tree that hierarchies refer to.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::cells::escaped;
use super::columns::{Column, Source, columns};
use crate::query::Query;
use crate::table::{AttributeId, Form, Table};
use crate::value::Kind;

/// The contents of an output column.
enum Cells {
    /// A value of each record.
    Values(AttributeId),
    /// A node of the tree: a path of these attributes.
    Nodes(Vec<AttributeId>),
}

struct Output<'a> {
    title: &'a str,
    cells: Cells,
}

/// The tree of paths: label, column and parent of each node.
#[derive(Default)]
struct Hierarchy<'a> {
    nodes: Vec<(String, &'a str, Option<usize>)>,
    ids: FxHashMap<(Option<usize>, String), usize>,
}

impl<'a> Hierarchy<'a> {
    fn id(&mut self, path: Vec<String>, column: &'a str) -> Option<usize> {
        path.into_iter().fold(None, |parent, label| {
            let next = self.nodes.len();
            let id = *self.ids.entry((parent, label.clone())).or_insert(next);
            if id == next {
                self.nodes.push((label, column, parent));
            }
            Some(id)
        })
    }
}

/// Writes the object.
pub(super) fn write(out: &mut dyn Write, query: &Query, answer: &Table) -> io::Result<()> {
    let outputs = outputs(columns(query, answer), answer);
    let mut hierarchy = Hierarchy::default();
    write!(out, "{{\n  \"data\": [")?;
    for row in 0..answer.rows() {
        let cells = outputs.iter().map(|output| match &output.cells {
            Cells::Values(id) => value(answer, row, *id),
            Cells::Nodes(of) => {
                let id = hierarchy.id(labels(answer, row, of), output.title);
                id.map_or("null".to_owned(), |id| id.to_string())
            }
        });
        let cells: Vec<String> = cells.collect();
        write!(out, "{}    [ {} ]", if row > 0 { ",\n" } else { "\n" }, cells.join(", "))?;
    }
    let titles: Vec<String> = outputs.iter().map(|o| format!("\"{}\"", escaped(o.title))).collect();
    write!(out, "\n  ],\n  \"columns\": [ {} ]", titles.join(", "))?;
    let metadata: Vec<String> = outputs.iter().map(|o| metadata(query, answer, o)).collect();
    write!(out, ",\n  \"column_metadata\": [ {} ]", metadata.join(", "))?;
    let node = |(label, column, parent): &(String, &str, Option<usize>)| {
        let parent = parent.map(|id| format!(", \"parent\": {id}")).unwrap_or_default();
        format!(
            "{{ \"label\": \"{}\", \"column\": \"{}\"{parent} }}",
            escaped(label),
            escaped(column)
        )
    };
    let nodes: Vec<String> = hierarchy.nodes.iter().map(node).collect();
    write!(out, ",\n  \"nodes\": [ {} ]", nodes.join(", "))?;
    for (name, value) in &answer.globals {
        write!(out, ",\n  \"{}\": \"{}\"", escaped(name), escaped(value))?;
    }
    writeln!(out, "\n}}")
}

/// Returns the columns; nested attributes are joined into a last one called `path`.
fn outputs<'a>(columns: Vec<Column<'a>>, answer: &Table) -> Vec<Output<'a>> {
    let mut path = Vec::new();
    let mut outputs = Vec::new();
    for Column { title, source, .. } in columns {
        match source {
            Source::Attribute(id) => match answer.of(id).form {
                Form::Nested => path.push(id),
                Form::Value => outputs.push(Output { title, cells: Cells::Values(id) }),
                _ => outputs.push(Output { title, cells: Cells::Nodes(vec![id]) }),
            },
            Source::Path => path.extend(crate::filter::nested(answer)),
            Source::Nothing => {}
        }
    }
    if !path.is_empty() {
        outputs.push(Output { title: "path", cells: Cells::Nodes(path) });
    }
    outputs
}

fn value(answer: &Table, row: usize, id: AttributeId) -> String {
    let of = answer.of(id);
    let number = of.column.get(row).filter(|bits| match of.kind {
        Kind::Double => f64::from_bits(bits.0).is_finite(),
        kind => kind.is_number(),
    });
    match (number, answer.text(row, id)) {
        (Some(_), Some(text)) => text,
        (None, Some(text)) => format!("\"{}\"", escaped(&text)),
        (_, None) => "null".to_owned(),
    }
}

/// Returns the path of a record, restricted to these attributes, outermost first.
fn labels(answer: &Table, row: usize, of: &[AttributeId]) -> Vec<String> {
    let own = of.iter().filter(|id| answer.of(**id).form == Form::Tree);
    let own = own.flat_map(|id| answer.places(row, *id).take(1));
    let nodes = [answer.paths[row], answer.others[row]].into_iter().chain(own);
    let all = nodes.flat_map(|node| answer.chain(node));
    let show = |node: &crate::table::Node| {
        node.value.show(answer.of(node.attribute).kind, &answer.strings)
    };
    let mut labels: Vec<String> =
        all.filter(|node| of.contains(&node.attribute)).map(show).collect();
    labels.reverse();
    labels
}

fn metadata(query: &Query, answer: &Table, output: &Output) -> String {
    let Cells::Values(id) = output.cells else {
        return "{ \"is_value\": false }".to_owned();
    };
    let name = &*answer.of(id).name;
    let part = |key: &str, value: Option<&String>| {
        value.map(|value| format!(", \"{key}\": \"{}\"", escaped(value))).unwrap_or_default()
    };
    let alias = part("attribute.alias", query.aliases.get(name));
    let unit = part("attribute.unit", query.units.get(name));
    let kind = answer.of(id).kind.name();
    format!("{{ \"is_value\": true, \"attribute.type\": \"{kind}\"{alias}{unit} }}")
}
