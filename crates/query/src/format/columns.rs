//! The columns of a result: their selection, titles, and text per record.

use std::fmt::Write;

use heaptide_analysis::text::printable;

use crate::order;
use crate::query::{EXACT, Format, Query};
use crate::table::{AttributeId, NodeId, Shown, Table};

/// The contents of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The values of an attribute.
    Attribute(AttributeId),
    /// The path.
    Path,
    /// Nothing, because no record has the attribute.
    Nothing,
}

/// A column and its title.
pub(crate) struct Column<'a> {
    pub(crate) title: &'a str,
    pub(crate) source: Source,
    numbers: Numbers,
}

/// The format of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Numbers {
    /// Sizes and durations with units.
    WithUnits,
    /// All digits.
    Exact,
}

impl<'a> Column<'a> {
    /// Creates a column that shows all digits of its numbers.
    pub(crate) fn exact(title: &'a str, source: Source) -> Column<'a> {
        Column { title, source, numbers: Numbers::Exact }
    }

    /// Returns its text for a record, in one line; `None` if the record has no value.
    pub(crate) fn text(&self, answer: &Table, row: usize) -> Option<String> {
        let text = match self.source {
            Source::Attribute(id) => self.with_unit(answer, row).or_else(|| answer.text(row, id)),
            Source::Path => answer.path_text(row),
            Source::Nothing => None,
        }?;
        Some(printable(&text).into_owned())
    }

    /// Appends its text for a record; nothing if the record has no value.
    pub(crate) fn write(&self, answer: &Table, row: usize, to: &mut String) {
        let number = match self.source {
            Source::Attribute(id) => answer.uint(row, id),
            _ => None,
        };
        if let Some(text) = self.with_unit(answer, row) {
            to.push_str(&text);
        } else if let Some(number) = number {
            let _ = write!(to, "{number}"); // a String accepts any text
        } else if let Some(text) = self.text(answer, row) {
            to.push_str(&text);
        }
    }

    fn with_unit(&self, answer: &Table, row: usize) -> Option<String> {
        match (self.source, self.numbers) {
            (Source::Attribute(id), Numbers::WithUnits) => answer.with_unit(row, id),
            _ => None,
        }
    }

    /// Returns whether it contains numbers, which are right-aligned.
    pub(crate) fn is_number(&self, answer: &Table) -> bool {
        matches!(self.source, Source::Attribute(id) if answer.of(id).kind.is_number())
    }
}

/// Returns the columns that the query selects, or else those that have values.
pub(crate) fn columns<'a>(query: &'a Query, answer: &'a Table) -> Vec<Column<'a>> {
    if let Some(select) = query.select.as_ref().filter(|_| !query.all) {
        let column = |name: &'a str| {
            let source = match (order::attribute(query, answer, name), name) {
                (Some(id), _) => Source::Attribute(id),
                (None, "path" | "prop:nested") => Source::Path,
                (None, _) => Source::Nothing,
            };
            Column::exact(query.title(name), source)
        };
        return select.iter().map(|item| column(&item.name.text)).collect();
    }
    let used = used(answer);
    let mut ids: Vec<usize> = (0..used.len()).filter(|&id| used[id] != Use::Nowhere).collect();
    ids.retain(|&id| answer.attributes[id].shown == Shown::Always);
    ids.sort_by_key(|&id| used[id]);
    let column = |id: usize| {
        let source = Source::Attribute(AttributeId(id as u32));
        Column::exact(query.title(&answer.attributes[id].name), source)
    };
    ids.into_iter().map(column).collect()
}

/// Like `columns`, for people: with units, and with the file's titles of attributes unless the
/// query sets others.
pub(crate) fn titled_columns<'a>(
    query: &'a Query,
    format: &Format,
    answer: &'a Table,
) -> Vec<Column<'a>> {
    let mut columns = columns(query, answer);
    if !format.arguments.contains_key(EXACT) {
        columns.iter_mut().for_each(|column| column.numbers = Numbers::WithUnits);
    }
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

/// How records use an attribute.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Nodes,
    Values,
    Nowhere,
}

/// Returns the use of each attribute.
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

/// Returns which attributes occur in the path of any record.
pub(crate) fn in_paths(answer: &Table) -> Vec<bool> {
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
