//! `csv`: a line of titles and a line for each record, as spreadsheets read them.

use std::io::{self, Write};

use super::columns::{Column, columns};
use crate::query::Query;
use crate::table::Table;

/// Writes the lines; a record has an empty cell where it has no value. Numbers have all digits.
pub(super) fn write(out: &mut dyn Write, query: &Query, answer: &Table) -> io::Result<()> {
    let columns = columns(query, answer);
    let columns: Vec<Column> =
        columns.iter().map(|column| Column::exact(column.title, column.source)).collect();
    let mut rows = csv::Writer::from_writer(out);
    rows.write_record(columns.iter().map(|column| column.title))?;
    for row in 0..answer.rows() {
        let cells = columns.iter().map(|column| column.text(answer, row).unwrap_or_default());
        rows.write_record(cells)?;
    }
    rows.flush()
}
