//! The first sentences about a process: what holds its memory, how much, since when, and what is
//! not explained.
//!
//! Each part states numbers of the tables. A part that the data do not support is omitted.

use heaptide_advise::SteadyGrowth;
use heaptide_analysis::attribution::Types;
use heaptide_analysis::model::{End, Measure, Measures, Mode, Process, ScopeId};
use heaptide_analysis::views::aggregate::{Group, Key, Order, by_scope, top};
use heaptide_analysis::views::memory::{At, Memory};

use crate::shared::distinct_names::Labels;
use crate::shared::frames;
use crate::shared::hotspots::{self, Charges, Hotspot};
use crate::shared::names::elide_middle;
use crate::shared::quantity::{amounts, bytes, duration, percent};
use crate::shared::scope_path::scope_path;

/// Maximum characters of a name.
const NAME: usize = 50;
/// A holder of at least this percentage of peak usage is named alone.
const ALONE_PERCENT: u64 = 50;
/// Without a holder of at least this percentage, the sentence states that there is none.
const HOLDER_PERCENT: u64 = 20;
/// Maximum number of holders named.
const HOLDERS: usize = 3;
/// A type is named if it has at least this percentage of a holder's bytes.
const TYPE_PERCENT: u64 = 90;
/// A line of a holder is named if it has at least this percentage of the holder's bytes.
const LINE_PERCENT: u64 = 1;
/// Growth is stated for runs of at least this many nanoseconds: in shorter ones, programs that
/// build their data and end look the same.
const GROWTH_MIN_NS: u64 = 2_000_000_000;
/// Resident memory without an explanation is stated from this size and this percentage on.
const UNEXPLAINED_MIN: u64 = 1 << 20;
const UNEXPLAINED_PERCENT: u64 = 10;
/// Live blocks of which less than this percentage is resident have pages that were never written.
const TOUCHED_PERCENT: u64 = 70;
/// A sum of two peaks is peak usage if it exceeds the highest sample by less than this percentage.
const UNSURE_PERCENT: u64 = 2;
/// An account describes peak usage if it has at least this percentage of it.
const NEAR_PEAK_PERCENT: u64 = 90;

/// Returns sentences about the memory of a process at peak; `None` if nothing was recorded.
pub fn sentence(process: &Process) -> Option<String> {
    if process.totals.at_peak_bytes == 0 {
        return None;
    }
    let sentences = [holders(process), growth(process), untouched(process), unexplained(process)];
    let said: Vec<String> = sentences.into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join(" "))
}

fn is_at_least(part: u64, whole: u64, percent: u64) -> bool {
    u128::from(part) * 100 >= u128::from(whole) * u128::from(percent)
}

/// Names the functions or scopes that hold most memory at peak.
fn holders(process: &Process) -> Option<String> {
    match process.mode {
        Mode::Counters => None,
        Mode::Scopes => scope_holder(process),
        Mode::Stacks => function_holders(process),
    }
}

fn function_holders(process: &Process) -> Option<String> {
    let charges = Charges::of(process);
    let found = charges.hotspots(Measure::AtPeakBytes);
    let labels = Labels::of_ids(process, found.iter().take(HOLDERS).filter_map(|h| h.frame));
    let whole = process.totals.at_peak_bytes;
    let held = |hotspot: &Hotspot| hotspot.measures.at_peak_bytes;
    let first = found.first()?;
    let name = |hotspot: &Hotspot| holder_name(&labels, &charges, hotspot);
    let next = |hotspots: &[Hotspot]| -> Vec<String> {
        let of = |h: &Hotspot| format!("{} {}", name(h), bytes(held(h)));
        hotspots.iter().map(of).collect()
    };
    if !is_at_least(held(first), whole, HOLDER_PERCENT) && found.len() > HOLDERS {
        let (share, peak) = (percent(held(first), whole), peak(process));
        let largest = next(&found[..HOLDERS]).join(", ");
        return Some(format!("No function holds more than {share} of {peak}; largest: {largest}."));
    }
    let kind = match first.memory(Measure::AtPeakBytes) {
        "mapped" => " of mapped memory",
        "both" => " of heap and mapped memory",
        _ => "",
    };
    let mut text = format!(
        "{} holds {}{}{kind}{}, {} of {}",
        name(first),
        about(process),
        bytes(held(first)),
        type_of(process, &charges, first),
        percent(held(first), whole),
        peak(process),
    );
    text += &fate(process, &first.measures);
    if !is_at_least(held(first), whole, ALONE_PERCENT) && found.len() > 1 {
        let others = next(&found[1..found.len().min(HOLDERS)]).join(", ");
        text += &format!("; then {others}");
    }
    Some(text + ".")
}

/// Returns a word before numbers that are estimates.
fn about(process: &Process) -> &'static str {
    if process.sampling.is_some() { "about " } else { "" }
}

/// Returns the type of a function's blocks, if nearly all of them have one type.
fn type_of(process: &Process, charges: &Charges, hotspot: &Hotspot) -> String {
    let types = Types::of(process, &charges.owners);
    let Some(first) = hotspot.stacks.first().and_then(|(stack, _)| types.of_stack(*stack)) else {
        return String::new();
    };
    let of_type = hotspot.stacks.iter().filter(|(stack, _)| types.of_stack(*stack) == Some(first));
    let held = of_type.fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    if !is_at_least(held, hotspot.measures.at_peak_bytes, TYPE_PERCENT) {
        return String::new();
    }
    format!(" of `{}`", elide_middle(types.name(first), NAME))
}

