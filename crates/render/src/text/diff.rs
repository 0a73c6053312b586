//! A difference as text: what was compared, the totals, and the largest changes.

use std::io::{self, Write};

use heaptide_analysis::model::{Frame, Measure, Process};
use heaptide_analysis::views::diff::{
    Change, Changes, Difference, FunctionChange, Limits, Name, PathChange, PathId,
};

use crate::shared::change::{growth, signed};
use crate::shared::command_line::command_line;
use crate::shared::difference::{Rows, View, totals};
use crate::shared::distinct_names::Labels;
use crate::shared::heading::{ran, sampling_says};
use crate::shared::names::{elide_middle, printable, shorten};
use crate::shared::printed_stack::{self, Line};
use crate::shared::quantity::{amount, bytes, count, counted, date, short_count};
use crate::text::columns::{Columns, last, right};
use crate::text::screen::{Screen, Style};
use crate::text::stack_lines;

/// Default number of rows.
const ROWS: usize = 20;
/// Maximum characters of a name.
const NAME: usize = 64;
/// Lines of callers below a function.
const CALLER_LINES: usize = 4;
/// Maximum scopes read of a path for its name; few of them fit.
const PATH: usize = 100;

/// Writes the page.
///
/// Errors: those of `out`.
pub fn write(out: &mut Screen, difference: &Difference, view: &View) -> io::Result<()> {
    head(out, "before", &printable(view.before), &difference.before)?;
    head(out, "after", &printable(view.after), &difference.after)?;
    write_totals(out, difference)?;
    let name = difference.measure.of_sites().name();
    if let Some(why) = view.without_rows(difference) {
        return writeln!(out, "\n{why}");
    }
    let chosen = view.chosen.map_or(String::new(), |why| format!(" ({why})"));
    let (found, uncertain) = match view.rows {
        Rows::Functions | Rows::Lines => {
            let Changes { mut rows, uncertain } = difference.functions();
            // Functions that only pass on a change of their callees are omitted.
            rows.retain(|row| row.own.amount() != 0 && is_certain(row.limits, OWN));
            let by = view.rows.name();
            let heading = format!("{name} by {by}: itself, and with its callees{chosen}");
            functions(out, difference, &rows, view, &heading)?;
            (rows.len(), uncertain)
        }
        Rows::Stacks => {
            let Changes { rows, uncertain } = difference.paths();
            stacks(out, difference, &rows, view)?;
            (rows.len(), uncertain)
        }
        Rows::Scopes => {
            let Changes { rows, uncertain } = difference.paths();
            let heading = format!("{name} by scope: itself, and with inner scopes{chosen}");
            scopes(out, difference, &rows, view, &heading)?;
            (rows.len(), uncertain)
        }
    };
    if uncertain > 0 {
        let changes = counted(uncertain as u64, view.rows.name());
        writeln!(out, "\n  {changes} not shown: the differences may be sampling errors")?;
    }
    match found {
        0 if uncertain > 0 => Ok(()),
        0 => writeln!(out, "\nnothing changed: {name} is the same in every {}", view.rows.name()),
        n if n > shown(view) => {
            writeln!(out, "\n  {} more; --top {n} shows all", count((n - shown(view)) as u64))
        }
        _ => Ok(()),
    }
}

/// Indices of a row's limits.
const OWN: usize = 0;
const INCLUSIVE: usize = 1;

/// Returns whether the change of a row exceeds the error of the estimates.
fn is_certain(limits: Option<[Limits; 2]>, which: usize) -> bool {
    limits.is_none_or(|limits| !limits[which].may_be_none())
}

fn shown(view: &View) -> usize {
    view.top.unwrap_or(ROWS)
}

/// Writes what was compared.
fn head(out: &mut Screen, side: &str, recording: &str, process: &Process) -> io::Result<()> {
    let command = command_line(process, out.fit(70));
    writeln!(out, "{side:<7} {recording}: {}", Style::Heading.of(command))?;
    let (who, started) = (process.who(), date(process.lifetime.start_realtime_ns));
    writeln!(out, "        {who}, started {started}, {}", ran(process))?;
    if let Some(part) = &process.completeness.part {
        writeln!(out, "        {}", printable(part))?;
    }
    match sampling_says(process) {
        Some(says) => writeln!(out, "        sampled: {says}"),
        None => Ok(()),
    }
}

