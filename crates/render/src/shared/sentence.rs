//! The first sentences about a process: what holds its memory, how much, since when, and what is
//! not explained.
//!
//! Each part states numbers of the tables. A part that the data do not support is omitted.

use std::cmp::Reverse;

use heaptide_advise::SteadyGrowth;
use heaptide_analysis::attribution::Types;
use heaptide_analysis::model::{
    AccountCause, End, Frame, FrameId, Measure, Measures, Mode, Process, ScopeId, StackId,
};
use heaptide_analysis::views::aggregate::{Group, Key, Order, by_scope, top};
use heaptide_analysis::views::memory::runtime_heap::{Resident, RuntimeHeap};
use heaptide_analysis::views::memory::{At, Memory, OwnMappings, Runtime};

use crate::shared::distinct_names::Labels;
use crate::shared::frames;
use crate::shared::hotspots::{self, Charges, Hotspot};
use crate::shared::names::{elide_middle, printable};
use crate::shared::quantity::{amounts, bytes, duration, percent};
use crate::shared::scope_path::scope_path;

/// Maximum characters of a name.
const NAME: usize = 60;
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
/// The part of the run after growth from which on its end is stated.
const GROWTH_ENDED_PART: u64 = 20;
/// Resident memory without an explanation is stated from this size and this percentage on.
const UNEXPLAINED_MIN: u64 = 1 << 20;
const UNEXPLAINED_PERCENT: u64 = 10;
/// Live blocks of which less than this percentage is resident have pages that were never written.
const TOUCHED_PERCENT: u64 = 70;
/// A sum of two peaks is peak usage if it exceeds the highest sample by less than this percentage.
const UNSURE_PERCENT: u64 = 2;
/// Memory of devices is stated if its peak is at least this percentage of peak usage.
const DEVICE_PERCENT: u64 = 10;
/// An account describes peak usage if it has at least this percentage of it.
const NEAR_PEAK_PERCENT: u64 = 90;

/// The name of allocations without a stack.
const NO_STACK: &str = "code without a recorded stack";
/// Functions are named after a runtime's own heap if they hold at least this percentage of it.
const BESIDE_RUNTIME_PERCENT: u64 = 1;

/// Returns sentences about the memory of a process at peak; `None` if nothing was recorded.
pub fn sentence(process: &Process) -> Option<String> {
    let sentences = if process.totals.at_peak_bytes == 0 {
        [None, None, None, older(process), None, device(process)]
    } else {
        let (holders, growth) = (holders(process), growth(process));
        let (untouched, unexplained) = (untouched(process), unexplained(process));
        [holders, growth, untouched, older(process), unexplained, device(process)]
    };
    let mapped = own_mappings(process).map(|own| mapped_apart(&own));
    let mapped = mapped.or_else(|| mapped_unseen(process));
    let said: Vec<String> = mapped.into_iter().chain(sentences.into_iter().flatten()).collect();
    (!said.is_empty()).then(|| said.join(" "))
}

/// Returns what the program mapped for its own data, if that is not shown, because half of it was
/// never resident, and more of it was resident than any function holds of the heap.
fn own_mappings(process: &Process) -> Option<OwnMappings> {
    let is_apart = process.completeness.leaves_mappings && process.identity.images == 1;
    if !is_apart || process.completeness.part.is_some() {
        return None;
    }
    let own = OwnMappings::of(process)?;
    let is_of_runtime = RuntimeHeap::of(process).is_some_and(|heap| heap.resident.is_some());
    (own.resident.bytes > process.totals.peak_bytes && !is_of_runtime).then_some(own)
}

fn mapped_apart(OwnMappings { resident, most }: &OwnMappings) -> String {
    let by = most.as_ref().map_or(String::new(), |(caller, held)| {
        let mostly = if *held < resident.bytes { "mostly " } else { "" };
        format!(", {mostly}by `{}`", elide_middle(caller, NAME))
    });
    format!(
        "The program mapped memory{by}: {} of it are resident, {} of {} after {}; `--kind program` \
         adds it to the heap.",
        bytes(resident.bytes),
        percent(resident.bytes, resident.of_bytes),
        bytes(resident.of_bytes),
        duration(resident.time_ns),
    )
}

