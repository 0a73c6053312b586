//! Memory live at peak: when it was reached, and what held it by function, scope, label, lane.

use std::io::{self, Write};

use heaptide_analysis::model::{Measure, Mode, Process, ScopeId, SiteKind};
use heaptide_analysis::views::peak::Moment;

use crate::shared::annotations::{in_totals, kind_name, mark_says};
use crate::shared::heading::{highest_says, live_name};
use crate::shared::hotspots::Charges;
use crate::shared::names::elide_middle;
use crate::shared::peak_rows::{Labelled, Row, by_label, by_lane, by_scope};
use crate::shared::quantity::{bytes, counted, duration, percent, short_count};
use crate::shared::scope_path::scope_path;
use crate::text::caption::caption;
use crate::text::columns::{Columns, last, right};
use crate::text::screen::{Screen, Style};
use crate::text::{estimates, sections};

/// Default number of rows of a section.
const ROWS: usize = 10;
/// Characters of a name.
const NAME: usize = 64;

/// Writes the page of one process with `top` rows per section.
///
/// Errors: those of `out`.
pub fn write(out: &mut Screen, process: &Process, top: Option<usize>) -> io::Result<()> {
    let (t, rows) = (&process.totals, top.unwrap_or(ROWS));
    caption(out, process)?;
    let exact = match process.completeness.peak_bound_bytes {
        0 => String::new(),
        bound => format!(", exact within {}", bytes(bound)),
    };
    let blocks = match t.at_peak_blocks {
        _ if process.mode == Mode::Counters => String::new(), // only those of mappings
        0 => String::new(),
        n if process.sampling.is_some() => format!(" in about {}", counted(n, "block")),
        n => format!(" in {}", counted(n, "block")),
    };
    let in_full = counted(t.peak_bytes, "byte");
    let heading = |peak: u64| Style::Heading.of(format!("peak {}", bytes(peak)));
    match &process.time.highest {
        Some(highest) => {
            let heading = match highest.at_most_bytes {
                Some(most) => Style::Heading.of(format!("peak at most {}", bytes(most))),
                None => heading(highest.live_bytes),
            };
            writeln!(out, "{heading}: {}", highest_says(highest))?;
            let added = format!("{}: {in_full}{blocks}{exact}", bytes(t.peak_bytes));
            writeln!(out, "  peaks added up   {added}, the sum of each image's own peak")?;
        }
        None => writeln!(out, "{}: {in_full}{blocks}{exact}", heading(t.peak_bytes))?,
    }
    moment(out, process)?;
    if process.mode == Mode::Counters {
        return writeln!(out, "\nRecorded with --mode counters: no breakdown by function");
    }
    if process.mode == Mode::Stacks {
        writeln!(out, "\n{}", Style::Heading.of("By function"))?;
        let (measure, second) = (Measure::AtPeakBytes, Measure::AtPeakBlocks);
        sections::section(out, process, &Charges::of(process), measure, second, rows)?;
    }
    let name = out.fit(NAME);
    if process.tables.scopes.len() > 1 {
        let path = |row: &Row<ScopeId>| scope_path(process, row.key, name);
        table(out, process, "scope", &by_scope(process), rows, path)?;
    }
    if !process.tables.labels.is_empty() {
        table(out, process, "label", &by_label(process), rows, |row| {
            label_name(process, row.key, name)
        })?;
    }
    if process.tables.lanes.len() > 1 {
        let thread = |row: &Row<usize>| elide_middle(&process.tables.lanes[row.key].name, name);
        table(out, process, "thread", &by_lane(process), rows, thread)?;
    }
    Ok(())
}