fn write_totals(out: &mut Screen, difference: &Difference) -> io::Result<()> {
    let heading = format!("{:<20} {:>11} {:>11} {:>12}", "Totals", "before", "after", "change");
    writeln!(out, "\n{}", Style::Heading.of(heading))?;
    for (measure, change) in totals(difference) {
        let Cells { before, after, amount, share } = Cells::of_total(measure, change);
        let note = exactness(difference, measure, change);
        let is_error = measure == difference.measure
            && difference.limits_of_total().is_some_and(Limits::may_be_none);
        let note = if is_error { "  may be a sampling error" } else { &note };
        let name = measure.name();
        let line = format!("  {name:<18} {before:>11} {after:>11} {amount:>12} {share:>8}{note}");
        writeln!(out, "{}", line.trim_end())?;
    }
    let lost =
        [&difference.before, &difference.after].map(|process| process.completeness.lost_events());
    match lost {
        [0, 0] => Ok(()),
        [before, after] => writeln!(
            out,
            "  {:<18} {:>11} {:>11} {:>21}  missing from the totals or from their stacks",
            "lost_events",
            short_count(before),
            short_count(after),
            ""
        ),
    }
}

/// Returns a note about the accuracy of a change of the peak, which is inexact if the peak lies
/// between samples.
fn exactness(difference: &Difference, measure: Measure, change: Change) -> String {
    let bound = difference
        .before
        .completeness
        .peak_bound_bytes
        .max(difference.after.completeness.peak_bound_bytes);
    match measure {
        Measure::PeakBytes if bound > 0 && change.amount() != 0 => {
            format!("  peaks are exact within {}", bytes(bound))
        }
        _ => String::new(),
    }
}

/// A change as cells of a row.
struct Cells {
    before: String,
    after: String,
    amount: String,
    share: String,
}

impl Cells {
    /// Formats the change of one of several metrics in a row; values that exist only before or
    /// after are marked.
    fn of(measure: Measure, change: Change) -> Cells {
        if change == Change::default() {
            let none = String::new;
            return Cells { before: none(), after: none(), amount: none(), share: none() };
        }
        let share = match change {
            Change { before: 0, .. } => "new".to_owned(),
            Change { after: 0, .. } => "gone".to_owned(),
            _ => growth(change),
        };
        let of_side = |value| if value == 0 { "-".to_owned() } else { amount(measure, value) };
        let (before, after) = (of_side(change.before), of_side(change.after));
        Cells { before, after, amount: signed(measure, change), share }
    }

    /// Replaces the change by "uncertain" if it may be an error of the estimates.
    fn certain(self, is_certain: bool) -> Cells {
        let is_empty = self.amount.is_empty();
        if is_certain || is_empty {
            return self;
        }
        Cells { amount: "uncertain".to_owned(), share: String::new(), ..self }
    }

    fn of_total(measure: Measure, change: Change) -> Cells {
        let (before, after) = (amount(measure, change.before), amount(measure, change.after));
        Cells { before, after, amount: signed(measure, change), share: growth(change) }
    }
}

/// Writes the heading of rows with an own and an inclusive change. Returns the columns.
fn columns(out: &mut Screen, heading: &str, what: &'static str) -> io::Result<Columns<6>> {
    writeln!(out, "\n{}\n", Style::Heading.of(heading))?;
    let columns = Columns([
        right(10, "before"),
        right(10, "after").optional(),
        right(11, "change"),
        right(8, ""),
        right(20, "inclusive change").apart().optional(),
        last(what),
    ]);
    columns.heading(out)?;
    Ok(columns)
}

fn cells(
    measure: Measure,
    [own, inclusive]: [Change; 2],
    limits: Option<[Limits; 2]>,
    name: String,
) -> [String; 6] {
    let of = |change, which| Cells::of(measure, change).certain(is_certain(limits, which));
    let Cells { before, after, amount, share } = of(own, OWN);
    let whole = of(inclusive, INCLUSIVE);
    let style = if own.amount() > 0 { Style::Growth } else { Style::Shrinkage };
    let inclusive = format!("{:>11} {:>8}", whole.amount, whole.share);
    [before, after, style.of(amount), share, inclusive, name]
}

