//! A table of functions, lines, stacks, modules, scopes, labels, lanes, block sizes or called
//! functions.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::attribution::{Functions, Owners, Types, is_own};
use heaptide_analysis::model::{FrameId, Lane, Measure, Mode, Process, StackId};
use heaptide_analysis::views::aggregate::{self, Group, GroupBy, Key, Order, group, top};
use heaptide_analysis::views::highest::Highest;

use crate::shared::distinct_names::Labels;
use crate::shared::frames;
use crate::shared::names::{elide_middle, printable};
use crate::shared::quantity::{count, percent};
use crate::shared::threads::tids;
use crate::shared::views::HistogramView;
use crate::text::annotations;
use crate::text::caption::caption;
use crate::text::columns::{Column, Columns, last, right};
use crate::text::screen::{Screen, Style, visible};
use crate::text::{estimates, histogram, stack_lines};

/// Default number of rows.
const ROWS: usize = 20;
/// Maximum characters of a name.
const NAME: usize = 64;
/// Minimum characters of a function's name after its place.
const NAME_MIN: usize = 16;

/// Options of the table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// What a row represents.
    pub by: GroupBy,
    /// Metric by which rows are sorted; the default depends on the mode.
    pub sort: Option<Measure>,
    /// Maximum number of rows.
    pub top: Option<usize>,
}

/// Writes the table of one process. If the trace was replayed, stacks and threads have a column
/// with their maximum of live bytes.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut Screen,
    process: &Process,
    table: &Table,
    highest: Option<&Highest>,
) -> io::Result<()> {
    if table.by == GroupBy::Size {
        let sort = table.sort.unwrap_or(Measure::Allocations);
        return histogram::write(out, process, &HistogramView { sort, top: table.top });
    }
    caption(out, process)?;
    let measure = table.sort.unwrap_or(match process.mode {
        Mode::Counters => Measure::UsableBytes,
        // Many scopes free all that they allocate before the peak, so peak values would be 0.
        Mode::Stacks | Mode::Scopes if table.by == GroupBy::Scope => Measure::UsableBytes,
        Mode::Stacks | Mode::Scopes => Measure::AtPeakBytes,
    });
    let rows = table.top.unwrap_or(ROWS);
    match table.by {
        GroupBy::Lane => lanes(out, process, measure.of_sites(), rows, highest),
        GroupBy::Scope | GroupBy::Label if process.mode == Mode::Counters => {
            writeln!(out, "  recorded with --mode counters: no scopes, no labels")
        }
        GroupBy::Scope => scopes(out, process, measure.of_sites(), rows),
        GroupBy::Label => labels(out, process, measure.of_sites(), rows),
        GroupBy::Call => calls(out, process, measure.of_sites(), rows),
        _ if process.mode == Mode::Counters => {
            writeln!(
                out,
                "  recorded with --mode counters: no stacks; see --by thread and --by size"
            )
        }
        _ if process.mode == Mode::Scopes => {
            writeln!(out, "  recorded with --mode scopes: no stacks; see --by scope and --by label")
        }
        GroupBy::Stack => stacks(out, process, measure.of_sites(), rows, highest),
        GroupBy::Type => types(out, process, measure.of_sites(), rows),
        by => names(out, process, by, measure.of_sites(), rows),
    }
}

