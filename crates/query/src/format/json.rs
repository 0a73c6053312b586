//! `json`: an object for each record.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::cells::escaped;
use super::columns::{Source, columns};
use crate::query::{Format, Query};
use crate::table::{AttributeId, Form, Shown, Table};
use crate::value::Kind;

/// Writes the records that have values, as a list, as single lines, or in an object with the values
/// that apply to all records. Texts precede numbers, each sorted by name; nested attributes form
/// `path`.
pub(super) fn write(
    out: &mut dyn Write,
    query: &Query,
    format: &Format,
    answer: &Table,
) -> io::Result<()> {
    let is = |name: &str| format.arguments.contains_key(name);
    let (object, bare) = (is("object"), is("split"));
    match (object, bare) {
        (true, _) => write!(out, "{{\n\"records\": [")?,
        (_, true) => {}
        _ => write!(out, "[")?,
    }
    let keys = keys(query, answer, is("separate-nested"));
    let mut between = if bare { "" } else { "\n" };
    for row in 0..answer.rows() {
        let [texts, numbers] = record(answer, row, &keys, is("quote-all"));
        if texts.is_empty() && numbers.is_empty() {
            continue;
        }
        write!(out, "{between}{{")?;
        between = ",\n";
        let pretty = if is("pretty") { "\n\t" } else { "" };
        let mut comma = "";
        for (key, value) in texts.iter().chain(&numbers) {
            write!(out, "{comma}{pretty}\"{}\":{value}", escaped(key))?;
            comma = ",";
        }
        write!(out, "{}}}", if is("pretty") { "\n" } else { "" })?;
    }
    if !bare || object {
        write!(out, "\n]")?;
    }
    if object {
        write_globals(out, answer)?;
        write_attributes(out, query, answer)?;
        write!(out, "\n}}")?;
    }
    writeln!(out)
}

/// Returns the keys of objects with their contents.
fn keys(query: &Query, answer: &Table, separate: bool) -> Vec<(String, Source)> {
    let key = |source: Source, title: &str| match source {
        Source::Attribute(id) if answer.of(id).form == Form::Nested && !separate => {
            ("path".to_owned(), Source::Attribute(id))
        }
        source => (title.to_owned(), source),
    };
    columns(query, answer).iter().map(|column| key(column.source, column.title)).collect()
}

/// Returns the texts and numbers of a record by key, as JSON.
fn record(
    answer: &Table,
    row: usize,
    keys: &[(String, Source)],
    quote_all: bool,
) -> [BTreeMap<String, String>; 2] {
    let mut texts = BTreeMap::new();
    let mut numbers = BTreeMap::new();
    let nested: Vec<AttributeId> = keys
        .iter()
        .filter_map(|(key, source)| match source {
            Source::Attribute(id) if key == "path" => Some(*id),
            _ => None,
        })
        .collect();
    if let Some(path) = path(answer, row, &nested) {
        texts.insert("path".to_owned(), format!("\"{}\"", escaped(&path)));
    }
    for (key, source) in keys {
        let (value, quoted) = match source {
            Source::Attribute(id) if nested.contains(id) => continue,
            Source::Attribute(id) => {
                let of = answer.of(*id);
                let value = of.column.get(row);
                let finite = of.kind != Kind::Double
                    || value.is_some_and(|bits| f64::from_bits(bits.0).is_finite());
                let plain = value.is_some() && finite;
                let quoted = matches!(of.kind, Kind::Text | Kind::Address) || !plain;
                (answer.text(row, *id), quoted || quote_all)
            }
            Source::Path => (answer.path_text(row), true),
            Source::Nothing => (None, true),
        };
        match (value, quoted) {
            (None, _) => {}
            (Some(value), true) => {
                texts.insert(key.clone(), format!("\"{}\"", escaped(&value)));
            }
            (Some(value), false) => {
                numbers.insert(key.clone(), value);
            }
        }
    }
    [texts, numbers]
}

/// Returns the path of a record, restricted to these attributes.
fn path(answer: &Table, row: usize, of: &[AttributeId]) -> Option<String> {
    if of.is_empty() {
        return None;
    }
    let chain = answer.chain(answer.paths[row]).filter(|node| of.contains(&node.attribute));
    let show = |node: &crate::table::Node| {
        node.value.show(answer.of(node.attribute).kind, &answer.strings)
    };
    let mut parts: Vec<String> = chain.map(show).collect();
    parts.reverse();
    (!parts.is_empty()).then(|| parts.join("/"))
}

fn write_globals(out: &mut dyn Write, answer: &Table) -> io::Result<()> {
    write!(out, ",\n\"globals\": {{\n")?;
    let mut between = "";
    for (name, value) in &answer.globals {
        write!(out, "{between}\"{}\": \"{}\"", escaped(name), escaped(value))?;
        between = ",\n";
    }
    write!(out, "\n}}")
}

fn write_attributes(out: &mut dyn Write, query: &Query, answer: &Table) -> io::Result<()> {
    write!(out, ",\n\"attributes\": {{")?;
    let mut between = "\n";
    for column in columns(query, answer) {
        let Source::Attribute(id) = column.source else {
            continue;
        };
        let of = answer.of(id);
        if of.shown == Shown::IfNamed {
            continue;
        }
        let nested = of.form == Form::Nested;
        write!(out, "{between}\"{}\": {{\"is_global\": false", escaped(&of.name))?;
        write!(out, ",\"is_nested\": {nested},\"cali.attribute.type\": \"{}\"", of.kind.name())?;
        if let Some(unit) = query.units.get(&*of.name) {
            write!(out, ",\"attribute.unit\": \"{}\"", escaped(unit))?;
        }
        write!(out, "}}")?;
        between = ",\n";
    }
    write!(out, "\n}}")
}