fn functions(
    out: &mut Screen,
    difference: &Difference,
    rows: &[FunctionChange],
    view: &View,
    heading: &str,
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let columns = columns(out, heading, view.rows.name())?;
    let (measure, width) = (difference.measure.of_sites(), out.fit(NAME));
    let rows = &rows[..shown(view).min(rows.len())];
    let labels = labels(difference, rows.iter().map(|row| row.path));
    for change in rows {
        let name = match change.name.map(|id| (id, &difference.names[id as usize])) {
            None => "(no stack)".to_owned(),
            Some((id, name @ (Name::Function { .. } | Name::Line { .. }))) => {
                let label = labels.label(&frame(difference, id), width);
                let label = match name {
                    Name::Line { place, .. } => format!("{} {label}", printable(place)),
                    _ => label,
                };
                match name.module() {
                    "" => label,
                    module => label + &Style::Minor.of(format!("  [{}]", printable(module))),
                }
            }
            Some((_, name)) => shorten(&name.called(), width),
        };
        let changes = [change.own, change.inclusive];
        columns.row(out, cells(measure, changes, change.limits, name))?;
        callers(out, difference, &labels, (change.path, columns.before_last(out) + 2))?;
    }
    Ok(())
}

/// Writes the callers of a function on one of its paths.
fn callers(
    out: &mut Screen,
    difference: &Difference,
    labels: &Labels,
    (path, indent): (PathId, usize),
) -> io::Result<()> {
    let names = difference.paths.names_of(path).skip(1);
    let frames: Vec<Frame> = names.map(|name| frame(difference, name)).collect();
    let frames: Vec<&Frame> = frames.iter().collect();
    for line in printed_stack::lines_of(labels, &frames, CALLER_LINES, out.fit(NAME)) {
        let line = Line { place: String::new(), ..line };
        stack_lines::write(out, &" ".repeat(indent), &line, 0)?;
    }
    Ok(())
}

fn scopes(
    out: &mut Screen,
    difference: &Difference,
    rows: &[PathChange],
    view: &View,
    heading: &str,
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let columns = columns(out, heading, "scope")?;
    let measure = difference.measure.of_sites();
    for change in rows.iter().take(shown(view)) {
        let path = scope_path(difference, change.path, out.fit(NAME));
        let changes = [change.own, change.inclusive];
        columns.row(out, cells(measure, changes, change.limits, path))?;
    }
    Ok(())
}

/// Formats a path in at most `width` characters, outermost scope first.
fn scope_path(difference: &Difference, path: PathId, width: usize) -> String {
    let names = difference.paths.names_of(path).take(PATH + 1);
    let mut names: Vec<String> =
        names.map(|name| difference.names[name as usize].called().into_owned()).collect();
    if names.len() > PATH {
        names[PATH] = "…".to_owned();
    }
    names.reverse();
    if names.is_empty() { "(no scope)".to_owned() } else { elide_middle(&names.join(" > "), width) }
}

fn stacks(
    out: &mut Screen,
    difference: &Difference,
    rows: &[PathChange],
    view: &View,
) -> io::Result<()> {
    let measure = difference.measure.of_sites();
    if !rows.is_empty() {
        writeln!(out, "\n{} by stack, innermost function first", measure.name())?;
    }
    let rows = &rows[..shown(view).min(rows.len())];
    let labels = labels(difference, rows.iter().map(|row| row.path));
    for change in rows {
        let Cells { amount: change_by, share, .. } = Cells::of(measure, change.own);
        let [before, after] = [change.own.before, change.own.after].map(|v| amount(measure, v));
        writeln!(out, "\n  {change_by:>11} {share:>8}   {before} before, {after} after")?;
        if change.path == PathId(0) {
            writeln!(out, "      (no stack)")?;
        }
        let frames: Vec<Frame> =
            difference.paths.names_of(change.path).map(|name| frame(difference, name)).collect();
        let frames: Vec<&Frame> = frames.iter().collect();
        stack_lines::lines(out, &labels, &frames)?;
    }
    Ok(())
}

/// Returns the labels of the functions on these paths.
fn labels(difference: &Difference, paths: impl Iterator<Item = PathId>) -> Labels<'_> {
    let mut names: Vec<u32> = paths.flat_map(|path| difference.paths.names_of(path)).collect();
    names.sort_unstable();
    names.dedup();
    let frames: Vec<Frame> = names.into_iter().map(|name| frame(difference, name)).collect();
    Labels::of(&difference.after, &frames)
}

/// Converts a name to a frame that can be printed. It has a module but no line, because lines
/// differ between builds.
fn frame(difference: &Difference, name: u32) -> Frame {
    let name = &difference.names[name as usize];
    let function = match name {
        Name::Function { name, .. } | Name::Line { name, .. } => name.clone(),
        _ => name.called().into_owned().into(),
    };
    let file =
        matches!(name, Name::Function { .. } | Name::Line { .. }).then(|| name.module().into());
    Frame { file, ..Frame::named(function) }
}
