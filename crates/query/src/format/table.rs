//! `table`: columns with titles.

use std::io::{self, Write};

use super::cells::{cell, globals, length, widest};
use super::columns::titled_columns;
use crate::query::{Format, Query};
use crate::table::Table;

/// Writes the records that have values in these columns.
pub(super) fn write(
    out: &mut dyn Write,
    query: &Query,
    format: &Format,
    answer: &Table,
) -> io::Result<()> {
    globals(out, format, answer)?;
    let columns = titled_columns(query, format, answer);
    let row = |row| columns.iter().map(|c| c.text(answer, row).unwrap_or_default()).collect();
    let rows: Vec<Vec<String>> = (0..answer.rows()).map(row).collect();
    let mut widths: Vec<usize> = columns.iter().map(|column| length(column.title)).collect();
    for row in &rows {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = length(text).max(*width);
        }
    }
    let most = widest(format, 60);
    widths.iter_mut().for_each(|width| *width = (*width).min(most).max(4));
    let numbers: Vec<bool> = columns.iter().map(|column| column.is_number(answer)).collect();
    let mut line = String::new();
    for (column, &width) in columns.iter().zip(&widths) {
        cell(&mut line, column.title, width, false);
    }
    writeln!(out, "{}", line.trim_end())?;
    for row in rows.iter().filter(|row| row.iter().any(|text| !text.is_empty())) {
        line.clear();
        for ((text, &width), &is_number) in row.iter().zip(&widths).zip(&numbers) {
            cell(&mut line, text, width, is_number);
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
