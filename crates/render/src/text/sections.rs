//! The sections of the report page: functions sorted by a metric, with their callers.

use std::io::{self, Write};

use heaptide_analysis::attribution::{Functions, is_own};
use heaptide_analysis::model::{End, FrameId, Measure, Measures, Process};

use crate::shared::distinct_names::Labels;
use crate::shared::frames;
use crate::shared::hotspots::{self, Charges, Hotspot};
use crate::shared::printed_stack;
use crate::shared::quantity::{counted, percent};
use crate::text::columns::{Columns, last, left, right};
use crate::text::estimates;
use crate::text::screen::{Screen, Style};
use crate::text::stack_lines;

/// Maximum characters of a function's name.
const NAME: usize = 58;
/// Maximum characters of the name of an allocating helper.
const HELPER: usize = 36;
/// Maximum characters of a caller's name.
const CALLER: usize = 46;
/// Lines of callers below a function.
const CALLER_LINES: usize = 6;
/// Characters between the share of a caller and its name.
const INDENT: usize = 25;
/// The same on a terminal with less than [`NARROW`] columns.
const INDENT_NARROW: usize = 4;
const NARROW: usize = 90;

/// Writes the sections of peak usage, live memory and temporary allocations, by function.
pub(crate) fn usual(out: &mut Screen, process: &Process, rows: usize) -> io::Result<()> {
    let t = &process.totals;
    let live = match process.lifetime.end {
        End::Exited(_) => "Live at exit",
        End::Running => "Live now",
        _ => "Live at the end",
    };
    let temporary = counted(t.temporary, "block");
    let sections = [
        ("Peak usage", out.bytes(t.at_peak_bytes), Measure::AtPeakBytes, Measure::AtPeakBlocks),
        (live, out.bytes(t.live_bytes), Measure::LiveBytes, Measure::LiveBlocks),
        ("Temporary", temporary, Measure::Temporary, Measure::Allocations),
    ];
    let charges = Charges::of(process);
    for (name, total, measure, second) in sections {
        if measure.of(t) == 0 {
            writeln!(out, "\n{}: none", Style::Heading.of(name))?;
            continue;
        }
        writeln!(out, "\n{}: {total} by function", Style::Heading.of(name))?;
        section(out, process, &charges, measure, second, rows)?;
    }
    Ok(())
}

/// Writes one section sorted by a metric.
pub(crate) fn sorted(
    out: &mut Screen,
    process: &Process,
    measure: Measure,
    rows: usize,
) -> io::Result<()> {
    let measure = measure.of_sites();
    writeln!(out, "\n{}", Style::Heading.of(format!("By {}", measure.name())))?;
    let second = if measure.is_bytes() { Measure::Allocations } else { Measure::UsableBytes };
    section(out, process, &Charges::of(process), measure, second, rows)
}

/// Writes functions sorted by a metric, largest first, with their callers.
pub(crate) fn section(
    out: &mut Screen,
    process: &Process,
    charges: &Charges,
    measure: Measure,
    second: Measure,
    rows: usize,
) -> io::Result<()> {
    let found = charges.hotspots(measure);
    if found.is_empty() {
        return writeln!(out, "  none");
    }
    let whole = measure.of(&process.totals);
    let functions = &charges.owners.functions;
    let columns = Columns([
        right(6, "share"),
        right(10, measure.heading()),
        estimates::column(process, measure),
        right(10, second.heading()),
        left(6, "memory").if_known(charges.has_mappings()),
        last("function and callers"),
    ]);
    columns.heading(out)?;
    let way = |hotspot: &Hotspot| hotspot.heaviest_way(process, functions, measure);
    let ways: Vec<Vec<(FrameId, u64)>> = found.iter().take(rows).map(way).collect();
    let labels = labels(process, functions, &found[..ways.len()], &ways);
    for (hotspot, way) in found.iter().zip(&ways) {
        let value = measure.of(&hotspot.measures);
        let of_second = out.amount(second, second.of(&hotspot.measures));
        let share = percent(value, whole);
        let value = out.amount(measure, value);
        let limits = estimates::cell(out, process, measure, &hotspot.measures);
        let place = place(out, process, charges, hotspot, measure);
        let title = title(out, &labels, functions, hotspot, &place);
        let memory = hotspot.memory(measure).to_owned();
        columns.row(out, [share, value, limits, of_second, memory, title])?;
        callers(out, &labels, hotspot, way, measure)?;
    }
    if found.len() > rows {
        let mut rest = Measures::default();
        found[rows..].iter().for_each(|hotspot| rest.add(&hotspot.measures));
        let limits = estimates::cell(out, process, measure, &rest);
        let rest = measure.of(&rest);
        let others = found.len() - rows;
        let others = counted(others as u64, "other function");
        let (share, value) = (percent(rest, whole), out.amount(measure, rest));
        columns.row(out, [share, value, limits, String::new(), String::new(), others])?;
    }
    Ok(())
}

