//! Counters at the beginning of a trace whose oldest part was dropped: the counters of the process
//! minus the sums of the kept events.

use super::lanes::{Kind, Lanes, Step};
use crate::model::Trace;

/// Records in a batch.
const BATCH: usize = 4096;

/// Counters at the beginning of a trace. They include only blocks of the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Before {
    /// The beginning of the trace, nanoseconds from the start of the process.
    pub begin_ns: u64,
    /// Allocations.
    pub allocations: u64,
    /// Frees.
    pub frees: u64,
    /// Usable bytes that were live.
    pub live_bytes: u64,
}

/// Sums of the kept events.
#[derive(Default)]
struct Kept {
    allocations: u64,
    frees: u64,
    /// Usable bytes allocated minus bytes freed.
    bytes: i128,
    /// Size of the block that each lane is reallocating.
    moving: Vec<u64>,
}

impl Before {
    /// Computes the counters from the records of a trace, whose frees hold the sizes of their
    /// blocks.
    pub(super) fn of(trace: &Trace, begin_ns: u64, mut lanes: Lanes) -> Before {
        let mut kept = Kept { moving: vec![0; lanes.indices().count()], ..Kept::default() };
        let mut steps = Vec::with_capacity(BATCH);
        loop {
            steps.clear();
            lanes.gather(&mut steps);
            if steps.is_empty() {
                break;
            }
            steps.iter().for_each(|step| kept.add(step));
        }
        let live = i128::from(trace.live_bytes) - kept.bytes;
        Before {
            begin_ns,
            allocations: trace.allocations.saturating_sub(kept.allocations),
            frees: trace.frees.saturating_sub(kept.frees),
            live_bytes: u64::try_from(live).unwrap_or(0),
        }
    }
}

impl Kept {
    fn add(&mut self, step: &Step) {
        let bytes = i128::from(step.usable);
        let Some(moving) = self.moving.get_mut(step.who.place as usize) else { return };
        match step.kind {
            Kind::Allocated => {
                self.allocations += 1;
                self.bytes += bytes;
            }
            Kind::Freed | Kind::Moving => {
                self.frees += 1;
                self.bytes -= bytes;
                if step.kind == Kind::Moving {
                    *moving = step.usable;
                }
            }
            Kind::StillThere => {
                self.frees = self.frees.saturating_sub(1);
                self.bytes += i128::from(std::mem::take(moving));
            }
            _ => {}
        }
    }
}
