//! Who is responsible: sites grouped by the function that asked for the memory, with its main stacks.

use std::cmp::Reverse;
use std::collections::HashMap;

use heaptide_analysis::measure::Measure;
use heaptide_analysis::model::{FrameId, Measures, ModuleId, Process, StackId};

use crate::frames::is_plumbing;

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
    let mut stacks: HashMap<StackId, Measures> = HashMap::new();
    for site in process.sites.iter().filter(|s| measure.of(&s.measures) > 0) {
        stacks.entry(site.stack).or_default().add(&site.measures);
    }
    let mut groups: HashMap<Key, Hotspot> = HashMap::new();
    for (stack, measures) in stacks {
        let frame = responsible.get(stack.0 as usize).copied().flatten();
        let group = groups
            .entry(Key::of(process, frame))
            .or_insert_with(|| Hotspot {
                frame,
                measures: Measures::default(),
                stacks: Vec::new(),
            });
        group.measures.add(&measures);
        group.stacks.push((stack, measures));
    }
    let mut hotspots: Vec<Hotspot> = groups.into_values().collect();
    for hotspot in &mut hotspots {
        hotspot
            .stacks
            .sort_by_key(|(stack, m)| (Reverse(measure.of(m)), *stack));
        hotspot.frame = responsible
            .get(hotspot.stacks[0].0.0 as usize)
            .copied()
            .flatten();
    }
    hotspots.sort_by_key(|h| (Reverse(measure.of(&h.measures)), h.stacks[0].0));
    hotspots
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
    (0..serious.len())
        .map(|i| serious[i].or_else(|| innermost(i)))
        .collect()
}