/// Returns the labels of functions, of the helpers through which they allocate, and of callers.
fn labels<'a>(
    process: &'a Process,
    functions: &Functions,
    hotspots: &[Hotspot],
    ways: &[Vec<(FrameId, u64)>],
) -> Labels<'a> {
    let owners = hotspots.iter().filter_map(|hotspot| hotspot.frame);
    let helpers = hotspots.iter().filter_map(|hotspot| helper(process, functions, hotspot));
    let callers = ways.iter().flatten().map(|step| step.0);
    Labels::of_ids(process, owners.chain(helpers).chain(callers))
}

/// Returns the helper through which a function allocates.
fn helper(process: &Process, functions: &Functions, hotspot: &Hotspot) -> Option<FrameId> {
    let stack = hotspot.stacks.first()?.0;
    let inner = hotspot.helpers(process, functions, stack).checked_sub(1)?;
    process.frames_of(stack).nth(inner)
}

/// Returns the lines of a function that allocate; empty without a source file.
fn place(
    screen: &Screen,
    process: &Process,
    charges: &Charges,
    hotspot: &Hotspot,
    measure: Measure,
) -> String {
    let frame = hotspot.frame.map(|id| &process.tables.frames[id.0 as usize]);
    if frame.is_none_or(|frame| frame.file.is_none()) {
        return String::new();
    }
    hotspots::places(process, &hotspot.lines(charges, measure), |v| screen.amounts(measure, v))
}

/// Returns the function, the helper through which it allocates, and its source place.
fn title(
    screen: &Screen,
    labels: &Labels,
    functions: &Functions,
    hotspot: &Hotspot,
    place: &str,
) -> String {
    let process = labels.process;
    let Some(frame) = hotspot.frame.map(|id| &process.tables.frames[id.0 as usize]) else {
        return "(no stack)".to_owned();
    };
    let module = frames::module_shown(process, frame);
    if frame.function.is_none() {
        return if hotspot.is_one_frame(process) {
            labels.label(frame, screen.fit(NAME))
        } else {
            format!("{module} (functions without names)")
        };
    }
    let name = labels.label(frame, screen.fit(NAME));
    let name = if is_own(process, frame) { Style::Own.of(name) } else { name };
    let helper = helper(process, functions, hotspot).map_or(String::new(), |id| {
        let helper = &process.tables.frames[id.0 as usize];
        format!(" via {}", labels.label(helper, screen.fit(HELPER)))
    });
    match frame.module {
        Some(_) => {
            let place = format!("{place} [{module}]");
            format!("{name}{helper}  {}", Style::Minor.of(place.trim_start()))
        }
        // Python functions have a file but no module.
        None if frame.file.is_some() => {
            format!("{name}{helper}  {}", Style::Minor.of(place))
        }
        // The name is sufficient: requests below the stack threshold, or code without a file.
        None => format!("{name}{helper}"),
    }
}

/// Writes the heaviest path of callers. The share of the whole is shown where it decreases.
fn callers(
    out: &mut Screen,
    labels: &Labels,
    hotspot: &Hotspot,
    way: &[(FrameId, u64)],
    measure: Measure,
) -> io::Result<()> {
    let frames: Vec<FrameId> = way.iter().map(|step| step.0).collect();
    let mut before = measure.of(&hotspot.measures);
    let indent = if out.columns() < NARROW { INDENT_NARROW } else { INDENT };
    let width = (out.fit(CALLER) + INDENT - indent).min(CALLER);
    for line in printed_stack::lines(labels, &frames, CALLER_LINES, width) {
        let value = way[line.at].1;
        let share = if value == before {
            String::new()
        } else {
            percent(value, measure.of(&labels.process.totals))
        };
        before = value;
        stack_lines::write(out, &format!("  {share:>6} {:indent$}", ""), &line, width)?;
    }
    if hotspot.stacks.len() > 1 {
        let stacks = counted(hotspot.stacks.len() as u64, "stack");
        writeln!(out, "{:1$}({stacks}; the heaviest is shown)", "", 9 + indent)?;
    }
    Ok(())
}
