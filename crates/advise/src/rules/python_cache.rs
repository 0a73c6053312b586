//! `functools.lru_cache` without a limit.
//!
//! Python calls the function `infinite_lru_cache_wrapper` for a cache without a limit, and another
//! one for a cache with a limit, so the kind of a cache is certain. What it holds is not recorded:
//! the blocks that were allocated in calls of the cached function and are live at peak, almost all
//! of those ever allocated there, are an upper bound. The size of the cache's own table shows that
//! it has many entries.

use std::cmp::Reverse;

use heaptide_analysis::model::{CodeKind, Measures, Mode, StackId};
use heaptide_analysis::quantity::{bytes, count};
use rustc_hash::FxHashMap;

use crate::finding::{Certainty, Finding, Place, Saves};
use crate::material::{Material, Row};
use crate::rule::{Judged, NEEDS_STACKS, Rule};

pub(super) const RULE: Rule = Rule {
    name: "python-cache",
    title: "A cache of Python without a limit",
    about: "A function has the decorator `functools.cache`, or `functools.lru_cache` with \
            `maxsize=None`. Its results are kept for each combination of arguments that it is ever \
            called with, until the program ends. Set `maxsize`, or call `cache_clear`.",
    judge,
};

/// CPython's function for caches without a limit.
const WRAPPER: &str = "infinite_lru_cache_wrapper";
/// The minimal bytes of the cache's table at peak: those of more than 1000 entries.
const TABLE_MIN: u64 = 32 << 10;
/// The minimal bytes that the cache holds, and their part of peak usage in percent.
const HELD_MIN: u64 = 1 << 20;
const PEAK_PERCENT_MIN: u64 = 10;
/// The minimal part of the bytes that a stack ever allocated that is live at peak, in percent.
const KEPT_PERCENT_MIN: u64 = 90;

fn judge(material: &Material) -> Judged {
    if material.process.mode != Mode::Stacks {
        return Judged::Needs(NEEDS_STACKS);
    }
    let mut caches: FxHashMap<u32, Cache> = FxHashMap::default();
    for row in material.groups.iter().flat_map(|group| &group.rows) {
        let Some(call) = Call::of(material, row.stack) else { continue };
        let cache = caches.entry(call.caller).or_default();
        match call.function {
            None => cache.table = cache.table.saturating_add(row.measures.at_peak_bytes),
            Some(function) => cache.add(function, row),
        }
    }
    let mut caches: Vec<Cache> = caches.into_values().collect();
    caches.sort_by_key(|cache| (Reverse(cache.table), cache.first()));
    Judged::Found(caches.iter().filter_map(|cache| cache.finding(material)).collect())
}

/// Returns whether a stack is in a call of a function with a cache without a limit.
pub(super) fn is_in_cache(material: &Material, stack: StackId) -> bool {
    Call::of(material, stack).is_some()
}

/// The innermost call of a cache in a stack.
struct Call {
    /// The function that called the cache, by number.
    caller: u32,
    /// The stack that ends with the cached function; `None` for memory of the cache itself.
    function: Option<StackId>,
}

impl Call {
    fn of(material: &Material, stack: StackId) -> Option<Call> {
        let (mut at, mut function, mut is_inside) = (stack, None, false);
        while at != StackId(0) {
            let node = &material.process.tables.stacks[at.0 as usize];
            let frame = material.frame(node.frame);
            if frame.code == CodeKind::Python {
                if is_inside {
                    let caller = material.owners.functions.of_frame(node.frame).0;
                    return Some(Call { caller, function });
                }
                function = Some(at);
            }
            is_inside |= frame.function.as_deref() == Some(WRAPPER);
            at = node.parent;
        }
        None
    }
}

/// The caches that one function calls.
#[derive(Default)]
struct Cache {
    /// Bytes at peak of the tables.
    table: u64,
    /// By cached function: its stack, and the stacks of what is kept from its calls.
    kept: Vec<(StackId, Vec<Row>)>,
}

impl Cache {
    fn first(&self) -> Option<u32> {
        self.kept.iter().map(|(stack, _)| stack.0).min()
    }

    fn add(&mut self, function: StackId, row: &Row) {
        let m = &row.measures;
        if m.at_peak_bytes == 0 || m.at_peak_bytes < m.usable_bytes / 100 * KEPT_PERCENT_MIN {
            return;
        }
        match self.kept.iter_mut().find(|(of, _)| *of == function) {
            Some((_, rows)) => rows.push(*row),
            None => self.kept.push((function, vec![*row])),
        }
    }

    fn finding(&self, material: &Material) -> Option<Finding> {
        let sum = |rows: &[Row]| {
            let mut sum = Measures::default();
            rows.iter().for_each(|row| sum.add(&row.measures));
            sum
        };
        let weight = |rows: &[Row]| sum(rows).at_peak_bytes;
        let (function, rows) = self.kept.iter().max_by_key(|(of, rows)| (weight(rows), of.0))?;
        let measures = sum(rows);
        let heaviest = rows.iter().max_by_key(|row| (row.measures.at_peak_bytes, row.stack))?;
        let held = measures.at_peak_bytes;
        let peak = material.process.totals.peak_bytes;
        if self.table < TABLE_MIN || held < HELD_MIN || held < peak / 100 * PEAK_PERCENT_MIN {
            return None;
        }
        Some(Finding {
            rule: RULE.name,
            place: Some(Place {
                frame: material.process.tables.stacks[function.0 as usize].frame,
                stack: heaviest.stack,
                owner: *function,
                stacks: rows.len(),
                measures,
            }),
            what: format!("has a cache without a limit, which holds up to {}", bytes(held)),
            evidence: vec![
                format!(
                    "{} blocks allocated in its calls are live at peak, of {} on the same stacks",
                    count(measures.at_peak_blocks),
                    count(measures.allocations)
                ),
                format!("the table of the cache itself has {}", bytes(self.table)),
            ],
            advice: "Set `maxsize` of `functools.lru_cache`, or call `cache_clear` when the \
                     results are no longer needed."
                .to_owned(),
            saves: Saves { peak_bytes: held, ..Saves::default() },
            certainty: Certainty::Possible,
        })
    }
}
