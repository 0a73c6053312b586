//! Answers as text, as Caliper's formatters lay them out.

use std::io::{self, Write};

use heaptide_analysis::text::{is_unprintable, printable};

use crate::order;
use crate::query::{Format, Layout, Query};
use crate::table::{AttributeId, NodeId, Shown, Table};

mod cali;
mod json;
mod lines;
mod split;
mod table;
mod tree;

/// Writes an answer.
///
/// ```
/// use heaptide_query::{format, parse, parse_format, table::Table};
/// let (query, format) = (parse("SELECT a").unwrap(), parse_format("table").unwrap());
/// let mut out = Vec::new();
/// format::write(&mut out, &query, &format, &Table::default()).unwrap();
/// assert_eq!(out, b"a\n");
/// ```
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    query: &Query,
    format: &Format,
    answer: &Table,
) -> io::Result<()> {
    match format.layout {
        Layout::Cali => cali::write(out, query, answer),
        Layout::Expand => lines::expand(out, query, answer),
        Layout::Format => lines::format(out, query, format, answer),
        Layout::Json => json::write(out, query, format, answer),
        Layout::JsonSplit => split::write(out, query, answer),
        Layout::Table => table::write(out, query, format, answer),
        Layout::Tree => tree::write(out, query, format, answer),
    }
}

/// What a column shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// The values of an attribute.
    Attribute(AttributeId),
    /// The path.
    Path,
    /// Nothing: no record has the attribute.
    Nothing,
}

/// A column and its title.
struct Column<'a> {
    title: &'a str,
    source: Source,
}

impl Column<'_> {
    /// What it shows of a record, in one line; none if there is nothing.
    fn text(&self, answer: &Table, row: usize) -> Option<String> {
        let text = match self.source {
            Source::Attribute(id) => answer.text(row, id),
            Source::Path => answer.path_text(row),
            Source::Nothing => None,
        }?;
        Some(printable(&text).into_owned())
    }

    /// Whether it shows numbers, which stand on the right.
    fn is_number(&self, answer: &Table) -> bool {
        matches!(self.source, Source::Attribute(id) if answer.of(id).kind.is_number())
    }
}

/// The columns that are asked for, or those that have anything.
fn columns<'a>(query: &'a Query, answer: &'a Table) -> Vec<Column<'a>> {
    if let Some(select) = query.select.as_ref().filter(|_| !query.all) {
        let column = |name: &'a str| {
            let source = match (order::attribute(query, answer, name), name) {
                (Some(id), _) => Source::Attribute(id),
                (None, "path" | "prop:nested") => Source::Path,
                (None, _) => Source::Nothing,
            };
            Column { title: query.title(name), source }
        };
        return select.iter().map(|item| column(&item.name.text)).collect();
    }
    let used = used(answer);
    let mut ids: Vec<usize> = (0..used.len()).filter(|&id| used[id] != Use::Nowhere).collect();
    ids.retain(|&id| answer.attributes[id].shown == Shown::Always);
    ids.sort_by_key(|&id| used[id]);
    let column = |id: usize| Column {
        title: query.title(&answer.attributes[id].name),
        source: Source::Attribute(AttributeId(id as u32)),
    };
    ids.into_iter().map(column).collect()
}

/// The same with the titles that a file has for attributes, where the query names none.
fn titled_columns<'a>(query: &'a Query, answer: &'a Table) -> Vec<Column<'a>> {
    let mut columns = columns(query, answer);
    for column in columns.iter_mut().filter(|_| query.select.is_none() || query.all) {
        if let Source::Attribute(id) = column.source
            && let of = answer.of(id)
            && !query.aliases.contains_key(&*of.name)
        {
            column.title = of.alias.as_deref().unwrap_or(column.title);
        }
    }
    columns
}

/// Where records have an attribute.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Nodes,
    Values,
    Nowhere,
}

/// By attribute.
fn used(answer: &Table) -> Vec<Use> {
    let mut seen = vec![false; answer.nodes.len()];
    answer.paths.iter().chain(&answer.others).for_each(|node| seen[node.0 as usize] = true);
    let columns = answer
        .attributes
        .iter()
        .map(|of| if of.column.is_empty() { Use::Nowhere } else { Use::Values });
    let mut used: Vec<Use> = columns.collect();
    for id in (1..answer.nodes.len()).rev().filter(|&id| id > 0) {
        if seen[id] {
            let node = answer.nodes[id];
            seen[node.parent.0 as usize] = true;
            used[node.attribute.0 as usize] = Use::Nodes;
        }
    }
    used
}

/// Attributes that the path of any record has.
fn in_paths(answer: &Table) -> Vec<bool> {
    let mut in_paths = vec![false; answer.attributes.len()];
    let mut seen = vec![false; answer.nodes.len()];
    for &path in &answer.paths {
        let mut at = path;
        while at != NodeId(0) && !seen[at.0 as usize] {
            seen[at.0 as usize] = true;
            let node = answer.nodes[at.0 as usize];
            in_paths[node.attribute.0 as usize] = true;
            at = node.parent;
        }
    }
    in_paths
}

/// The widest a column gets; a `column-width` that is not above 0 is no bound.
fn widest(format: &Format, otherwise: usize) -> usize {
    match format.arguments.get("column-width").and_then(|width| width.parse::<i32>().ok()) {
        Some(width) if width > 0 => width as usize,
        Some(_) => usize::MAX,
        None => otherwise,
    }
}

/// Characters of a text.
fn length(text: &str) -> usize {
    text.chars().count()
}

/// The text with its middle left out if it is longer than `width`.
fn clamped(text: &str, width: usize) -> String {
    if text.len() <= width {
        return text.to_owned();
    }
    let all: Vec<char> = text.chars().collect();
    match width {
        _ if all.len() <= width => text.to_owned(),
        0..4 => all[..width].iter().collect(),
        _ => {
            let side = width / 2 - 1;
            let mut short: String = all[..side].iter().collect();
            short.push_str("~~");
            short.extend(&all[all.len() - side..]);
            short
        }
    }
}

/// A cell of a line; numbers stand on the right.
fn cell(line: &mut String, text: &str, width: usize, is_number: bool) {
    let text = clamped(&printable(text), width);
    let space = " ".repeat(width.min(1 << 16).saturating_sub(length(&text)));
    if is_number {
        line.extend([&*space, &*text, " "])
    } else {
        line.extend([&*text, &*space, " "])
    }
}

/// What holds for all records, a line each.
fn globals(out: &mut dyn Write, format: &Format, answer: &Table) -> io::Result<()> {
    if !format.arguments.contains_key("print-globals") {
        return Ok(());
    }
    let width = answer.globals.iter().map(|(name, _)| length(name)).max().unwrap_or(0).min(24);
    for (name, value) in &answer.globals {
        let mut line = String::new();
        cell(&mut line, name, width, false);
        writeln!(out, "{line}: {}", clamped(&printable(value), 52))?;
    }
    Ok(())
}

/// A text inside the quotes of JSON.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            '\n' => escaped.push_str("\\n"),
            '\t' => escaped.push_str("\\t"),
            c if is_unprintable(c) => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}
