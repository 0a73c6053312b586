//! Formats results as text, with the layouts of Caliper's formatters.

use std::io::{self, Write};

use crate::query::{Format, Layout, Query};
use crate::table::Table;

mod cali;
mod cells;
mod columns;
mod csv;
mod json;
mod lines;
mod split;
mod table;
mod tree;

/// Writes a result.
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
        Layout::Csv => csv::write(out, query, answer),
        Layout::Expand => lines::expand(out, query, answer),
        Layout::Format => lines::format(out, query, format, answer),
        Layout::Json => json::write(out, query, format, answer),
        Layout::JsonSplit => split::write(out, query, answer),
        Layout::Table => table::write(out, query, format, answer),
        Layout::Tree => tree::write(out, query, format, answer),
    }
}
