//! Who is responsible: sites grouped by the function that asked for the memory, with its stacks.

use std::cmp::Reverse;
use std::collections::HashMap;

use heaptide_analysis::aggregate::{FunctionId, Functions, by_stack};
use heaptide_analysis::measure::Measure;
use heaptide_analysis::model::{FrameId, Measures, ModuleId, Process, StackId};

use crate::frames::is_plumbing;

/// A way is followed as long as it carries at least this part of the hotspot …
const WAY_PART: u64 = 10;
/// … and for this many frames whatever it carries.
const WAY_MIN: usize = 2;

/// A function and what it allocated through itself and through allocating helpers.
#[derive(Clone, Debug)]
pub struct Hotspot {
    /// The function's frame, one of possibly many; none for allocations without a stack.
    pub frame: Option<FrameId>,
    /// Sums over its sites.
    pub measures: Measures,
    /// Its stacks and their sums over the lanes, largest first by the measure asked for.
    pub stacks: Vec<(StackId, Measures)>,
}

/// The functions with a value of the measure, largest first. Standard containers and allocation
/// wrappers are charged to whoever called them.
pub fn hotspots(process: &Process, measure: Measure) -> Vec<Hotspot> {
    let measure = measure.of_sites();
    let responsible = responsible_frames(process);
    let mut groups: HashMap<Key, Hotspot> = HashMap::new();
    let with_value = by_stack(process).into_iter().filter(|row| measure.of(&row.1) > 0);
    for (stack, measures) in with_value {
        let frame = responsible.get(stack.0 as usize).copied().flatten();
        let group = groups.entry(Key::of(process, frame)).or_insert_with(|| Hotspot {
            frame,
            measures: Measures::default(),
            stacks: Vec::new(),
        });
        group.measures.add(&measures);
        group.stacks.push((stack, measures));
    }
    let mut hotspots: Vec<Hotspot> = groups.into_values().collect();
    for hotspot in &mut hotspots {
        hotspot.stacks.sort_by_key(|(stack, m)| (Reverse(measure.of(m)), *stack));
        hotspot.frame = responsible.get(hotspot.stacks[0].0.0 as usize).copied().flatten();
    }
    hotspots.sort_by_key(|h| (Reverse(measure.of(&h.measures)), h.stacks[0].0));
    hotspots
}

impl Hotspot {
    /// Whether it stands for one function, and not for several nameless ones of a module.
    pub fn is_one_frame(&self, process: &Process) -> bool {
        let Some(frame) = self.frame else {
            return false;
        };
        let innermost = |stack| process.frames_of(stack).next();
        process.frames[frame.0 as usize].function.is_some()
            || self.stacks.iter().all(|(stack, _)| innermost(*stack) == Some(frame))
    }

    /// How many frames of allocating helpers lie inside of the function on one of its stacks.
    pub fn helpers(&self, process: &Process, functions: &Functions, stack: StackId) -> usize {
        let function = self.frame.map(|id| functions.of_frame(id));
        let mut frames = process.frames_of(stack);
        frames.position(|id| Some(functions.of_frame(id)) == function).unwrap_or(0)
    }

    /// The way on which most came here: at every step the caller with most of the measure,
    /// innermost first, each with what came through it. Starts at the caller of the function, or
    /// with the innermost frame of several that have no names. Ends where so many ways meet that
    /// the heaviest says little.
    pub fn heaviest_way(
        &self,
        process: &Process,
        functions: &Functions,
        measure: Measure,
    ) -> Vec<(FrameId, u64)> {
        let one = self.is_one_frame(process);
        let start = |stack| match one {
            true => up(process, stack, self.helpers(process, functions, stack) + 1),
            false => stack,
        };
        let values = self.stacks.iter().map(|(stack, m)| (start(*stack), measure.of(m)));
        let mut here: Vec<(StackId, u64)> = values.collect();
        let whole = measure.of(&self.measures);
        let mut way = Vec::new();
        loop {
            here.retain(|(stack, _)| *stack != StackId(0));
            let function = |stack: StackId| functions.of_frame(frame_at(process, stack));
            let mut sums: HashMap<FunctionId, u64> = HashMap::new();
            for (stack, value) in &here {
                let sum = sums.entry(function(*stack)).or_default();
                *sum = measure.combine().of(*sum, *value);
            }
            let Some((best, value)) = sums.into_iter().max_by_key(|&(f, v)| (v, Reverse(f))) else {
                return way;
            };
            if way.len() >= WAY_MIN && value < whole / WAY_PART {
                return way;
            }
            here.retain(|(stack, _)| function(*stack) == best);
            way.push((frame_at(process, here[0].0), value));
            here.iter_mut().for_each(|(stack, _)| *stack = up(process, *stack, 1));
        }
    }
}

fn frame_at(process: &Process, stack: StackId) -> FrameId {
    process.stacks[stack.0 as usize].frame
}

/// The stack without its innermost frames.
fn up(process: &Process, stack: StackId, frames: usize) -> StackId {
    (0..frames).fold(stack, |at, _| process.stacks.get(at.0 as usize).map_or(at, |n| n.parent))
}

/// What makes frames one function: its name and module; without a name the module alone.
#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    Function(&'a str, Option<ModuleId>),
    Module(ModuleId),
    Nothing,
}

impl Key<'_> {
    fn of(process: &Process, frame: Option<FrameId>) -> Key<'_> {
        let frame = frame.and_then(|id| process.frames.get(id.0 as usize));
        match frame {
            Some(frame) => match (&frame.function, frame.module) {
                (Some(function), module) => Key::Function(function, module),
                (None, Some(module)) => Key::Module(module),
                (None, None) => Key::Nothing,
            },
            None => Key::Nothing,
        }
    }
}

/// For every stack its innermost frame that is not plumbing; its innermost if all are.
fn responsible_frames(process: &Process) -> Vec<Option<FrameId>> {
    let plumbing: Vec<bool> = process.frames.iter().map(is_plumbing).collect();
    let mut serious: Vec<Option<FrameId>> = vec![None; process.stacks.len()];
    for (i, node) in process.stacks.iter().enumerate().skip(1) {
        serious[i] = match plumbing.get(node.frame.0 as usize) {
            Some(false) => Some(node.frame),
            // Parents come before children.
            _ => serious.get(node.parent.0 as usize).copied().flatten(),
        };
    }
    let innermost = |i: usize| (i > 0).then(|| process.stacks[i].frame);
    (0..serious.len()).map(|i| serious[i].or_else(|| innermost(i))).collect()
}
