//! A source file as text, with the memory of each line beside it.

use std::io::{self, Write};

use heaptide_analysis::model::{Measure, Measures, Process};
use heaptide_analysis::views::lines::{SourceFile, SourceLine, SourceLines};

use crate::shared::heading::live_name;
use crate::shared::names::printable;
use crate::shared::quantity::counted;
use crate::shared::source_text::SourceText;
use crate::text::caption::caption;
use crate::text::columns::{Columns, last, right};
use crate::text::screen::{Screen, Style};

/// Options of the view.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Lines to show around each line with a value; `None` for the whole file.
    pub context: Option<u32>,
}

/// Writes the lines of a file of one process.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut Screen,
    process: &Process,
    file: &SourceFile,
    lines: &SourceLines,
    text: &SourceText,
    view: View,
) -> io::Result<()> {
    caption(out, process)?;
    writeln!(out, "{}", Style::Heading.of(printable(&file.path)))?;
    let temporary = counted(file.own.temporary, "temporary block");
    let (at_peak, live) = (out.bytes(file.own.at_peak_bytes), out.bytes(file.own.live_bytes));
    let (live_at, of) = (live_name(process), out.bytes(process.totals.at_peak_bytes));
    writeln!(out, "  {at_peak} of {of} at peak, {live} {live_at}, {temporary}")?;
    if let Some(doubt) = &text.doubt {
        writeln!(out, "{}", Style::Warning.of(format!("  {}", printable(doubt))))?;
    }
    writeln!(out)?;
    rows(out, lines, text, view)
}

fn rows(out: &mut Screen, lines: &SourceLines, text: &SourceText, view: View) -> io::Result<()> {
    let columns = Columns([
        right(9, "at peak"),
        right(9, "live"),
        right(9, "temporary").optional(),
        right(12, "with callees").optional(),
        right(6, "line"),
        last("source"),
    ]);
    columns.heading(out)?;
    let width = out.is_limited().then(|| out.columns().saturating_sub(columns.before_last(out)));
    let none = SourceLine::default();
    let mut before = 0;
    for number in shown(lines, text.len(), view) {
        if number > before + 1 && before > 0 {
            columns.short_row(out, [(); 5].map(|()| String::new()).into_row("…"))?;
        }
        before = number;
        let line = lines.get(&Some(number));
        let source = cut(text.line(number), width);
        let source = match line {
            Some(line) if line.own != Measures::default() => Style::Own.of(source),
            Some(_) => source,
            None => Style::Minor.of(source),
        };
        let cells = cells(out, line.unwrap_or(&none), number.to_string());
        columns.short_row(out, cells.into_row(&source))?;
    }
    if let Some(unknown) = lines.get(&None) {
        let cells = cells(out, unknown, "?".to_owned());
        columns.short_row(out, cells.into_row("(lines that debug information lacks)"))?;
    }
    Ok(())
}

/// Returns the numbers of the lines to show, in order.
fn shown(lines: &SourceLines, count: usize, view: View) -> Vec<u32> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let mut numbers: Vec<u32> = match view.context {
        None => (1..=count).collect(),
        Some(around) => {
            let near = |&number: &u32| {
                let last = number.saturating_add(around).min(count);
                number.saturating_sub(around).max(1)..=last
            };
            lines.keys().flatten().flat_map(near).collect()
        }
    };
    numbers.extend(lines.keys().flatten()); // also those beyond the end of the text
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn cells(out: &Screen, line: &SourceLine, number: String) -> [String; 5] {
    let own = [Measure::AtPeakBytes, Measure::LiveBytes, Measure::Temporary];
    let value = |measure: Measure, of: &Measures| match measure.of(of) {
        0 => String::new(),
        value => out.amount(measure, value),
    };
    let [at_peak, live, temporary] = own.map(|measure| value(measure, &line.own));
    [at_peak, live, temporary, value(Measure::AtPeakBytes, &line.inclusive), number]
}

/// Adds the last cell of a row.
trait IntoRow {
    fn into_row(self, last: &str) -> [String; 6];
}

impl IntoRow for [String; 5] {
    fn into_row(self, last: &str) -> [String; 6] {
        let [a, b, c, d, e] = self;
        [a, b, c, d, e, last.to_owned()]
    }
}

/// Cuts a line of source that does not fit.
fn cut(line: &str, width: Option<usize>) -> String {
    match width {
        Some(width) if line.chars().count() > width => {
            line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
        }
        _ => line.to_owned(),
    }
}
