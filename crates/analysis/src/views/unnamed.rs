//! Modules whose functions have no names where a reader would look for them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::model::{Frame, Process, Recording, Site};

/// Code without names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unnamed {
    /// Path of the module; none of code without a file, as of a JIT compiler.
    pub module: Option<String>,
    /// Bytes allocated by stacks of which it is the reason that they cannot be read.
    pub bytes: u64,
}

/// Returns the modules because of which stacks cannot be read, those of most bytes first, and the
/// bytes of all stacks. A stack cannot be read if its innermost function or at least half of its
/// functions have no name; the innermost of them is the reason.
pub fn unnamed(recording: &Recording) -> (Vec<Unnamed>, u64) {
    let mut by_module: BTreeMap<Option<&str>, u64> = BTreeMap::new();
    let mut total_bytes = 0;
    for process in &recording.processes {
        for site in &process.tables.sites {
            let bytes = site.measures.usable_bytes;
            total_bytes += bytes;
            if let Some(frame) = reason(process, site) {
                *by_module.entry(module(process, frame)).or_default() += bytes;
            }
        }
    }
    let mut all: Vec<_> = by_module
        .into_iter()
        .map(|(module, bytes)| Unnamed { module: module.map(str::to_owned), bytes })
        .collect();
    all.sort_by_key(|unnamed| Reverse(unnamed.bytes));
    (all, total_bytes)
}

/// The frame for which a stack cannot be read; none if it can.
fn reason<'a>(process: &'a Process, site: &Site) -> Option<&'a Frame> {
    let (mut frames, mut unnamed) = (0, 0);
    let mut innermost = None;
    for id in process.frames_of(site.stack) {
        let frame = &process.tables.frames[id.0 as usize];
        if frame.function.is_none() {
            unnamed += 1;
            innermost = innermost.or(Some((frames, frame)));
        }
        frames += 1;
    }
    let (depth, frame) = innermost?;
    (depth == 0 || 2 * unnamed >= frames).then_some(frame)
}

fn module<'a>(process: &'a Process, frame: &Frame) -> Option<&'a str> {
    let module = process.tables.modules.get(frame.module?.0 as usize)?;
    Some(module.path.as_str())
}
