//! `expand` and `format`: a line per record.

use std::io::{self, Write};

use heaptide_analysis::text::printable;

use super::cells::length;
use super::columns::{Column, Source, columns};
use crate::order;
use crate::query::{Format, Query};
use crate::table::Table;

/// Writes `name=value,name=value` lines.
pub(super) fn expand(out: &mut dyn Write, query: &Query, answer: &Table) -> io::Result<()> {
    let columns = columns(query, answer);
    for row in 0..answer.rows() {
        let parts = columns.iter().filter_map(|column| {
            let value = column.text(answer, row)?;
            Some(format!("{}={value}", printable(column.title)))
        });
        let parts: Vec<String> = parts.collect();
        if !parts.is_empty() {
            writeln!(out, "{}", parts.join(","))?;
        }
    }
    Ok(())
}

/// A text, and the value that follows it.
struct Field<'a> {
    before: &'a str,
    column: Column<'a>,
    width: usize,
    align: Align,
}

#[derive(Clone, Copy)]
enum Align {
    Left,
    Right,
    Center,
}

/// Writes lines with the query's template: `text %[width,align]attribute% text`.
pub(super) fn format(
    out: &mut dyn Write,
    query: &Query,
    format: &Format,
    answer: &Table,
) -> io::Result<()> {
    if let Some(title) = format.arguments.get("title") {
        writeln!(out, "{title}")?;
    }
    let template = format.arguments.get("format").map_or("", |text| text);
    let mut fields = Vec::new();
    let mut parts = template.split('%');
    while let Some(before) = parts.next() {
        let field = field(parts.next().unwrap_or_default(), query, answer);
        fields.push(Field { before, ..field });
    }
    for row in 0..answer.rows() {
        let mut line = String::new();
        for field in &fields {
            let text = field.column.text(answer, row).unwrap_or_default();
            let space = field.width.saturating_sub(length(&text));
            let before = match field.align {
                Align::Left => 0,
                Align::Right => space,
                Align::Center => space / 2,
            };
            line.push_str(field.before);
            line.push_str(&" ".repeat(before));
            line.push_str(&text);
            line.push_str(&" ".repeat(space - before));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// The maximal width of a field.
const WIDEST: usize = 1000;

/// Parses `[width,align]attribute`.
fn field<'a>(text: &'a str, query: &Query, answer: &Table) -> Field<'a> {
    let inside = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (shape, name) = inside.unwrap_or(("", text));
    let digits = shape.trim_end_matches(|c: char| !c.is_ascii_digit());
    let width = digits.trim().parse().unwrap_or(0).min(WIDEST);
    let align = match shape[digits.len()..].trim_matches([',', ' ']) {
        "r" => Align::Right,
        "c" => Align::Center,
        _ => Align::Left,
    };
    let source = match (order::attribute(query, answer, name), name) {
        (Some(id), _) => Source::Attribute(id),
        (None, "path") => Source::Path,
        (None, _) => Source::Nothing,
    };
    Field { before: "", column: Column::exact(name, source), width, align }
}
