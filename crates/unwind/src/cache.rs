//! A cache of rules by pc: an insert-only table with open addressing, shared by all threads without
//! a lock.

use crate::Rule;
use crate::atomic::{AtomicU64, Ordering};
use crate::kept::ADDRESS;

/// One entry. It is free while `key` is 0; its rule is valid once `rule` is not 0.
#[derive(Debug)]
#[repr(C)]
pub struct Slot {
    key: AtomicU64,
    rule: AtomicU64,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot { key: AtomicU64::new(0), rule: AtomicU64::new(0) }
    }
}

/// Slots to probe before a pc counts as absent, or as not insertable.
const PROBES: usize = 32;

/// The result of an insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// Inserted into a free slot.
    New,
    /// Replaced the rule in the slot of this pc.
    Again,
    /// Not inserted, because the probed slots are full. The caller continues without it, or with a
    /// larger table.
    Full,
}

/// Returns the cached rule for `pc`. `slots` has a power-of-two length; all-zero memory is an empty
/// table.
#[inline(always)]
pub fn get(slots: &[Slot], pc: u64) -> Option<Rule> {
    let mask = slots.len().wrapping_sub(1);
    let first = start(pc);
    let slot = slots.get(first & mask)?;
    if slot.key.load(Ordering::Relaxed) == pc {
        return Rule::from_bits(slot.rule.load(Ordering::Acquire));
    }
    get_beyond(slots, pc, first)
}

#[inline(never)]
fn get_beyond(slots: &[Slot], pc: u64, first: usize) -> Option<Rule> {
    let mask = slots.len().wrapping_sub(1);
    for i in 0..PROBES {
        let slot = slots.get(first.wrapping_add(i) & mask)?;
        match slot.key.load(Ordering::Relaxed) {
            key if key == pc => return Rule::from_bits(slot.rule.load(Ordering::Acquire)),
            0 => return None,
            _ => {}
        }
    }
    None
}

/// Caches `rule` for `pc`, replacing an earlier rule for it.
pub fn insert(slots: &[Slot], pc: u64, rule: Rule) -> Inserted {
    let mask = slots.len().wrapping_sub(1);
    let mut i = start(pc);
    for _ in 0..PROBES {
        let Some(slot) = slots.get(i & mask) else {
            return Inserted::Full;
        };
        let seen = match slot.key.compare_exchange(0, pc, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => 0,
            Err(other) => other,
        };
        if seen == 0 || seen == pc {
            slot.rule.store(rule.bits(), Ordering::Release);
            return if seen == 0 { Inserted::New } else { Inserted::Again };
        }
        i = i.wrapping_add(1);
    }
    Inserted::Full
}

/// Removes the rules of all pcs in `start..end`, whose code was unloaded, with any flags of
/// callers. The pcs keep their slots and can get new rules.
pub fn forget(slots: &[Slot], start: u64, end: u64) {
    for slot in slots {
        if (start..end).contains(&(slot.key.load(Ordering::Relaxed) & ADDRESS)) {
            slot.rule.store(0, Ordering::Release);
        }
    }
}

/// Copies all rules into a larger table. Returns their number.
pub fn copy(from: &[Slot], to: &[Slot]) -> usize {
    let known = from.iter().filter_map(|slot| {
        let rule = Rule::from_bits(slot.rule.load(Ordering::Acquire))?;
        Some(insert(to, slot.key.load(Ordering::Relaxed), rule))
    });
    known.filter(|&done| done == Inserted::New).count()
}

/// Fibonacci hashing: return addresses differ in their low and middle bits. The high bits hold the
/// module, and flags of callers.
#[inline(always)]
fn start(pc: u64) -> usize {
    ((pc as u32).wrapping_mul(0x9e37_79b1) >> 8) as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::rule::{Bp, Cfa, Ra, Step};
    extern crate std;
    use std::vec::Vec;

    fn rule(n: i32) -> Rule {
        Rule::new(Step::Frame(Cfa::Sp(n), Bp::Same, Ra::AtCfa(-8)), 1)
    }

    fn table(n: usize) -> Vec<Slot> {
        (0..n).map(|_| Slot::default()).collect()
    }

    #[test]
    fn only_inserted_rules_are_found() {
        let slots = table(1024);
        for pc in 0..400u64 {
            assert_eq!(insert(&slots, 0x40_1000 + 5 * pc, rule(pc as i32 * 8)), Inserted::New);
        }
        for pc in 0..400u64 {
            assert_eq!(get(&slots, 0x40_1000 + 5 * pc), Some(rule(pc as i32 * 8)));
            assert_eq!(get(&slots, 0x40_1001 + 5 * pc), None);
        }
    }

    #[test]
    fn a_full_table_rejects_and_a_larger_one_accepts_all() {
        let slots = table(16);
        let taken = (1..=64u64).filter(|&pc| insert(&slots, pc, rule(8)) == Inserted::New).count();
        assert_eq!(taken, 16);
        let larger = table(256);
        assert_eq!(copy(&slots, &larger), 16);
    }

    #[test]
    fn forgotten_rules_are_unknown_and_can_be_replaced() {
        let slots = table(64);
        insert(&slots, 100, rule(8));
        insert(&slots, 200, rule(16));
        forget(&slots, 100, 200);
        assert_eq!((get(&slots, 100), get(&slots, 200)), (None, Some(rule(16))));
        assert_eq!(insert(&slots, 100, rule(24)), Inserted::Again);
        assert_eq!(get(&slots, 100), Some(rule(24)));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::rule::{Bp, Cfa, Ra, Step};
    extern crate std;
    use loom::sync::Arc;
    use std::vec::Vec;

    /// Two threads insert the same pc while a third looks it up: it gets the whole rule or none,
    /// and the pc takes one slot.
    #[test]
    fn a_rule_is_visible_completely_or_not_at_all() {
        loom::model(|| {
            let rule = Rule::new(Step::Frame(Cfa::Sp(24), Bp::Same, Ra::AtCfa(-8)), 3);
            let slots: Arc<Vec<Slot>> = Arc::new((0..2).map(|_| Slot::default()).collect());
            let writers: Vec<_> = (0..2)
                .map(|_| {
                    let slots = slots.clone();
                    loom::thread::spawn(move || insert(&slots, 77, rule))
                })
                .collect();
            if let Some(seen) = get(&slots, 77) {
                assert_eq!(seen, rule);
            }
            let results: Vec<_> = writers.into_iter().map(|w| w.join().unwrap()).collect();
            assert_eq!(results.iter().filter(|&&r| r == Inserted::New).count(), 1);
            assert_eq!(get(&slots, 77), Some(rule));
        });
    }
}