/// States what the program mapped for its own data and had at its end, if nothing was seen of that:
/// a process that is killed or executes another program has no account of its end.
fn mapped_unseen(process: &Process) -> Option<String> {
    let is_apart = process.completeness.leaves_mappings
        && process.identity.images == 1
        && process.completeness.part.is_none()
        && RuntimeHeap::of(process).is_none()
        && matches!(process.lifetime.end, End::Signaled(_) | End::Exec | End::Unknown);
    let last = process.time.accounts.last().map(|account| account.cause);
    if !is_apart || matches!(last, Some(AccountCause::End | AccountCause::Now)) {
        return None;
    }
    let classes = &process.mapped.as_ref()?.classes;
    let own = classes.iter().filter(|(class, _)| class.is_of_program());
    let live = own.fold(0u64, |sum, (_, sums)| sum.saturating_add(sums.live_bytes));
    let is_more = live >= UNEXPLAINED_MIN && live > process.totals.peak_bytes;
    let live = bytes(live);
    is_more.then(|| {
        format!(
            "At its end the program had {live} of its own mappings, of which the resident part is not \
             known; `--kind program` adds them to the heap."
        )
    })
}

/// States the memory of devices beside that of the host, unless it is the memory that is shown.
fn device(process: &Process) -> Option<String> {
    let peak = process.device.as_ref()?.totals.peak_bytes;
    let is_shown = process.tables.sites.iter().any(|site| site.kind.device_memory().is_some());
    let is_large = is_at_least(peak, process.totals.peak_bytes, DEVICE_PERCENT) && peak > 0;
    (is_large && !is_shown).then(|| {
        format!("Devices had up to {} more, which is counted apart (`--kind device`).", bytes(peak))
    })
}

/// A function or scope that holds memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A function, by one of its frames; `None` for allocations without a stack.
    Function(Option<FrameId>),
    /// A scope.
    Scope(ScopeId),
}

/// The largest holder of live memory at one time, as a live screen counts it.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// The function or scope.
    pub owner: Owner,
    /// Its live bytes.
    pub held_bytes: u64,
    /// All live bytes.
    pub live_bytes: u64,
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// By how much its live bytes changed, and in how many nanoseconds; `None` if unknown.
    pub change: Option<(i64, u64)>,
}

/// Returns sentences about live memory at one time, in the words of [`sentence`]. `heap` is the own
/// heap of a runtime, if the process has one.
pub fn sentence_now(process: &Process, heap: Option<&RuntimeHeap>, holder: &Holder) -> String {
    let larger = |heap: &&RuntimeHeap| {
        heap.resident.is_some_and(|resident| resident.bytes > holder.held_bytes)
    };
    let runtime = heap.filter(larger).and_then(runtime_holder);
    let follows = runtime.is_some();
    let name = owner_name(process, holder.owner);
    let (held, live) = (holder.held_bytes, holder.live_bytes);
    let change = holder.change.filter(|&(_, ns)| ns >= GROWTH_MIN_NS);
    let change = change.map_or(String::new(), |(by, ns)| match by {
        0 => format!(", unchanged for {}", duration(ns)),
        by => {
            let word = if by > 0 { "more" } else { "less" };
            format!(", {} {word} than {} ago", bytes(by.unsigned_abs()), duration(ns))
        }
    });
    let functions = format!(
        "{name} holds {}{}, {} of {} live after {}{change}.",
        about(process),
        bytes(held),
        percent(held, live),
        bytes(live),
        duration(holder.time_ns),
    );
    let functions = if follows { capitalised(functions) } else { functions };
    runtime.into_iter().chain([functions]).collect::<Vec<_>>().join(" ")
}

fn owner_name(process: &Process, owner: Owner) -> String {
    let frame = match owner {
        Owner::Scope(id) => return scope_name(process, id),
        Owner::Function(None) => return NO_STACK.to_owned(),
        Owner::Function(Some(id)) => &process.tables.frames[id.0 as usize],
    };
    if frame.function.is_none() {
        return nameless(process, frame);
    }
    let name = Labels::of(process, [frame]).label(frame, NAME);
    if let Some(name) = bracketed(&name) {
        return name.to_owned();
    }
    let file = frame.file.as_deref().map(|file| printable(frames::file_name(file)));
    file.map_or(format!("`{name}`"), |file| format!("`{name}` ({file})"))
}

