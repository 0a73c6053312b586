//! Hotspots: sites grouped by the function that is responsible for the memory, with its stacks.

use std::borrow::Cow;
use std::cmp::Reverse;

use heaptide_analysis::attribution::{FunctionId, Functions, Owners};
use heaptide_analysis::model::{FrameId, Measure, Measures, ModuleId, Process, StackId};
use heaptide_analysis::views::aggregate::by_stack;
use rustc_hash::FxHashMap;

use crate::shared::frames::{self, file_name};
use crate::shared::names::printable;

/// The heaviest path is followed while it carries at least this fraction of the hotspot, …
const WAY_PART: u64 = 10;
/// … and for at least this many frames.
const WAY_MIN: usize = 2;

/// The most lines of a function that are listed.
const LINES_LISTED: usize = 3;

/// A function, and what it allocated directly and through allocating helpers.
#[derive(Clone, Debug)]
pub struct Hotspot {
    /// One of the function's frames; `None` for allocations without a stack.
    pub frame: Option<FrameId>,
    /// Sums over its sites.
    pub measures: Measures,
    /// The part of them that mappings have.
    pub of_mappings: Measures,
    /// Its stacks with a value of the requested metric, summed over the lanes, largest first.
    pub stacks: Vec<(StackId, u64)>,
    /// The part of the value that mappings have.
    pub mapped: u64,
}

/// The owners of a process's allocations, for any metric.
pub struct Charges<'a> {
    process: &'a Process,
    /// The owners.
    pub owners: Owners,
    /// Sums over the mappings of each stack that has some.
    mapped: FxHashMap<StackId, Measures>,
}

impl<'a> Charges<'a> {
    /// Determines the owners.
    pub fn of(process: &'a Process) -> Charges<'a> {
        let mut mapped: FxHashMap<StackId, Measures> = FxHashMap::default();
        for site in process.tables.sites.iter().filter(|site| site.kind.mapping().is_some()) {
            mapped.entry(site.stack).or_default().add(&site.measures);
        }
        Charges { process, owners: Owners::of(process), mapped }
    }

    /// Returns whether some of the memory is mapped.
    pub fn has_mappings(&self) -> bool {
        !self.mapped.is_empty()
    }

    /// Returns the functions with a value of the metric, largest first.
    pub fn hotspots(&self, measure: Measure) -> Vec<Hotspot> {
        let measure = measure.of_sites();
        let mut hotspots: Vec<Hotspot> = Vec::new();
        let mut of_key: FxHashMap<Key, usize> = FxHashMap::default();
        for (stack, measures) in by_stack(self.process) {
            let frame = self.owners.frame(self.process, stack);
            let index = *of_key.entry(self.key(frame)).or_insert_with(|| {
                let (measures, of_mappings) = (Measures::default(), Measures::default());
                let stacks = Vec::new();
                hotspots.push(Hotspot { frame, measures, of_mappings, stacks, mapped: 0 });
                hotspots.len() - 1
            });
            let hotspot = &mut hotspots[index];
            if let Some(mapped) = self.mapped.get(&stack) {
                hotspot.mapped = measure.combine().of(hotspot.mapped, measure.of(mapped));
                hotspot.of_mappings.add(mapped);
            }
            // Also those without a value: other metrics of the function are sums over all of them.
            hotspot.measures.add(&measures);
            let value = measure.of(&measures);
            if value > 0 {
                hotspot.stacks.push((stack, value));
            }
        }
        hotspots.retain(|hotspot| !hotspot.stacks.is_empty());
        for hotspot in &mut hotspots {
            hotspot.stacks.sort_unstable_by_key(|&(stack, value)| (Reverse(value), stack));
            hotspot.frame = self.owners.frame(self.process, hotspot.stacks[0].0);
        }
        hotspots.sort_by_key(|h| (Reverse(measure.of(&h.measures)), h.stacks[0].0));
        hotspots
    }

    fn key(&self, frame: Option<FrameId>) -> Key {
        let Some(id) = frame else {
            return Key::Nothing;
        };
        let frame = &self.process.tables.frames[id.0 as usize];
        match (&frame.function, frame.module) {
            (Some(_), _) => Key::Function(self.owners.functions.of_frame(id)),
            (None, Some(module)) => Key::Module(module),
            (None, None) => Key::Nothing,
        }
    }
}

/// Key of a hotspot: a function, or all nameless frames of a module.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Function(FunctionId),
    Module(ModuleId),
    Nothing,
}

