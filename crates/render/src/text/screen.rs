//! The destination of a page: its width, its colours, and lines that wrap on a terminal.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};

use anstyle::AnsiColor;
use heaptide_analysis::model::Measure;

use crate::shared::names::printable;
use crate::shared::quantity;

/// Characters of a line if no terminal limits it.
const COLUMNS: usize = 100;
/// Minimum characters of a name, even on a narrow terminal.
const NAME_MIN: usize = 16;
/// Columns with at least this many characters hold sizes and counts.
const NUMBER_MIN: usize = 9;
/// Additional characters of such a column if numbers are shown in full.
const EXACT_MORE: usize = 7;

/// Properties of the destination.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Layout {
    /// Columns of the terminal. `None` if the page goes to a file or another program: then no line
    /// is wrapped, and names have the width that suits a line of 100 characters.
    pub columns: Option<usize>,
    /// Whether the page has colours.
    pub has_colours: bool,
}

/// A kind of text on a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// A title or the headings of columns.
    Heading,
    /// A function of the program's own code.
    Own,
    /// Secondary information: places, modules, library frames.
    Minor,
    /// Missing or inexact data.
    Warning,
    /// An increase.
    Growth,
    /// A decrease.
    Shrinkage,
}

/// Marks that begin each style, in the order of [`STYLES`]. Unicode reserves these characters for
/// internal use, so texts do not contain them.
const BEGINS: [char; 6] = ['\u{fdd0}', '\u{fdd1}', '\u{fdd2}', '\u{fdd3}', '\u{fdd4}', '\u{fdd5}'];
/// Ends a style.
const END: char = '\u{fdd6}';

const STYLES: [anstyle::Style; 6] = [
    anstyle::Style::new().bold(),
    AnsiColor::Cyan.on_default(),
    anstyle::Style::new().dimmed(),
    AnsiColor::Yellow.on_default(),
    AnsiColor::Red.on_default(),
    AnsiColor::Green.on_default(),
];

impl Style {
    /// Returns the text between marks that a [`Screen`] renders as this style. Pad the text before,
    /// not after, because padding would count the marks.
    pub(crate) fn of(self, text: impl Display) -> String {
        format!("{}{text}{END}", BEGINS[self as usize])
    }
}

/// Returns the number of characters of a text, excluding marks.
pub(crate) fn visible(text: &str) -> usize {
    text.chars().filter(|c| !is_mark(*c)).count()
}

fn is_mark(c: char) -> bool {
    ('\u{fdd0}'..='\u{fdd6}').contains(&c)
}

/// A writer of pages in UTF-8. It writes each line as [`printable`] text.
pub struct Screen<'a> {
    out: &'a mut dyn Write,
    layout: Layout,
    /// Whether sizes and counts are shown in full.
    is_exact: bool,
    /// The current incomplete line.
    line: Vec<u8>,
}

impl<'a> Screen<'a> {
    /// Creates a page that is written to `out`. Call `flush` at the end.
    pub fn new(out: &'a mut dyn Write, layout: Layout) -> Screen<'a> {
        Screen { out, layout, is_exact: false, line: Vec::new() }
    }

    /// Sets whether sizes and counts are shown in full instead of rounded.
    pub fn set_exact(&mut self, is_exact: bool) {
        self.is_exact = is_exact;
    }

    /// Formats a size: `1.50 KiB`, or `1,536`.
    pub(crate) fn bytes(&self, bytes: u64) -> String {
        if self.is_exact { quantity::count(bytes) } else { quantity::bytes(bytes) }
    }

    /// Formats a count: `1.54 M`, or `1,536,000`.
    pub(crate) fn count(&self, count: u64) -> String {
        if self.is_exact { quantity::count(count) } else { quantity::short_count(count) }
    }

    /// Formats a value of a metric.
    pub(crate) fn amount(&self, metric: Measure, value: u64) -> String {
        if metric.is_bytes() { self.bytes(value) } else { self.count(value) }
    }

    /// Formats values of a metric in one unit. Returns them and the unit, which is empty if they
    /// are in full.
    pub(crate) fn amounts(&self, metric: Measure, values: &[u64]) -> (Vec<String>, &'static str) {
        if self.is_exact {
            (values.iter().map(|&value| quantity::count(value)).collect(), "")
        } else {
            quantity::amounts(metric, values)
        }
    }

    /// Returns the width of a column of numbers that has `characters` if they are rounded.
    pub(crate) fn number_width(&self, characters: usize) -> usize {
        characters + if self.is_exact && characters >= NUMBER_MIN { EXACT_MORE } else { 0 }
    }

    /// Returns the number of characters of a line.
    pub(crate) fn columns(&self) -> usize {
        self.layout.columns.unwrap_or(COLUMNS)
    }

    /// Returns whether lines wrap at the width.
    pub(crate) fn is_limited(&self) -> bool {
        self.layout.columns.is_some()
    }

    /// Returns the width of a name that has `characters` in a line of 100.
    pub(crate) fn fit(&self, characters: usize) -> usize {
        (characters + self.columns()).saturating_sub(COLUMNS).max(NAME_MIN)
    }

    fn write_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let (text, end) = match line.strip_suffix(b"\n") {
            Some(text) => (text, "\n"),
            None => (&line[..], ""),
        };
        // Fast path: validation is much faster than a lossy conversion, and invalid UTF-8 is rare.
        let text =
            str::from_utf8(text).map_or_else(|_| String::from_utf8_lossy(text), Cow::Borrowed);
        let text = printable(&text);
        let text = match self.layout.columns {
            Some(columns) => wrap(&text, columns),
            None => text,
        };
        let text = with_styles(&text, self.layout.has_colours);
        self.out.write_all(text.as_bytes())?;
        self.out.write_all(end.as_bytes())?;
        self.line = line;
        self.line.clear();
        Ok(())
    }
}

