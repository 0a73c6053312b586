//! Live blocks that were not freed, by allocating stack, minus suppressed ones.
//!
//! Reachability of live blocks is unknown, because memory contents are not inspected. So direct
//! leaks, indirect leaks and caches are not distinguished.

use std::cmp::Reverse;

use rustc_hash::FxHashSet;

use super::aggregate::by_stack;
use super::scopes;
use super::suppressions::{Matched, Suppressions};
use crate::model::{End, ImageRole, LaneId, Measures, Mode, Process, ScopeId, Site, StackId};

/// The origin of live blocks, in the recorded level of detail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// In a recording with stacks; the root for blocks without a stack.
    Stack(StackId),
    /// In a recording with scopes only.
    Scope(ScopeId),
    /// In a recording with counters only, of one thread.
    Lane(LaneId),
    /// In a recording with counters only, of several threads: a free counts for the thread that
    /// frees, so what is live is not known for each.
    Process,
}

/// Live blocks with the same origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leak {
    /// Their origin.
    pub origin: Origin,
    /// Sums over all blocks of this origin, including freed ones.
    pub measures: Measures,
}

/// Blocks matched by a suppression.
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
    /// Blocks that are not suppressed, most bytes first.
    pub leaks: Vec<Leak>,
    /// Blocks matched by each suppression, in the order of [`Suppressions::names`].
    pub used: Vec<Used>,
}

impl Leaks {
    /// Finds the live blocks of a process.
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
            Mode::Counters => match &process.tables.lanes[..] {
                [lane] => found(Origin::Lane(LaneId(0)), lane.measures),
                _ => found(Origin::Process, process.totals),
            },
        }
        leaks.sort_by_key(|leak| {
            (Reverse((leak.measures.live_bytes, leak.measures.live_blocks)), leak.origin)
        });
        Leaks { leaks, used }
    }

    /// Removes suppressed blocks from the sites and lanes of a process, before functions are
    /// renamed or hidden in stacks, because suppressions use the recorded names. The result can be
    /// rewritten and analysed with [`Suppressions::none`]. Totals do not change.
    pub fn set_aside(process: &mut Process, suppressions: &Suppressions) -> Vec<Used> {
        let found = Leaks::of(process, suppressions);
        let kept: FxHashSet<Origin> = found.leaks.iter().map(|leak| leak.origin).collect();
        let is_live = |m: &Measures| m.live_blocks > 0 || m.live_bytes > 0;
        let mode = process.mode;
        let origin = |site: &Site| match mode {
            Mode::Scopes => Origin::Scope(site.scope),
            Mode::Stacks | Mode::Counters => Origin::Stack(site.stack),
        };
        let sites = &mut process.tables.sites;
        sites.retain(|site| !is_live(&site.measures) || kept.contains(&origin(site)));
        for (lane, id) in process.tables.lanes.iter_mut().zip(0..) {
            let is_kept =
                kept.contains(&Origin::Lane(LaneId(id))) || kept.contains(&Origin::Process);
            if mode == Mode::Counters && !is_kept {
                (lane.measures.live_blocks, lane.measures.live_bytes) = (0, 0);
            }
        }
        found.used
    }

    /// Returns the number of live blocks that are not suppressed.
    pub fn blocks(&self) -> u64 {
        self.leaks.iter().fold(0, |sum, leak| sum.saturating_add(leak.measures.live_blocks))
    }

    /// Returns the usable bytes of live blocks that are not suppressed.
    pub fn bytes(&self) -> u64 {
        self.leaks.iter().fold(0, |sum, leak| sum.saturating_add(leak.measures.live_bytes))
    }
}

/// Returns whether the live blocks of a process count as leaks: a process that called exec had no
/// chance to free them, and a launcher is not the program that the user looks at.
pub fn counts(process: &Process) -> bool {
    process.lifetime.end != End::Exec && process.identity.role != ImageRole::Launcher
}

/// Returns the suppression of an origin. Without stacks, a pattern can match a scope or a lane.
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
        Origin::Process => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{lines, with_stacks};
    use crate::selection::rules::Rules;

    /// A suppression names functions that the rules of a language hide in stacks.
    #[test]
    fn what_is_suppressed_is_not_rewritten_before() {
        let allocate = "std::__new_allocator<int>::allocate(unsigned long, void const*);malloc";
        let [known, leaked] = ["known", "leaked"].map(|name| format!("main;{name};{allocate}"));
        let mut process = with_stacks(&[&known, &leaked, "main;cache"]);
        let mut suppressions = Suppressions::none();
        suppressions
            .add("leak:^cache$\nleak:known*\nleak:__new_allocator<long>")
            .expect("patterns");
        let used = Leaks::set_aside(&mut process, &suppressions);
        assert_eq!(used.iter().map(|used| used.bytes).collect::<Vec<_>>(), [4, 1, 0]);
        process.rewrite(&Rules::built_in("std").expect("a set"));
        assert_eq!(lines(&process), ["main;leaked;malloc 2"]);
        let found = Leaks::of(&process, &Suppressions::none());
        assert_eq!((found.leaks.len(), found.bytes()), (1, 2));
        let mut process = with_stacks(&[&known, &leaked]);
        let mut by_allocator = Suppressions::none();
        by_allocator.add("leak:std::__new_allocator").expect("a pattern");
        assert_eq!(Leaks::set_aside(&mut process, &by_allocator)[0].bytes, 3);
        assert!(process.tables.sites.is_empty());
    }
}