fn moment(out: &mut Screen, process: &Process) -> io::Result<()> {
    let t = &process.totals;
    let found = Moment::of(process);
    let mut row = |name: &str, value: String| writeln!(out, "  {name:<16} {value}");
    let (live, left) = (bytes(t.live_bytes), percent(t.live_bytes, t.peak_bytes));
    // The peaks of joined processes were reached at different times.
    for (name, value) in going_on(process, &found).iter().filter(|_| process.identity.images == 1) {
        row(name, value.clone())?;
    }
    row(live_name(process), format!("{live}, {left} of the peak"))?;
    if found.slack.known_bytes > 0 {
        let (slack, known) = (found.slack.bytes, found.slack.known_bytes);
        let (part, of) = (percent(slack, known), percent(known, t.at_peak_bytes));
        let slack = bytes(slack);
        row("slack", format!("{slack}, {part} of blocks of known size ({of} of the peak)"))?;
    }
    if found.kinds.iter().any(|(kind, _)| *kind != SiteKind::Heap) {
        let says = |(kind, n): &(SiteKind, u64)| format!("{} {}", bytes(*n), kind_name(*kind));
        let (inside, outside): (Vec<_>, Vec<_>) = found.kinds.iter().partition(|k| in_totals(k.0));
        let list = |kinds: Vec<&(SiteKind, u64)>| {
            kinds.into_iter().map(says).collect::<Vec<_>>().join(", ")
        };
        row("memory", list(inside))?;
        if !outside.is_empty() {
            row("besides", list(outside))?;
        }
    }
    Ok(())
}

/// Returns when the peak was reached and the state at that time, as rows of name and text.
fn going_on(process: &Process, found: &Moment) -> Vec<(&'static str, String)> {
    let at = process.peak_time_ns;
    let (after, share) = (duration(at), percent(at, process.lifetime.duration_ns));
    let mut rows = vec![("when", format!("{after} after the start, {share} of the run"))];
    if let Some((resident, time)) = found.resident {
        let (resident, apart) = (bytes(resident), duration(time.abs_diff(at)));
        let side = if time <= at { "before" } else { "after" };
        rows.push(("resident", format!("{resident}, sampled {apart} {side}")));
    }
    for window in &found.windows {
        let (name, since) = (elide_middle(&window.name, NAME), at - window.begin_time_ns);
        rows.push(("window", format!("{name}, open for {}", duration(since))));
    }
    for (mark, side) in [(found.before, "before"), (found.after, "after")] {
        let Some(mark) = mark else { continue };
        let apart = duration(mark.time_ns.abs_diff(at));
        rows.push(("mark", format!("{}, {apart} {side}", mark_says(mark))));
    }
    rows
}

fn label_name(process: &Process, (label, kind): Labelled, width: usize) -> String {
    let name = label.map_or("(no label)", |id| &process.tables.labels[id.0 as usize].name);
    match kind {
        SiteKind::Heap => elide_middle(name, width),
        kind => format!("{}  ({})", elide_middle(name, width), kind_name(kind)),
    }
}

fn table<K>(
    out: &mut Screen,
    process: &Process,
    what: &'static str,
    found: &[Row<K>],
    rows: usize,
    name: impl Fn(&Row<K>) -> String,
) -> io::Result<()> {
    writeln!(out, "\n{}", Style::Heading.of(format!("By {what}")))?;
    let columns = Columns([
        right(6, "share"),
        right(10, "bytes"),
        estimates::column(process, Measure::AtPeakBytes),
        right(10, "blocks"),
        last(what),
    ]);
    let whole = process.totals.at_peak_bytes;
    columns.heading(out)?;
    for row in found.iter().take(rows) {
        let m = &row.measures;
        let share = if row.counts { percent(m.at_peak_bytes, whole) } else { "-".to_owned() };
        let limits = estimates::cell(out, process, Measure::AtPeakBytes, m);
        let (size, blocks) = (bytes(m.at_peak_bytes), short_count(m.at_peak_blocks));
        columns.row(out, [share, size, limits, blocks, name(row)])?;
    }
    match found.len().saturating_sub(rows) {
        0 => Ok(()),
        n => writeln!(out, "  {n} more; --top {} shows all", found.len()),
    }
}