impl Write for Screen<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.write_line()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.write_line()?;
        }
        self.out.flush()
    }
}

/// Replaces the marks by escape sequences, or removes them.
fn with_styles(text: &str, has_colours: bool) -> Cow<'_, str> {
    if text.is_ascii() || !text.contains(is_mark) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match BEGINS.iter().position(|&begin| begin == c) {
            Some(style) if has_colours => shown.push_str(&STYLES[style].render().to_string()),
            None if c == END && has_colours => shown.push_str("\x1b[0m"),
            None if c != END => shown.push(c),
            _ => {}
        }
    }
    Cow::Owned(shown)
}

/// Breaks a line at spaces into parts of at most `columns` characters. Continuations are indented
/// to the last column of the table row, or two spaces more than the line. Longer words are not
/// broken.
fn wrap(line: &str, columns: usize) -> Cow<'_, str> {
    if line.len() <= columns || visible(line) <= columns {
        return Cow::Borrowed(line);
    }
    Cow::Owned(broken(line, columns, hanging_indent(line, columns)))
}

/// Breaks a text at spaces into lines of at most `columns` characters, without indentation.
pub fn paragraph(text: &str, columns: usize) -> String {
    broken(text, columns, 0)
}

fn broken(line: &str, columns: usize, indent: usize) -> String {
    let indent = " ".repeat(indent);
    let mut wrapped = String::with_capacity(line.len() + 2 * columns);
    let mut rest = line;
    let mut room = columns;
    while visible(rest) > room {
        let Some(at) = break_at(rest, room) else { break };
        wrapped.push_str(rest[..at].trim_end());
        wrapped.push('\n');
        wrapped.push_str(&indent);
        rest = rest[at..].trim_start();
        room = columns - indent.len();
    }
    wrapped.push_str(rest);
    wrapped
}

/// Returns where to break a text: after the last space within `room` characters, else after the
/// first space beyond them. Leading spaces do not count.
fn break_at(text: &str, room: usize) -> Option<usize> {
    let (mut column, mut last, mut has_word) = (0, None, false);
    for (at, c) in text.char_indices() {
        if column > room && last.is_some() {
            return last;
        }
        if c == ' ' && has_word {
            last = Some(at + 1);
        }
        has_word |= c != ' ' && !is_mark(c);
        column += usize::from(!is_mark(c));
    }
    last.filter(|&at| !text[at..].trim().is_empty())
}

/// Returns the indentation of continuations: the start of the last column if that is in the left
/// two thirds, else two more than that of the line.
fn hanging_indent(line: &str, columns: usize) -> usize {
    let begin = line.chars().take_while(|c| *c == ' ' || is_mark(*c)).filter(|c| *c == ' ').count();
    let (mut spaces, mut column, mut found) = (0, 0, (begin + 2).min(columns / 2));
    for c in line.chars().filter(|c| !is_mark(*c)) {
        if c != ' ' && spaces >= 2 && column > begin && column <= columns * 2 / 3 {
            found = column;
        }
        spaces = if c == ' ' { spaces + 1 } else { 0 };
        column += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(layout: Layout, text: &str) -> String {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, layout);
        screen.write_all(text.as_bytes()).expect("memory takes everything");
        screen.flush().expect("memory takes everything");
        String::from_utf8(out).expect("pages are UTF-8")
    }

    #[test]
    fn styles_are_shown_where_there_are_colours_and_left_out_elsewhere() {
        let text = format!("a {} b\n", Style::Heading.of("title"));
        assert_eq!(shown(Layout::default(), &text), "a title b\n");
        let coloured = Layout { has_colours: true, ..Layout::default() };
        assert_eq!(shown(coloured, &text), "a \x1b[1mtitle\x1b[0m b\n");
    }

    #[test]
    fn names_of_programs_do_not_control_the_terminal() {
        let coloured = Layout { has_colours: true, columns: Some(80) };
        assert_eq!(shown(coloured, "red\x1b[31m\n"), "red\\x1b[31m\n");
        assert_eq!(shown(Layout::default(), "no end\r"), "no end\\x0d");
    }

    #[test]
    fn lines_break_between_words_and_continue_below_the_last_column() {
        let narrow = Layout { columns: Some(24), has_colours: false };
        let prose = "The totals above do not include these events.\n";
        let expected = "The totals above do not\n  include these events.\n";
        assert_eq!(shown(narrow, prose), expected);
        let row = "  12.0%  1.0 MB  std::vector<int>::resize and what it calls\n";
        let expected =
            "  12.0%  1.0 MB  std::vector<int>::resize\n                 and what it calls\n";
        assert_eq!(shown(Layout { columns: Some(42), ..narrow }, row), expected);
        assert_eq!(shown(narrow, "x  a_word_that_is_longer_than_the_line\n").lines().count(), 2);
        let marked = format!("{} {}\n", Style::Own.of("twelve chars"), Style::Minor.of("and more"));
        assert_eq!(
            shown(Layout { columns: Some(21), ..narrow }, &marked),
            "twelve chars and more\n"
        );
    }

    #[test]
    fn a_width_fits_names() {
        let fit =
            |columns| Screen::new(&mut Vec::new(), Layout { columns, has_colours: false }).fit(60);
        assert_eq!([None, Some(70), Some(150), Some(20)].map(fit), [60, 30, 110, 16]);
    }
}
