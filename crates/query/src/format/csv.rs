//! `csv`: a line of titles and a line per record, for spreadsheets.

use std::io::{self, Write};

use heaptide_analysis::text::printable;

use super::columns::{Column, columns};
use crate::query::Query;
use crate::table::Table;

/// Writes the lines. Missing values are empty cells, and numbers have all digits.
pub(super) fn write(out: &mut dyn Write, query: &Query, answer: &Table) -> io::Result<()> {
    let columns = columns(query, answer);
    let columns: Vec<Column> =
        columns.iter().map(|column| Column::exact(column.title, column.source)).collect();
    let mut rows = csv::Writer::from_writer(out);
    rows.write_record(columns.iter().map(|column| text(&printable(column.title))))?;
    for row in 0..answer.rows() {
        let cells = columns.iter().map(|column| {
            let cell = column.text(answer, row).unwrap_or_default();
            if column.is_number(answer) { cell } else { text(&cell) }
        });
        rows.write_record(cells)?;
    }
    rows.flush()
}

/// Prefixes a text with `'` if spreadsheets would interpret it as a formula.
fn text(cell: &str) -> String {
    if cell.starts_with(['=', '+', '-', '@']) { format!("'{cell}") } else { cell.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::table;
    use crate::parse;

    #[test]
    fn texts_are_quoted_where_needed_and_missing_values_are_empty() {
        let records = [
            "function=main/parse,name=say \"a;b\",n=-12",
            "function=main,x=2.5",
            "name=two\nlines",
            "name==1+1",
        ];
        let query =
            parse("SELECT name AS \"name, first\",n AS \"n\n1\",x,path,missing").expect("a query");
        let mut out = Vec::new();
        write(&mut out, &query, &table(&records)).expect("memory");
        let expected = "\"name, first\",n\\x0a1,x,path,missing\n\
            \"say \"\"a;b\"\"\",-12,,main/parse,\n\
            ,,2.500000,main,\n\
            two\\x0alines,,,,\n\
            '=1+1,,,,\n";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }
}