impl Hotspot {
    /// Returns the kind of its memory: heap, mapped, or both.
    pub fn memory(&self, measure: Measure) -> &'static str {
        match self.mapped {
            0 => "heap",
            mapped if mapped == measure.of_sites().of(&self.measures) => "mapped",
            _ => "both",
        }
    }

    /// Returns whether the hotspot is one function, not several nameless ones of a module.
    pub fn is_one_frame(&self, process: &Process) -> bool {
        let Some(frame) = self.frame else {
            return false;
        };
        let innermost = |stack| process.frames_of(stack).next();
        process.tables.frames[frame.0 as usize].function.is_some()
            || self.stacks.iter().all(|(stack, _)| innermost(*stack) == Some(frame))
    }

    /// Returns a frame of each of the function's source lines that allocate, with the value of the
    /// metric of `stacks`, largest first. The values add up to that of the hotspot.
    pub fn lines(&self, charges: &Charges, measure: Measure) -> Vec<(FrameId, u64)> {
        let process = charges.process;
        let frames = &process.tables.frames;
        let mut lines: Vec<(FrameId, u64)> = Vec::new();
        let mut of_place = FxHashMap::default();
        for &(stack, value) in &self.stacks {
            let Some(id) = charges.owners.frame(process, stack) else { continue };
            let frame = &frames[id.0 as usize];
            let at = *of_place.entry((frame.file.as_deref(), frame.line)).or_insert_with(|| {
                lines.push((id, 0));
                lines.len() - 1
            });
            lines[at].1 = measure.combine().of(lines[at].1, value);
        }
        lines.sort_by_key(|&(frame, value)| (Reverse(value), frames[frame.0 as usize].line));
        lines
    }

    /// Returns the number of frames of allocating helpers inside the function on one of its stacks.
    pub fn helpers(&self, process: &Process, functions: &Functions, stack: StackId) -> usize {
        let function = self.frame.map(|id| functions.of_frame(id));
        let mut frames = process.frames_of(stack);
        frames.position(|id| Some(functions.of_frame(id)) == function).unwrap_or(0)
    }

    /// Returns the heaviest path of callers: at each step the caller with the largest value,
    /// innermost first, with that value. It starts at the caller of the function, or with the
    /// innermost frame if the hotspot is several nameless functions. It ends where the largest
    /// caller is an insignificant part of the whole, or where more of the value has no caller.
    pub fn heaviest_way(
        &self,
        process: &Process,
        functions: &Functions,
        measure: Measure,
    ) -> Vec<(FrameId, u64)> {
        let one = self.is_one_frame(process);
        let start = |stack| {
            if one {
                up(process, stack, self.helpers(process, functions, stack) + 1)
            } else {
                stack
            }
        };
        let mut here: Vec<(StackId, u64)> =
            self.stacks.iter().map(|&(stack, value)| (start(stack), value)).collect();
        let whole = measure.of(&self.measures);
        let mut way = Vec::new();
        loop {
            let ended = here.iter().filter(|(stack, _)| *stack == StackId(0));
            let ended = ended.fold(0, |sum, (_, value)| measure.combine().of(sum, *value));
            here.retain(|(stack, _)| *stack != StackId(0));
            let function = |stack: StackId| functions.of_frame(frame_at(process, stack));
            let mut sums: FxHashMap<FunctionId, u64> = FxHashMap::default();
            for (stack, value) in &here {
                let sum = sums.entry(function(*stack)).or_default();
                *sum = measure.combine().of(*sum, *value);
            }
            let Some((best, value)) = sums.into_iter().max_by_key(|&(f, v)| (v, Reverse(f))) else {
                return way;
            };
            let is_part = way.len() >= WAY_MIN && value < whole / WAY_PART;
            if is_part || value < ended {
                return way;
            }
            here.retain(|(stack, _)| function(*stack) == best);
            way.push((frame_at(process, here[0].0), value));
            here.iter_mut().for_each(|(stack, _)| *stack = up(process, *stack, 1));
        }
    }
}

/// Returns the source place of a function: its line, or the lines that allocate with their values
/// in one unit, such as `lru.py :4 20.0, :5 16.5, :6 3.50 MiB, 2 more`. `amounts` formats values.
pub(crate) fn places(
    process: &Process,
    lines: &[(FrameId, u64)],
    amounts: impl Fn(&[u64]) -> (Vec<String>, &'static str),
) -> String {
    let frame = |line: &(FrameId, u64)| &process.tables.frames[line.0.0 as usize];
    let [first, _, ..] = lines else {
        return lines.first().map_or(String::new(), |line| frames::place(process, frame(line)));
    };
    let file = frame(first).file.as_deref();
    let shown = &lines[..lines.len().min(LINES_LISTED)];
    let values: Vec<u64> = shown.iter().map(|line| line.1).collect();
    let (values, unit) = amounts(&values);
    let place = |(line, value): (&(FrameId, u64), String)| {
        let frame = frame(line);
        let number = frame.line.map_or_else(|| "?".to_owned(), |line| line.to_string());
        let other = frame.file.as_deref().filter(|other| Some(*other) != file);
        let other = other.map_or(Cow::Borrowed(""), |other| printable(file_name(other)));
        format!("{other}:{number} {value}")
    };
    let listed: Vec<String> = shown.iter().zip(values).map(place).collect();
    let file = file.map_or(Cow::Borrowed("?"), |file| printable(file_name(file)));
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let more = match lines.len() - shown.len() {
        0 => String::new(),
        n => format!(", {n} more"),
    };
    format!("{file} {}{unit}{more}", listed.join(", "))
}

fn frame_at(process: &Process, stack: StackId) -> FrameId {
    process.tables.stacks[stack.0 as usize].frame
}

/// Returns the stack without its innermost frames.
fn up(process: &Process, stack: StackId, frames: usize) -> StackId {
    (0..frames)
        .fold(stack, |at, _| process.tables.stacks.get(at.0 as usize).map_or(at, |n| n.parent))
}