fn holder_name(labels: &Labels, charges: &Charges, hotspot: &Hotspot) -> String {
    let process = labels.process;
    let Some(frame) = hotspot.frame.map(|id| &process.tables.frames[id.0 as usize]) else {
        return "code without a recorded stack".to_owned();
    };
    if frame.function.is_none() && !hotspot.is_one_frame(process) {
        let module = frames::module_shown(process, frame);
        return format!("code without names in {module}");
    }
    let name = labels.label(frame, NAME);
    match &frame.file {
        Some(_) => {
            let measure = Measure::AtPeakBytes;
            let mut lines = hotspot.lines(charges, measure);
            lines.retain(|line| is_at_least(line.1, hotspot.measures.at_peak_bytes, LINE_PERCENT));
            let places = hotspots::places(process, &lines, |v| amounts(measure, v));
            format!("`{name}` ({places})")
        }
        None => format!("`{name}`"),
    }
}

/// Names the scope that holds most memory at peak.
fn scope_holder(process: &Process) -> Option<String> {
    let groups = by_scope(process);
    let Group { key: Key::Scope(id), own, .. } =
        top(groups, Measure::AtPeakBytes, Order::Own, 1).first().copied()?
    else {
        return None;
    };
    let name = match id {
        ScopeId(0) => "Code outside of scopes".to_owned(),
        id => format!("Scope `{}`", scope_path(process, id, NAME)),
    };
    let (held, share) =
        (bytes(own.at_peak_bytes), percent(own.at_peak_bytes, process.totals.at_peak_bytes));
    Some(format!("{name} holds {held}, {share} of {}.", peak(process)))
}

/// Describes peak usage, and when it was reached.
fn peak(process: &Process) -> String {
    let size = bytes(process.totals.at_peak_bytes);
    let bound = process.completeness.peak_bound_bytes;
    let is_close = !is_at_least(bound, process.totals.peak_bytes, UNSURE_PERCENT);
    match process.identity.images {
        images @ 2.. => format!("{size}, the peaks of {images} process images added up"),
        _ if process.completeness.memory.is_some() && !is_close => {
            format!("{size}, the peaks of heap and mappings added up")
        }
        _ => format!("peak usage ({size} after {})", duration(process.peak_time_ns)),
    }
}

/// Describes what of a holder's memory is live at the end.
fn fate(process: &Process, held: &Measures) -> String {
    let end = match process.lifetime.end {
        End::Exited(_) => "exit",
        End::Running | End::Detached | End::Exec | End::Unknown => return String::new(),
        End::Signaled(_) => "the end",
    };
    match held.live_bytes {
        0 => format!(", freed before {end}"),
        live if is_at_least(live, held.at_peak_bytes, 100) => format!(", all live at {end}"),
        live => format!(", {}{} live at {end}", about(process), bytes(live)),
    }
}

/// States steady growth.
fn growth(process: &Process) -> Option<String> {
    if process.identity.images != 1 || process.completeness.part.is_some() {
        return None;
    }
    let growth = SteadyGrowth::of(process, GROWTH_MIN_NS)?;
    let (from, to) = (growth.floors[0], growth.highest);
    let per_second =
        u128::from(to.saturating_sub(from)) * 1_000_000_000 / u128::from(growth.end_ns);
    Some(format!(
        "Live memory grew from {} to {} in {}, by {} per second.",
        bytes(from),
        bytes(to),
        duration(growth.end_ns),
        bytes(per_second as u64)
    ))
}

/// Returns the account of resident memory at peak usage.
fn at_peak(process: &Process) -> Option<Memory<'_>> {
    let memory = Memory::of(process, At::Peak)?;
    let heap_peak = memory.account.peak_bytes;
    is_at_least(memory.account.live_bytes, heap_peak, NEAR_PEAK_PERCENT).then_some(memory)
}

/// States that a large part of the blocks was never written.
fn untouched(process: &Process) -> Option<String> {
    let memory = at_peak(process)?;
    let live = memory.account.live_bytes;
    let heap = memory.row("heap")?;
    let of_blocks = heap.children.iter().filter(|row| row.name.starts_with("live "));
    let resident = of_blocks.fold(0u64, |sum, row| sum.saturating_add(row.resident_bytes));
    let is_large = live >= UNEXPLAINED_MIN && is_at_least(live, process.totals.peak_bytes, 50);
    let is_touched = is_at_least(resident, live, TOUCHED_PERCENT);
    (is_large && !is_touched).then(|| {
        let (live, resident) = (bytes(live), bytes(resident));
        format!("Of {live} in blocks, at most {resident} were resident.")
    })
}

/// States resident memory that is neither recorded nor of a known kind.
fn unexplained(process: &Process) -> Option<String> {
    let memory = Memory::of(process, At::Peak)?;
    let unknown = memory.unexplained_bytes.saturating_add(memory.unrecorded_bytes);
    let resident = memory.account.resident_bytes;
    let is_large =
        unknown >= UNEXPLAINED_MIN && is_at_least(unknown, resident, UNEXPLAINED_PERCENT);
    is_large
        .then(|| format!("{} of {} resident were not recorded.", bytes(unknown), bytes(resident)))
}
