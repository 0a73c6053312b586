//! What is live and nobody freed, by the stack that allocated it, less what is suppressed.
//!
//! Whether a live block can still be reached is not known: the memory itself is not looked at.
//! So nothing here tells a direct leak from an indirect one, or from a cache.

use std::cmp::Reverse;

use super::aggregate::by_stack;
use super::scopes;
use super::suppressions::{Matched, Suppressions};
use crate::model::{End, LaneId, Measures, Mode, Process, ScopeId, StackId};

/// Where live blocks were allocated, as finely as was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// Of a recording with stacks; the root for blocks without one.
    Stack(StackId),
    /// Of one with scopes only.
    Scope(ScopeId),
    /// Of one with counters only.
    Lane(LaneId),
}

/// Live blocks of one origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leak {
    /// Where they are from.
    pub origin: Origin,
    /// Sums over all that was allocated there, freed or not.
    pub measures: Measures,
}

/// What a suppression has suppressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    /// Live blocks.
    pub blocks: u64,
    /// Their usable bytes.
    pub bytes: u64,
}

/// Live blocks of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leaks {
    /// Those not suppressed: most bytes first.
    pub leaks: Vec<Leak>,
    /// What each suppression did, in the order of [`Suppressions::names`].
    pub used: Vec<Used>,
}

impl Leaks {
    /// Those of a process.
    ///
    /// ```
    /// use heaptide_analysis::views::leaks::Leaks;
    /// use heaptide_analysis::views::suppressions::Suppressions;
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// let found = Leaks::of(&process, &Suppressions::none());
    /// assert_eq!(found.bytes(), process.totals.live_bytes);
    /// ```
    pub fn of(process: &Process, suppressions: &Suppressions) -> Leaks {
        let matched = Matched::of(process, suppressions);
        let mut used = vec![Used::default(); suppressions.names().len()];
        let mut leaks = Vec::new();
        let mut found = |origin: Origin, measures: Measures| {
            if measures.live_blocks == 0 && measures.live_bytes == 0 {
                return;
            }
            match suppressed(process, suppressions, &matched, origin, &measures) {
                Some(by) => {
                    used[by].blocks = used[by].blocks.saturating_add(measures.live_blocks);
                    used[by].bytes = used[by].bytes.saturating_add(measures.live_bytes);
                }
                None => leaks.push(Leak { origin, measures }),
            }
        };
        match process.mode {
            Mode::Stacks => by_stack(process).for_each(|(stack, m)| found(Origin::Stack(stack), m)),
            Mode::Scopes => {
                let sums = scopes::sums(process, None).into_iter().zip(0..);
                sums.for_each(|(sums, id)| found(Origin::Scope(ScopeId(id)), sums.own));
            }
            Mode::Counters => {
                let lanes = process.tables.lanes.iter().zip(0..);
                lanes.for_each(|(lane, id)| found(Origin::Lane(LaneId(id)), lane.measures));
            }
        }
        leaks.sort_by_key(|leak| {
            (Reverse((leak.measures.live_bytes, leak.measures.live_blocks)), leak.origin)
        });
        Leaks { leaks, used }
    }

    /// Live blocks that are not suppressed.
    pub fn blocks(&self) -> u64 {
        self.leaks.iter().fold(0, |sum, leak| sum.saturating_add(leak.measures.live_blocks))
    }

    /// Their usable bytes.
    pub fn bytes(&self) -> u64 {
        self.leaks.iter().fold(0, |sum, leak| sum.saturating_add(leak.measures.live_bytes))
    }
}

/// Whether what is live in a process counts: one that another program took the place of by exec had
/// no time to free anything.
pub fn counts(process: &Process) -> bool {
    process.lifetime.end != End::Exec
}

/// The suppression of an origin: a pattern may also match a scope or a lane where there are no
/// stacks.
fn suppressed(
    process: &Process,
    suppressions: &Suppressions,
    matched: &Matched,
    origin: Origin,
    measures: &Measures,
) -> Option<usize> {
    match origin {
        Origin::Stack(stack) => matched.stack(stack, measures),
        Origin::Scope(scope) => {
            process.scopes_of(scope).find_map(|scope| suppressions.of_name(&scope.value))
        }
        Origin::Lane(lane) => {
            let lane = process.tables.lanes.get(lane.0 as usize)?;
            suppressions.of_name(&lane.name)
        }
    }
}
