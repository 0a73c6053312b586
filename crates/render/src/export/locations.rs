//! Locations of stacks, in the sense of pprof and OTLP: frames at one address that are inlined into
//! each other form one location.

use heaptide_analysis::model::{FrameId, Process, StackNode};
use rustc_hash::FxHashMap;

/// Maximum number of functions in a location, because each inlined function is stored with all that
/// it is inlined into.
const NESTED_MAX: u32 = 64;

/// The locations of a process, with ids from 1.
pub(super) struct Locations {
    known: Vec<Location>,
    /// By stack node.
    calls: Vec<Call>,
}

/// The location of a stack node, and the node that called it.
#[derive(Clone, Copy, Default)]
struct Call {
    location: u64,
    caller: u32,
}

/// A location: the innermost frame and the location of the frames it is inlined into.
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
struct Location {
    innermost: FrameId,
    /// The location of the remaining frames; 0 if there are none.
    around: u64,
    /// Number of the remaining frames.
    depth: u32,
}

impl Locations {
    /// Builds the locations of all stacks.
    pub(super) fn of(process: &Process) -> Locations {
        let mut ids: FxHashMap<Location, u64> = FxHashMap::default();
        let mut known: Vec<Location> = Vec::new();
        let mut calls = vec![Call::default()];
        for node in process.tables.stacks.iter().skip(1) {
            let parent = node.parent.0;
            let mut call = Call { location: 0, caller: parent };
            let mut location = Location { innermost: node.frame, around: 0, depth: 0 };
            if is_inside(process, node) {
                let outer = calls[parent as usize];
                let depth = known[outer.location as usize - 1].depth + 1;
                if depth < NESTED_MAX {
                    call.caller = outer.caller;
                    location = Location { around: outer.location, depth, ..location };
                }
            }
            call.location = *ids.entry(location).or_insert(known.len() as u64 + 1);
            if call.location > known.len() as u64 {
                known.push(location);
            }
            calls.push(call);
        }
        Locations { known, calls }
    }

    /// Returns the number of locations.
    pub(super) fn count(&self) -> u64 {
        self.known.len() as u64
    }

    /// Returns the frames of a location, innermost first.
    pub(super) fn frames(&self, id: u64) -> impl Iterator<Item = FrameId> {
        let at = |id: u64| self.known.get(usize::try_from(id.checked_sub(1)?).ok()?);
        let locations = std::iter::successors(at(id), move |location| at(location.around));
        locations.map(|location| location.innermost)
    }

    /// Returns the location of a stack's innermost frame; 0 without a stack.
    pub(super) fn location(&self, node: u32) -> u64 {
        self.calls[node as usize].location
    }

    /// Returns the stack that called the location of a stack; 0 for the outermost.
    pub(super) fn caller(&self, node: u32) -> u32 {
        self.calls[node as usize].caller
    }

    /// Returns the locations of a stack, innermost first.
    pub(super) fn stack(&self, node: u32) -> Vec<u64> {
        let at = |node: u32| (node != 0).then(|| self.calls[node as usize]);
        let calls = std::iter::successors(at(node), |call| at(call.caller));
        calls.map(|call| call.location).collect()
    }
}

/// Returns whether the frame of a node was inlined into that of its caller, at the same address.
fn is_inside(process: &Process, node: &StackNode) -> bool {
    let frame = &process.tables.frames[node.frame.0 as usize];
    let around = process.tables.stacks[node.parent.0 as usize].frame;
    let Some(around) = process.tables.frames.get(around.0 as usize).filter(|_| node.parent.0 != 0)
    else {
        return false;
    };
    frame.inlined && (frame.module, frame.offset) == (around.module, around.offset)
}