fn scope_name(process: &Process, id: ScopeId) -> String {
    match id {
        ScopeId(0) => "Code outside of scopes".to_owned(),
        id => format!("Scope `{}`", scope_path(process, id, NAME)),
    }
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
    let mut found = charges.hotspots(Measure::AtPeakBytes);
    let of_heap = |hotspot: &Hotspot| hotspot.measures.at_peak_bytes.saturating_sub(hotspot.mapped);
    let largest = found.iter().map(of_heap).max().unwrap_or(0);
    let Some(heap) = stated_runtime(process, largest) else {
        return largest_functions(process, &charges, &found, None);
    };
    let resident = heap.resident.map_or(0, |resident| resident.bytes);
    let is_largest = resident > largest;
    let inside = take_runtime(process, &mut found, heap.runtime);
    let held = found.first().map_or(0, |hotspot| hotspot.measures.at_peak_bytes);
    let functions = is_at_least(held, resident, BESIDE_RUNTIME_PERCENT)
        .then(|| {
            let of = if is_largest { "it".to_owned() } else { own_heap(heap.runtime) };
            let stated = Stated { heap: &heap, mapped_bytes: inside, called: of };
            largest_functions(process, &charges, &found, Some(stated))
        })
        .flatten();
    let runtime = runtime_holder(&heap);
    let sentences = if is_largest {
        [runtime, functions.map(capitalised)]
    } else {
        [functions, runtime.map(capitalised)]
    };
    Some(sentences.into_iter().flatten().collect::<Vec<_>>().join(" "))
}

/// Returns a sentence with a capital letter, unless it begins with a name in backticks.
pub(crate) fn capitalised(sentence: String) -> String {
    let mut rest = sentence.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// Returns the own heap of a runtime, if more of it is resident than the largest function holds of
/// the heap, or a large part of the resident memory is in it.
fn stated_runtime(process: &Process, largest: u64) -> Option<RuntimeHeap> {
    if process.completeness.part.is_some() || process.identity.images > 1 {
        return None;
    }
    let heap = RuntimeHeap::of(process)?;
    let is_large = |resident: Resident| {
        resident.bytes > largest || is_at_least(resident.bytes, resident.of_bytes, HOLDER_PERCENT)
    };
    heap.resident.is_some_and(is_large).then_some(heap)
}

fn own_heap(runtime: &Runtime) -> String {
    format!("{}'s own heap", runtime.name)
}

/// Describes the own heap of a runtime.
fn runtime_holder(heap: &RuntimeHeap) -> Option<String> {
    let Resident { bytes: resident, of_bytes, time_ns } = heap.resident?;
    Some(format!(
        "{} holds {}, {} of {} resident after {}; {}.",
        own_heap(heap.runtime),
        bytes(resident),
        percent(resident, of_bytes),
        bytes(of_bytes),
        duration(time_ns),
        heap.runtime.hint,
    ))
}

/// Removes what the runtime mapped for its own heap from hotspots that are only the runtime: its
/// functions that map memory, and code without names in its file. Returns the removed bytes.
fn take_runtime(process: &Process, found: &mut Vec<Hotspot>, runtime: &Runtime) -> u64 {
    let mut taken = 0u64;
    for hotspot in found.iter_mut() {
        let frame = hotspot.frame.map(|id| &process.tables.frames[id.0 as usize]);
        let is_runtime = frame.is_some_and(|frame| match frame.function.as_deref() {
            Some(name) => runtime.has_function(name),
            None => runtime.has_file(frames::module_name(process, frame)),
        });
        if is_runtime {
            taken = taken.saturating_add(hotspot.mapped);
            let of_mappings = hotspot.of_mappings.live_bytes;
            let measures = &mut hotspot.measures;
            measures.at_peak_bytes = measures.at_peak_bytes.saturating_sub(hotspot.mapped);
            measures.live_bytes = measures.live_bytes.saturating_sub(of_mappings);
            hotspot.mapped = 0;
        }
    }
    found.retain(|hotspot| hotspot.measures.at_peak_bytes > 0);
    found.sort_by_key(|hotspot| Reverse(hotspot.measures.at_peak_bytes));
    taken
}

/// The own heap of a runtime, which another sentence describes.
struct Stated<'a> {
    heap: &'a RuntimeHeap,
    /// Bytes of it that were removed from hotspots.
    mapped_bytes: u64,
    /// How the sentence about functions refers to it.
    called: String,
}