/// Writes functions, lines or modules with their own and inclusive values.
fn names(
    out: &mut Screen,
    process: &Process,
    by: GroupBy,
    measure: Measure,
    rows: usize,
) -> io::Result<()> {
    let owners = Owners::of(process);
    let groups = group(process, &owners, by);
    let found = groups.iter().filter(|g| measure.of(&g.inclusive) > 0).count();
    let whole = measure.of(&process.totals);
    writeln!(out, "{} by {}: itself, and with its callees\n", measure.name(), by.name())?;
    let columns = Columns([
        right(17, "itself"),
        estimates::column(process, measure),
        right(17, "inclusive").apart(),
        last(by.name()),
    ]);
    columns.heading(out)?;
    let order = if by == GroupBy::Module { Order::Own } else { Order::Inclusive };
    let mut shown = top(groups, measure, order, usize::MAX);
    // The function that allocates is more informative than the `main` above it, so own values are
    // compared first.
    shown.sort_by_key(|g| Reverse((measure.of(&g.own), measure.of(&g.inclusive))));
    let frame = |g: &Group| match g.key {
        Key::Function(Some(id)) => Some(owners.functions.first_frame(id)),
        Key::Line(frame) => frame,
        _ => None,
    };
    let labels = Labels::of_ids(process, shown.iter().take(rows).filter_map(frame));
    for g in shown.iter().take(rows) {
        let [own, inclusive] =
            [&g.own, &g.inclusive].map(|of| cells(out, measure, measure.of(of), whole));
        let name = name(&labels, &owners.functions, g, out.fit(NAME));
        let limits = estimates::cell(out, process, measure, &g.own);
        columns.row(out, [own, limits, inclusive, name])?;
    }
    more(out, found, rows)
}

/// Writes allocated types, as far as known.
fn types(out: &mut Screen, process: &Process, measure: Measure, rows: usize) -> io::Result<()> {
    let types = Types::of(process, &Owners::of(process));
    let groups = aggregate::by_type(process, &types);
    let found = groups.iter().filter(|g| measure.of(&g.own) > 0).count();
    let whole = measure.of(&process.totals);
    let second = if measure.is_bytes() { Measure::Allocations } else { Measure::UsableBytes };
    writeln!(
        out,
        "{} by allocated type, if names of C++ or Rust functions contain it\n",
        measure.name()
    )?;
    let columns = Columns([
        right(6, "share"),
        right(10, measure.heading()),
        estimates::column(process, measure),
        right(10, second.heading()),
        last("type"),
    ]);
    columns.heading(out)?;
    for g in top(groups, measure, Order::Own, rows) {
        let name = match g.key {
            Key::Type(Some(id)) => elide_middle(types.name(id), out.fit(NAME)),
            _ => "(type not known)".to_owned(),
        };
        let [value, of_second] = [measure, second].map(|of| out.amount(of, of.of(&g.own)));
        let share = percent(measure.of(&g.own), whole);
        let limits = estimates::cell(out, process, measure, &g.own);
        columns.row(out, [share, value, limits, of_second, name])?;
    }
    more(out, found, rows)
}

/// Writes the called allocation functions.
fn calls(out: &mut Screen, process: &Process, measure: Measure, rows: usize) -> io::Result<()> {
    let groups = aggregate::by_call(process);
    let found = groups.iter().filter(|g| measure.of(&g.own) > 0).count();
    let whole = measure.of(&process.totals);
    let second = if measure.is_bytes() { Measure::Allocations } else { Measure::UsableBytes };
    writeln!(out, "{} by function called\n", measure.name())?;
    let columns = Columns([
        right(6, "share"),
        right(10, measure.heading()),
        estimates::column(process, measure),
        right(10, second.heading()),
        last("call"),
    ]);
    columns.heading(out)?;
    for g in top(groups, measure, Order::Own, rows) {
        let name = match g.key {
            Key::Call(Some(call)) => call.name(),
            _ => "(not from the allocator)",
        };
        let [value, of_second] = [measure, second].map(|of| out.amount(of, of.of(&g.own)));
        let share = percent(measure.of(&g.own), whole);
        let limits = estimates::cell(out, process, measure, &g.own);
        columns.row(out, [share, value, limits, of_second, name.to_owned()])?;
    }
    more(out, found, rows)
}

/// Formats share and value; empty if the value is 0.
fn cells(out: &Screen, measure: Measure, value: u64, whole: u64) -> String {
    match value {
        0 => String::new(),
        _ => {
            let width = out.number_width(10);
            format!("{:>6} {:>width$}", percent(value, whole), out.amount(measure, value))
        }
    }
}

