//! Tables with columns. A column's width and heading are defined once, for the heading and the
//! rows.

use std::io::{self, Write};

use crate::text::screen::{Screen, Style, visible};

/// Minimum characters of the last column on a terminal; optional columns are omitted if it has
/// less.
const LAST_MIN: usize = 16;

/// A column of a table.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    heading: &'static str,
    /// Spaces before it.
    gap: usize,
    width: usize,
    is_left: bool,
    is_optional: bool,
    /// Whether it is omitted because its values are unknown.
    is_absent: bool,
}

impl Column {
    /// Returns the width of its cells.
    fn width_on(&self, screen: &Screen) -> usize {
        if self.is_left { self.width } else { screen.number_width(self.width) }
    }

    /// Returns the column with two spaces before it.
    pub(crate) const fn apart(self) -> Column {
        Column { gap: 2, ..self }
    }

    /// Returns the column with one space before it.
    pub(crate) const fn close(self) -> Column {
        Column { gap: 1, ..self }
    }

    /// Marks the column as optional: it is omitted if the terminal is too narrow.
    pub(crate) const fn optional(self) -> Column {
        Column { is_optional: true, ..self }
    }

    /// Omits the column if its values are not known.
    pub(crate) const fn if_known(self, is_known: bool) -> Column {
        Column { is_absent: !is_known, ..self }
    }
}

/// Returns a right-aligned column of numbers.
pub(crate) const fn right(width: usize, heading: &'static str) -> Column {
    Column { heading, gap: 1, width, is_left: false, is_optional: false, is_absent: false }
}

/// Returns a left-aligned column of texts.
pub(crate) const fn left(width: usize, heading: &'static str) -> Column {
    Column { heading, gap: 2, width, is_left: true, is_optional: false, is_absent: false }
}

/// Returns the last column, with texts of any width.
pub(crate) const fn last(heading: &'static str) -> Column {
    left(0, heading)
}

/// A table of `N` columns.
pub(crate) struct Columns<const N: usize>(pub(crate) [Column; N]);

impl<const N: usize> Columns<N> {
    /// Writes the line of headings.
    ///
    /// Errors: those of `out`.
    pub(crate) fn heading(&self, out: &mut Screen) -> io::Result<()> {
        let line = self.line(out, self.0.map(|column| column.heading.to_owned()));
        writeln!(out, "{}", Style::Heading.of(line.trim_end()))
    }

    /// Writes a row.
    ///
    /// Errors: those of `out`.
    pub(crate) fn row(&self, out: &mut Screen, cells: [String; N]) -> io::Result<()> {
        let line = self.line(out, cells);
        writeln!(out, "{line}")
    }

    /// Writes a row without trailing spaces, for rows whose last cells may be empty.
    ///
    /// Errors: those of `out`.
    pub(crate) fn short_row(&self, out: &mut Screen, cells: [String; N]) -> io::Result<()> {
        let line = self.line(out, cells);
        writeln!(out, "{}", line.trim_end())
    }

    /// Returns the number of characters before the last column.
    pub(crate) fn before_last(&self, screen: &Screen) -> usize {
        let is_shown = self.shown(screen);
        let columns = self.0[..N - 1].iter().zip(is_shown).filter(|(_, is_shown)| *is_shown);
        columns.fold(1, |sum, (column, _)| sum + gap(sum, column) + column.width_on(screen))
            + self.0[N - 1].gap
    }

    /// Returns which columns are shown. If the screen is too narrow, optional columns are omitted,
    /// last ones first.
    fn shown(&self, screen: &Screen) -> [bool; N] {
        let mut is_shown = self.0.map(|column| !column.is_absent);
        if !screen.is_limited() {
            return is_shown;
        }
        let least = self.0[N - 1].width.max(LAST_MIN);
        let whole = |column: &Column| column.gap + column.width_on(screen);
        let all: usize = self.0.iter().filter(|column| !column.is_absent).map(whole).sum();
        let mut width = 2 + all - self.0[N - 1].width + least;
        for (at, column) in self.0.iter().enumerate().rev() {
            if width > screen.columns() && column.is_optional && is_shown[at] {
                is_shown[at] = false;
                width -= column.gap + column.width_on(screen);
            }
        }
        is_shown
    }

    fn line(&self, screen: &Screen, cells: [String; N]) -> String {
        let mut line = " ".to_owned();
        let columns = self.0.iter().zip(cells).zip(self.shown(screen));
        for ((column, cell), _) in columns.filter(|(_, is_shown)| *is_shown) {
            let padding = " ".repeat(column.width_on(screen).saturating_sub(visible(&cell)));
            line.push_str(&" ".repeat(gap(line.len(), column)));
            let parts = if column.is_left { [cell, padding] } else { [padding, cell] };
            line.extend(parts);
        }
        line
    }
}

/// Returns the number of spaces before a column that starts after `before` characters. The first
/// column is indented by two in all.
fn gap(before: usize, column: &Column) -> usize {
    if before == 1 { 1 } else { column.gap }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::screen::Layout;

    fn shown<const N: usize>(
        columns: &Columns<N>,
        limit: Option<usize>,
        rows: [[&str; N]; 2],
    ) -> String {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, Layout { columns: limit, has_colours: false });
        columns.heading(&mut screen).expect("memory takes everything");
        for row in rows {
            columns.short_row(&mut screen, row.map(str::to_owned)).expect("memory takes it");
        }
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_heading_stands_above_its_cells() {
        let columns = Columns([right(6, "share"), left(4, "kind"), last("name")]);
        let expected = "   share  kind  name\n      5%  a     b\n      7%  a\n";
        assert_eq!(shown(&columns, None, [["5%", "a", "b"], ["7%", "a", ""]]), expected);
    }

    #[test]
    fn a_narrow_terminal_has_no_optional_columns() {
        let columns = Columns([
            right(6, "share"),
            right(9, "live").optional(),
            right(9, "freed"),
            last("name"),
        ]);
        let rows = [["5%", "1", "2", "b"], ["7%", "3", "4", "c"]];
        let whole = "   share      live     freed  name\n      5%         1         2  b\n      7%         3         4  c\n";
        let narrow = "   share     freed  name\n      5%         2  b\n      7%         4  c\n";
        assert_eq!(shown(&columns, None, rows), whole);
        assert_eq!(shown(&columns, Some(80), rows), whole);
        assert_eq!(shown(&columns, Some(40), rows), narrow);
        let mut out = Vec::new();
        let layout = Layout { columns: Some(40), has_colours: false };
        assert_eq!(columns.before_last(&Screen::new(&mut out, layout)), 20);
    }
}