/// Names the largest functions.
fn largest_functions(
    process: &Process,
    charges: &Charges,
    found: &[Hotspot],
    stated: Option<Stated>,
) -> Option<String> {
    let labels = Labels::of_ids(process, found.iter().take(HOLDERS).filter_map(|h| h.frame));
    let held = |hotspot: &Hotspot| hotspot.measures.at_peak_bytes;
    let first = found.first()?;
    let name = |hotspot: &Hotspot| holder_name(&labels, charges, hotspot);
    let next = |hotspots: &[Hotspot]| -> Vec<String> {
        let of = |h: &Hotspot| format!("{} {}", name(h), bytes(held(h)));
        hotspots.iter().map(of).collect()
    };
    let runtime = stated.as_ref().map(|stated| stated.heap.runtime);
    let within = part_of_runtime(process, charges, first, runtime);
    let (whole, peak) = match &stated {
        Some(stated) if stated.mapped_bytes > 0 && within.is_none() => {
            let rest = process.totals.at_peak_bytes.saturating_sub(stated.mapped_bytes);
            (rest, format!("{} outside of {}", bytes(rest), stated.called))
        }
        _ => (process.totals.at_peak_bytes, peak(process)),
    };
    if !is_at_least(held(first), whole, HOLDER_PERCENT) && found.len() > HOLDERS {
        let share = percent(held(first), whole);
        let largest = next(&found[..HOLDERS]).join(", ");
        return Some(format!("No function holds more than {share} of {peak}; largest: {largest}."));
    }
    let kind = match (&within, first.memory(Measure::AtPeakBytes)) {
        (Some((_, kind)), _) => kind,
        (None, "mapped") => " of mapped memory",
        (None, "both") => " of heap and mapped memory",
        (None, _) => "",
    };
    let mut text = format!(
        "{} holds {}{}{kind}{}, {} of {peak}",
        name(first),
        about(process),
        bytes(held(first)),
        type_of(process, charges, first),
        percent(held(first), whole),
    );
    text += &fate(process, &first.measures);
    let hint = within.map(|(runtime, _)| runtime).or_else(|| of_chunks(process, first));
    if let Some(runtime) = hint
        && stated.is_none()
    {
        text += &format!("; {}", runtime.hint);
    }
    if !is_at_least(held(first), whole, ALONE_PERCENT) && found.len() > 1 {
        let others = next(&found[1..found.len().min(HOLDERS)]).join(", ");
        text += &format!("; then {others}");
    }
    Some(text + ".")
}

/// Returns the runtime in whose own heap most memory of a function is, and words that state it:
/// the runtime maps the memory, or takes it from `malloc` with a known function, for its caller.
fn part_of_runtime(
    process: &Process,
    charges: &Charges,
    hotspot: &Hotspot,
    stated: Option<&'static Runtime>,
) -> Option<(&'static Runtime, String)> {
    let is_all = |part: u64| is_at_least(part, hotspot.measures.at_peak_bytes, TYPE_PERCENT);
    let words = |runtime: &Runtime, part: u64| {
        let most = if is_all(part) { "" } else { ", most of it" };
        format!("{most} in {}", own_heap(runtime))
    };
    let frame = &process.tables.frames[hotspot.frame?.0 as usize];
    let mut chunks = (None, 0u64);
    let mut mapped = 0u64;
    for &(stack, bytes) in &hotspot.stacks {
        let inside = frames_inside(process, charges, stack);
        let mut names = inside.filter_map(|frame| frame.function.as_deref());
        let is_chunk = |name: &str| Runtime::taking_chunks(name);
        match stated {
            Some(runtime) if names.clone().any(|name| runtime.has_function(name)) => {
                mapped = mapped.saturating_add(bytes);
            }
            _ => {
                if let Some(runtime) = names.find_map(is_chunk) {
                    chunks = (Some(runtime), chunks.1.saturating_add(bytes));
                }
            }
        }
    }
    if let Some(runtime) = stated {
        let of_file = runtime.has_file(frames::module_name(process, frame));
        let part = if of_file { hotspot.mapped } else { mapped.min(hotspot.mapped) };
        if is_at_least(part, hotspot.measures.at_peak_bytes, ALONE_PERCENT) {
            return Some((runtime, words(runtime, part)));
        }
    }
    let (runtime, part) = (chunks.0?, chunks.1);
    is_at_least(part, hotspot.measures.at_peak_bytes, ALONE_PERCENT)
        .then(|| (runtime, words(runtime, part)))
}

/// Returns the frames of a stack inside its owner, innermost first.
fn frames_inside<'a>(
    process: &'a Process,
    charges: &Charges,
    stack: StackId,
) -> impl Iterator<Item = &'a Frame> + Clone {
    let owner = charges.owners.stack(stack);
    let stacks = &process.tables.stacks;
    let up = move |at: &StackId| stacks.get(at.0 as usize).map(|node| node.parent);
    std::iter::successors(Some(stack), up)
        .take_while(move |at| *at != owner && *at != StackId(0))
        .map(|at| &process.tables.frames[stacks[at.0 as usize].frame.0 as usize])
}