fn name(labels: &Labels, functions: &Functions, group: &Group, width: usize) -> String {
    let process = labels.process;
    match group.key {
        Key::Function(Some(id)) => function_name(labels, functions.first_frame(id), "", width),
        Key::Line(Some(id)) => line_name(labels, id, width),
        Key::Module(Some(id)) => {
            printable(&process.tables.modules[id.0 as usize].path).into_owned()
        }
        Key::Module(None) => "(code without a file, or no stack)".to_owned(),
        _ => "(no stack)".to_owned(),
    }
}

/// Returns the source place of a frame and its function, with its module.
pub(crate) fn line_name(labels: &Labels, frame: FrameId, width: usize) -> String {
    let place = match &labels.process.tables.frames[frame.0 as usize] {
        known if known.file.is_some() => frames::place(labels.process, known) + " ",
        _ => String::new(),
    };
    function_name(labels, frame, &place, width)
}

/// Returns the label of a frame's function after `place`, and before its module.
pub(crate) fn function_name(labels: &Labels, frame: FrameId, place: &str, width: usize) -> String {
    let process = labels.process;
    let frame = &process.tables.frames[frame.0 as usize];
    let label = labels.label(frame, width.saturating_sub(visible(place)).max(NAME_MIN));
    let label = if is_own(process, frame) { Style::Own.of(label) } else { label };
    // Without a module, the file would be shown twice.
    let is_repeated = !place.is_empty() && frame.module.is_none();
    let module = if is_repeated {
        String::new()
    } else {
        Style::Minor.of(frames::in_module(process, frame))
    };
    format!("{place}{label}{module}")
}

/// Returns whether highest live bytes are known.
fn has_highest(highest: Option<&Highest>) -> bool {
    highest.is_some_and(|of| of.process.highest.is_some())
}

fn stacks(
    out: &mut Screen,
    process: &Process,
    measure: Measure,
    rows: usize,
    highest: Option<&Highest>,
) -> io::Result<()> {
    let groups = aggregate::stacks(process);
    let found = groups.iter().filter(|g| measure.of(&g.own) > 0).count();
    let whole = measure.of(&process.totals);
    let are = if process.sampling.is_some() { "are estimates" } else { "are exact" };
    writeln!(
        out,
        "{} by stack, innermost function first; blocks and bytes {are}\n",
        measure.name()
    )?;
    let shown = stack_metrics(measure);
    let [a, b, c, d, e, f] = shown.map(|metric| {
        let column = stack_column(metric);
        let is_needed = metric == measure || metric == Measure::Allocations;
        if is_needed { column } else { column.optional() }
    });
    let most = right(14, "max live").optional().if_known(has_highest(highest));
    let limits = estimates::column(process, measure);
    let columns = Columns([right(6, "share"), limits, a, b, c, d, e, most, f]);
    columns.heading(out)?;
    let groups = top(groups, measure, Order::Own, rows);
    let stack = |g: &Group| match g.key {
        Key::Stack(stack) => stack,
        _ => StackId(0),
    };
    let labels = Labels::of_stacks(process, groups.iter().map(stack));
    for g in groups {
        let [a, b, c, d, e, f] = shown.map(|metric| count(metric.of(&g.own)));
        writeln!(out)?;
        let stack = stack(&g);
        let most = highest.and_then(|of| of.stacks.get(stack.0 as usize));
        let most = most.and_then(|most| most.highest);
        let most = most.map_or_else(String::new, |most| count(most.usable));
        let share = percent(measure.of(&g.own), whole);
        let limits = estimates::cell(out, process, measure, &g.own);
        columns.row(out, [share, limits, a, b, c, d, e, most, f])?;
        stack_lines::stack(out, &labels, stack)?;
    }
    more(out, found, rows)
}

/// Returns the metrics of a stack that are shown with exact values, including the one by which rows
/// are sorted.
fn stack_metrics(measure: Measure) -> [Measure; 6] {
    use Measure::{Allocations, AtPeakBytes, Frees, LiveBytes, RequestedBytes, UsableBytes};
    let usual = [Allocations, Frees, RequestedBytes, UsableBytes, AtPeakBytes, LiveBytes];
    if usual.contains(&measure) {
        return usual;
    }
    let [first, second, third, fourth, fifth, _] = usual;
    [measure, first, second, third, fourth, fifth]
}

