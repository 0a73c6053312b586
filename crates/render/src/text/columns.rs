//! Tables in columns: a width and a heading are written once, for the heading and for the rows.

use std::io::{self, Write};

/// A column of a table.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    heading: &'static str,
    /// Characters before it.
    gap: usize,
    width: usize,
    is_left: bool,
}

/// A column of numbers, which stand on the right.
pub(crate) const fn right(width: usize, heading: &'static str) -> Column {
    Column { heading, gap: 1, width, is_left: false }
}

/// A column of texts.
pub(crate) const fn left(width: usize, heading: &'static str) -> Column {
    Column { heading, gap: 2, width, is_left: true }
}

/// The last column, of texts of any width.
pub(crate) const fn last(heading: &'static str) -> Column {
    left(0, heading)
}

/// A table of `N` columns.
pub(crate) struct Columns<const N: usize>(pub(crate) [Column; N]);

impl<const N: usize> Columns<N> {
    /// Writes the line of headings.
    ///
    /// Errors: those of `out`.
    pub(crate) fn heading(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.line(self.0.map(|column| column.heading.to_owned())).trim_end())
    }

    /// Writes a row.
    ///
    /// Errors: those of `out`.
    pub(crate) fn row(&self, out: &mut dyn Write, cells: [String; N]) -> io::Result<()> {
        writeln!(out, "{}", self.line(cells))
    }

    /// Writes a row whose last cells may be empty.
    ///
    /// Errors: those of `out`.
    pub(crate) fn short_row(&self, out: &mut dyn Write, cells: [String; N]) -> io::Result<()> {
        writeln!(out, "{}", self.line(cells).trim_end())
    }

    fn line(&self, cells: [String; N]) -> String {
        let mut line = " ".to_owned();
        for (column, cell) in self.0.iter().zip(cells) {
            let Column { gap, width, is_left, .. } = *column;
            // The first column stands two characters from the edge, as numbers do from each other.
            let gap = if line.len() == 1 { 1 } else { gap };
            line.push_str(&" ".repeat(gap));
            if is_left {
                line.push_str(&format!("{cell:<width$}"));
            } else {
                line.push_str(&format!("{cell:>width$}"));
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_stands_above_its_cells() {
        let columns = Columns([right(6, "share"), left(4, "kind"), last("name")]);
        let mut out = Vec::new();
        columns.heading(&mut out).expect("memory takes everything");
        columns.row(&mut out, ["5%", "a", "b"].map(str::to_owned)).expect("memory takes it");
        columns.short_row(&mut out, ["7%", "a", ""].map(str::to_owned)).expect("memory takes it");
        let expected = "   share  kind  name\n      5%  a     b\n      7%  a\n";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }
}