/// Returns the runtime whose own heap a hotspot is, if it takes that from `malloc`.
fn of_chunks(process: &Process, hotspot: &Hotspot) -> Option<&'static Runtime> {
    let frame = &process.tables.frames[hotspot.frame?.0 as usize];
    Runtime::taking_chunks(frame.function.as_deref()?)
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
    let name = elide_middle(types.name(first), NAME);
    if held < hotspot.measures.at_peak_bytes {
        return format!(" ({} of it `{name}`)", percent(held, hotspot.measures.at_peak_bytes));
    }
    format!(" of `{name}`")
}

fn holder_name(labels: &Labels, charges: &Charges, hotspot: &Hotspot) -> String {
    let process = labels.process;
    let Some(frame) = hotspot.frame.map(|id| &process.tables.frames[id.0 as usize]) else {
        return NO_STACK.to_owned();
    };
    if frame.function.is_none() && !hotspot.is_one_frame(process) {
        return nameless(process, frame);
    }
    let name = labels.label(frame, NAME);
    if let Some(name) = bracketed(&name) {
        return name.to_owned();
    }
    if let Some(runtime) = of_chunks(process, hotspot) {
        return format!("{}'s own heap (`{name}`)", runtime.name);
    }
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

/// Returns the text of a frame that is not a function.
fn bracketed(name: &str) -> Option<&str> {
    name.strip_prefix('[')?.strip_suffix(']')
}

fn nameless(process: &Process, frame: &Frame) -> String {
    format!("code without names in {}", frames::module_shown(process, frame))
}

/// Names the scope that holds most memory at peak.
fn scope_holder(process: &Process) -> Option<String> {
    let groups = by_scope(process);
    let Group { key: Key::Scope(id), own, .. } =
        top(groups, Measure::AtPeakBytes, Order::Own, 1).first().copied()?
    else {
        return None;
    };
    let name = scope_name(process, id);
    let (held, share) =
        (bytes(own.at_peak_bytes), percent(own.at_peak_bytes, process.totals.at_peak_bytes));
    Some(format!("{name} holds {held}, {share} of {}.", peak(process)))
}

/// Describes peak usage, and when it was reached.
fn peak(process: &Process) -> String {
    let size = bytes(process.totals.at_peak_bytes);
    match process.identity.images {
        images @ 2.. => format!("{size}, the peaks of {images} process images added up"),
        _ if process.completeness.memory.is_some() && !is_peak_close(process) => {
            format!("{size}, the peaks of heap and mappings added up")
        }
        _ => {
            let bound = if process.completeness.peak_is_least { "at least " } else { "" };
            let of = if own_mappings(process).is_some() {
                "peak usage of the heap"
            } else {
                "peak usage"
            };
            format!("{of} ({bound}{size} after {})", duration(process.peak_time_ns))
        }
    }
}

/// Returns whether the peak is known to a few percent: the recorder knows that of each kind of
/// memory, and samples that of both.
pub(crate) fn is_peak_close(process: &Process) -> bool {
    let (bound, peak) = (process.completeness.peak_bound_bytes, process.totals.peak_bytes);
    !is_at_least(bound, peak, UNSURE_PERCENT)
}

/// Describes what of a holder's memory is live at the end.
fn fate(process: &Process, held: &Measures) -> String {
    let end = match process.lifetime.end {
        End::Exited(_) => "exit",
        End::Running | End::Detached | End::Exec | End::Unknown => return String::new(),
        End::Signaled(_) => "the end",
    };
    // Of a function with few sampled blocks, none may be among the live ones.
    let is_estimate = process.sampling.is_some() && process.totals.live_bytes > 0;
    let is_all = !is_estimate && is_at_least(held.live_bytes, held.at_peak_bytes, 100);
    match held.live_bytes {
        0 if is_estimate => format!(", no sampled block of it live at {end}"),
        0 => format!(", freed before {end}"),
        _ if is_all => format!(", all live at {end}"),
        live => format!(", {}{} live at {end}", about(process), bytes(live)),
    }
}

/// States steady growth.
fn growth(process: &Process) -> Option<String> {
    if process.identity.images != 1 || process.completeness.part.is_some() {
        return None;
    }
    let growth = SteadyGrowth::of(process, GROWTH_MIN_NS)?;
    let (from, to) = growth.ends();
    let run_ns = process.lifetime.duration_ns;
    let ended = run_ns.saturating_sub(growth.end_ns) > run_ns / GROWTH_ENDED_PART;
    let until =
        if ended { format!("; it fell after {}", duration(growth.end_ns)) } else { String::new() };
    Some(format!(
        "Live memory grew from {} to {} in {}, by {} per second{until}.",
        bytes(from),
        bytes(to),
        duration(growth.time_ns()),
        bytes(growth.bytes_per_second())
    ))
}

/// Returns the account of resident memory at peak usage.
fn at_peak(process: &Process) -> Option<Memory<'_>> {
    let memory = Memory::of(process, At::Peak)?;
    let heap_peak = memory.account.peak_bytes;
    is_at_least(memory.account.live_bytes, heap_peak, NEAR_PEAK_PERCENT).then_some(memory)
}