/// Returns a column with exact values of a metric.
fn stack_column(metric: Measure) -> Column {
    let heading = match metric {
        Measure::Allocations => "allocations",
        Measure::RequestedBytes => "requested",
        Measure::UsableBytes => "usable",
        Measure::AtPeakBytes => "at peak",
        Measure::LiveBytes => "live",
        other => other.name(),
    };
    let digits = if metric.is_bytes() { 14 } else { 11 };
    right(heading.len().max(digits), heading)
}

fn scopes(out: &mut Screen, process: &Process, measure: Measure, rows: usize) -> io::Result<()> {
    writeln!(out, "{} by scope: itself, and with inner scopes\n", measure.name())?;
    let found = annotations::scope_rows(out, process, measure, rows)?;
    more(out, found, rows)
}

fn labels(out: &mut Screen, process: &Process, measure: Measure, rows: usize) -> io::Result<()> {
    writeln!(out, "{} by label: labelled blocks and other memory\n", measure.name())?;
    let found = annotations::label_rows(out, process, measure, rows, true)?;
    more(out, found, rows)
}

fn lanes(
    out: &mut Screen,
    process: &Process,
    measure: Measure,
    rows: usize,
    highest: Option<&Highest>,
) -> io::Result<()> {
    writeln!(
        out,
        "{} by thread: threads with one name that never overlap share a row\n",
        measure.name()
    )?;
    let is_of_live = matches!(measure, Measure::LiveBytes | Measure::AtPeakBytes);
    let has_limits = process.sampling.is_some() && is_of_live;
    let columns = Columns([
        right(7, "share"),
        // Allocations by thread are exact.
        estimates::column(process, measure).if_known(has_limits),
        right(7, "threads").optional(),
        right(10, "allocs"),
        right(10, "allocated"),
        right(10, "at peak"),
        right(10, "max live").optional().if_known(has_highest(highest)),
        right(10, "live"),
        right(10, "frees here").optional(),
        last("name"),
    ]);
    columns.heading(out)?;
    let mut lanes: Vec<_> = process.tables.lanes.iter().enumerate().collect();
    lanes.sort_by_key(|(_, lane)| Reverse(measure.of(&lane.measures)));
    let whole = measure.of(&process.totals);
    for &(index, lane) in lanes.iter().take(rows) {
        let m = &lane.measures;
        let most = highest.and_then(|of| of.lanes.get(index)?.highest);
        let at_peak = match process.mode {
            // Only sites record values at peak.
            Mode::Counters => "-".to_owned(),
            Mode::Stacks | Mode::Scopes => out.bytes(m.at_peak_bytes),
        };
        let cells = [
            percent(measure.of(m), whole),
            estimates::cell(out, process, measure, m),
            lane.threads.to_string(),
            out.count(m.allocations),
            out.bytes(m.usable_bytes),
            at_peak,
            most.map_or_else(String::new, |most| out.bytes(most.usable)),
            out.bytes(m.live_bytes),
            out.count(m.frees_here),
            named(lane),
        ];
        columns.row(out, cells)?;
    }
    more(out, lanes.len(), rows)
}

/// Returns the name of a lane with the ids of its threads.
fn named(lane: &Lane) -> String {
    let name = printable(&lane.name);
    match lane.tids.len() {
        0 => name.into_owned(),
        1 => format!("{name} (tid {})", tids(lane)),
        _ => format!("{name} (tids {})", tids(lane)),
    }
}

fn more(out: &mut Screen, found: usize, shown: usize) -> io::Result<()> {
    match found {
        0 => writeln!(out, "  nothing"),
        n if n > shown => writeln!(out, "\n  {} more; --top {n} shows all", n - shown),
        _ => Ok(()),
    }
}
