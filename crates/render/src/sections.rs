//! The sections of the report page: functions ordered by a measure, and who calls them.

use std::io::{self, Write};

use heaptide_analysis::measure::Measure;
use heaptide_analysis::model::{End, Process};

use crate::frames;
use crate::hotspots::{Hotspot, hotspots};
use crate::quantity::{bytes, counted, percent, short_count};

/// Characters a function's name may have.
const NAME: usize = 58;
/// Lines of callers below a function.
const CALLER_LINES: usize = 6;

/// Who held the memory at the peak, who holds what is live, who makes temporaries.
pub(crate) fn usual(out: &mut dyn Write, process: &Process, rows: usize) -> io::Result<()> {
    let t = &process.totals;
    let (peak, live) = (bytes(t.at_peak_bytes), bytes(t.live_bytes));
    let live = match process.end {
        End::Exited(_) => ("Live at exit", format!("who never freed {live}")),
        End::Running => ("Live now", format!("who holds {live}")),
        _ => ("Live at the end", format!("who held {live}")),
    };
    let made = format!(
        "who made {} to free them at once",
        counted(t.temporary, "block")
    );
    let peak = ("At the peak", format!("who held the {peak}"));
    let sections = [
        (peak, Measure::AtPeakBytes, Measure::AtPeakBlocks),
        (live, Measure::LiveBytes, Measure::LiveBlocks),
        (
            ("Temporary", made),
            Measure::Temporary,
            Measure::Allocations,
        ),
    ];
    for ((name, question), measure, second) in sections {
        if measure.of(t) == 0 {
            writeln!(out, "\n{name}: nothing")?;
            continue;
        }
        writeln!(out, "\n{name}: {question}")?;
        section(
            out,
            process,
            &hotspots(process, measure),
            measure,
            second,
            rows,
        )?;
    }
    Ok(())
}

/// One section ordered by a measure.
pub(crate) fn sorted(
    out: &mut dyn Write,
    process: &Process,
    measure: Measure,
    rows: usize,
) -> io::Result<()> {
    let measure = measure.of_sites();
    let found = hotspots(process, measure);
    writeln!(out, "\nBy {}", measure.name())?;
    let second = match measure.is_bytes() {
        true => Measure::Allocations,
        false => Measure::UsableBytes,
    };
    section(out, process, &found, measure, second, rows)
}

fn section(
    out: &mut dyn Write,
    process: &Process,
    found: &[Hotspot],
    measure: Measure,
    second: Measure,
    rows: usize,
) -> io::Result<()> {
    if found.is_empty() {
        return writeln!(out, "  nothing");
    }
    let whole = measure.of(&process.totals);
    writeln!(
        out,
        "  {:>6} {:>10} {:>10}  function, and who calls it",
        "share",
        unit(measure),
        unit(second)
    )?;
    for hotspot in found.iter().take(rows) {
        let value = measure.of(&hotspot.measures);
        let of_second = amount(second, second.of(&hotspot.measures));
        let share = percent(value, whole);
        let value = amount(measure, value);
        writeln!(
            out,
            "  {share:>6} {value:>10} {of_second:>10}  {}",
            title(process, hotspot)
        )?;
        callers(out, process, hotspot, measure)?;
    }
    if found.len() > rows {
        let rest: u64 = found[rows..].iter().map(|h| measure.of(&h.measures)).sum();
        let others = found.len() - rows;
        let share = percent(rest, whole);
        let value = amount(measure, rest);
        writeln!(
            out,
            "  {share:>6} {value:>10} {:>10}  {}",
            "",
            counted(others as u64, "other function")
        )?;
    }
    Ok(())
}

/// A column's heading: what its numbers count.
fn unit(measure: Measure) -> &'static str {
    match measure {
        Measure::LiveBlocks | Measure::AtPeakBlocks => "blocks",
        Measure::Allocations => "allocs",
        Measure::Reallocations => "reallocs",
        Measure::CrossThreadFrees => "frees",
        Measure::FreesHere => "frees",
        _ if measure.is_bytes() => "bytes",
        other => other.name(),
    }
}

/// A value in the unit of its measure.
pub(crate) fn amount(measure: Measure, value: u64) -> String {
    if measure.is_bytes() {
        bytes(value)
    } else {
        short_count(value)
    }
}

/// The function, the helper that it allocates through, its place.
fn title(process: &Process, hotspot: &Hotspot) -> String {
    let Some(frame) = hotspot.frame.map(|id| &process.frames[id.0 as usize]) else {
        return "(no stack)".to_owned();
    };
    let module = frames::module_name(process, frame);
    if frame.function.is_none() {
        return format!("{module} (no symbols)");
    }
    let name = frames::label(process, frame, NAME);
    let place = match &frame.file {
        Some(_) => frames::place(process, frame) + " ",
        None => String::new(),
    };
    let helper = match helpers(process, hotspot) {
        0 => String::new(),
        n => {
            let frame = process.frames_of(hotspot.stacks[0].0).nth(n - 1);
            let frame = frame.map(|id| &process.frames[id.0 as usize]);
            frame.map_or(String::new(), |f| {
                format!(" via {}", frames::label(process, f, NAME / 2))
            })
        }
    };
    format!("{name}{helper}  {place}[{module}]")
}

/// How many frames of allocating helpers lie inside of the function on its largest stack.
fn helpers(process: &Process, hotspot: &Hotspot) -> usize {
    let frames = process.frames_of(hotspot.stacks[0].0);
    frames.take_while(|id| Some(*id) != hotspot.frame).count()
}

/// The largest stack of a function, and how many more there are.
fn callers(
    out: &mut dyn Write,
    process: &Process,
    hotspot: &Hotspot,
    measure: Measure,
) -> io::Result<()> {
    let (stack, largest) = hotspot.stacks[0];
    let named = hotspot
        .frame
        .is_some_and(|id| process.frames[id.0 as usize].function.is_some());
    // The title already is the function itself.
    let skip = if named {
        helpers(process, hotspot) + 1
    } else {
        0
    };
    for line in frames::lines(process, stack, skip, CALLER_LINES, NAME) {
        let text = format!("{:34}{:<40}  {}", "", line.label, line.place);
        writeln!(out, "{}", text.trim_end())?;
    }
    if hotspot.stacks.len() > 1 {
        let others = counted(hotspot.stacks.len() as u64 - 1, "other stack");
        let share = percent(measure.of(&largest), measure.of(&hotspot.measures));
        writeln!(
            out,
            "{:34}({share} of it on this stack, the rest on {others})",
            ""
        )?;
    }
    Ok(())
}