/// States that a large part of the blocks was never written.
///
/// A program can write to blocks after the account; then its highest resident memory is higher, by
/// at least as much. Accounts contain it, so the last one has to be of the end.
fn untouched(process: &Process) -> Option<String> {
    let memory = at_peak(process)?;
    let last = process.time.accounts.last()?;
    let is_of_end = matches!(last.cause, AccountCause::End | AccountCause::Now);
    let is_known = last.most_resident_bytes > 0;
    let live = memory.account.live_bytes;
    let heap = memory.row("heap")?;
    let of_blocks = heap.children.iter().filter(|row| row.name.starts_with("live "));
    let resident = of_blocks.fold(0u64, |sum, row| sum.saturating_add(row.resident_bytes));
    let later = last.most_resident_bytes.saturating_sub(memory.account.resident_bytes);
    let most = resident.saturating_add(later);
    let is_large = live >= UNEXPLAINED_MIN && is_at_least(live, process.totals.peak_bytes, 50);
    let is_touched = is_at_least(most, live, TOUCHED_PERCENT);
    (is_of_end && is_known && is_large && !is_touched).then(|| {
        let (live, most) = (bytes(live), bytes(most));
        format!("Of {live} in blocks, at most {most} were resident.")
    })
}

/// States that blocks from before the recording can be more than all that it shows.
fn older(process: &Process) -> Option<String> {
    let event = match (process.completeness.starts_in_middle, process.identity.forked) {
        (true, _) => "the recording began",
        (false, true) => "the process was forked",
        (false, false) => return None,
    };
    older_than(process, process.totals.peak_bytes, "", event)
}

/// States the same of another process, to which a command attached.
pub fn older_elsewhere(shown: &Process, attached: &Process) -> Option<String> {
    let place = format!(" in {}", attached.who());
    older_than(attached, shown.totals.peak_bytes, &place, "the recording began")
}

/// States blocks from before an event, if they can be more than what is shown. The allocator's own
/// data, among which they are counted, are far less.
fn older_than(process: &Process, shown: u64, place: &str, event: &str) -> Option<String> {
    // The program may free them later.
    let of_older = |memory: &Memory<'_>| {
        let children = &memory.row("heap")?.children;
        let row = children.iter().find(|row| row.name == "overhead")?;
        Some((row.resident_bytes, memory.account.resident_bytes))
    };
    let (older, resident) =
        Memory::over_time(process).filter_map(|memory| of_older(&memory)).max()?;
    let is_more = older >= UNEXPLAINED_MIN
        && older > shown
        && is_at_least(older, resident, UNEXPLAINED_PERCENT);
    let (older, resident) = (bytes(older), bytes(resident));
    is_more.then(|| {
        format!(
            "At most {older} of {resident} resident{place} were blocks from before {event}, not \
             shown."
        )
    })
}

/// States resident memory that is neither recorded nor of a known kind.
fn unexplained(process: &Process) -> Option<String> {
    if process.mode == Mode::Counters {
        return None; // which ranges are recorded is not known
    }
    let memory = Memory::of(process, At::Peak)?;
    let unknown = memory.unexplained_bytes.saturating_add(memory.unrecorded_bytes);
    let resident = memory.account.resident_bytes;
    let is_large =
        unknown >= UNEXPLAINED_MIN && is_at_least(unknown, resident, UNEXPLAINED_PERCENT);
    let (unknown, resident) = (bytes(unknown), bytes(resident));
    is_large.then(|| {
        if process.identity.forked {
            return format!(
                "{unknown} of {resident} resident are from before the fork or unknown."
            );
        }
        format!("{unknown} of {resident} resident were not recorded.")
    })
}
