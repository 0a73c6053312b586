//! Assigns numbers to groups: records with equal keys have the same number.

use rustc_hash::FxHashMap;

use crate::value::Bits;

/// Numbers of keys, in order of first occurrence. Keys are processed one by one: the earlier keys
/// of a record are represented by their number.
#[derive(Debug)]
pub(crate) struct Numbers {
    steps: Vec<Step>,
}

/// The size of the table by number and key; larger combinations are in a map.
const DENSE: usize = 1 << 26;

#[derive(Debug)]
struct Step {
    /// Upper bound of the keys, if known.
    width: Option<usize>,
    /// By number of the earlier keys and by key: the number, from 1.
    dense: Vec<u32>,
    ids: FxHashMap<(u32, Option<Bits>), u32>,
    /// By number, that of its earlier keys.
    before: Vec<u32>,
    /// By number, its last key.
    keys: Vec<u64>,
    present: Vec<bool>,
}

impl Step {
    /// Returns the number for a key after the earlier keys with number `before`.
    #[inline]
    fn number(&mut self, before: u32, key: Option<Bits>) -> u32 {
        let known = self.slot(before, key).and_then(|slot| self.dense.get(slot));
        match known {
            Some(&number @ 1..) => number - 1,
            _ => self.look_up(before, key),
        }
    }

    /// Returns the index in the table, if it is small enough.
    #[inline]
    fn slot(&self, before: u32, key: Option<Bits>) -> Option<usize> {
        let width = self.width?;
        let place = key.map_or(0, |bits| bits.0 as usize + 1);
        let slot = (before as usize).saturating_mul(width + 1).saturating_add(place);
        Some(slot).filter(|slot| *slot < DENSE)
    }

    /// Like `number`, for a key that may be new.
    #[inline(never)]
    fn look_up(&mut self, before: u32, key: Option<Bits>) -> u32 {
        let next = self.before.len() as u32 + 1;
        let number = match self.slot(before, key) {
            Some(slot) => {
                if slot >= self.dense.len() {
                    self.dense.resize((slot + 1).next_power_of_two(), 0);
                }
                &mut self.dense[slot]
            }
            None => self.ids.entry((before, key)).or_insert(0),
        };
        if *number == 0 {
            *number = next;
            self.before.push(before);
            self.keys.push(key.map_or(0, |bits| bits.0));
            self.present.push(key.is_some());
        }
        *number - 1
    }

    /// Returns the number of the earlier keys, and the last key, of a number.
    fn made_of(&self, number: usize) -> (u32, Option<Bits>) {
        (self.before[number], self.present[number].then_some(Bits(self.keys[number])))
    }
}

impl Numbers {
    /// Creates it for as many keys as there are `widths`: upper bounds of each key, if known.
    pub(crate) fn new(widths: impl Iterator<Item = Option<usize>>) -> Numbers {
        let step = |width: Option<usize>| Step {
            width: width.filter(|width| *width < DENSE),
            dense: Vec::new(),
            ids: FxHashMap::default(),
            before: Vec::new(),
            keys: Vec::new(),
            present: Vec::new(),
        };
        Numbers { steps: widths.map(step).collect() }
    }

    /// Processes the next key of each record. Initially all numbers are 0; finally they are those
    /// of groups.
    pub(crate) fn take(
        &mut self,
        step: usize,
        numbers: &mut [u32],
        keys: impl Iterator<Item = Option<Bits>>,
    ) {
        let step = &mut self.steps[step];
        numbers.iter_mut().zip(keys).for_each(|(number, key)| *number = step.number(*number, key));
    }

    /// Returns the number of a record's keys.
    pub(crate) fn of(&mut self, keys: impl Iterator<Item = Option<Bits>>) -> u32 {
        self.steps.iter_mut().zip(keys).fold(0, |number, (step, key)| step.number(number, key))
    }

    /// Returns the keys of a number.
    pub(crate) fn keys(&self, number: u32) -> Vec<Option<Bits>> {
        let mut at = number;
        let back = self.steps.iter().rev().map(|step| {
            let (before, key) = step.made_of(at as usize);
            at = before;
            key
        });
        let mut keys: Vec<_> = back.collect();
        keys.reverse();
        keys
    }

    /// Merges other numbers for the same keys; returns, for each, its number here.
    pub(crate) fn absorb(&mut self, other: &Numbers) -> Vec<u32> {
        let mut here = vec![0];
        for (step, of) in self.steps.iter_mut().zip(&other.steps) {
            let all = (0..of.before.len()).map(|number| of.made_of(number));
            let numbers = all.map(|(before, key)| step.number(here[before as usize], key));
            here = numbers.collect();
        }
        here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_with_equal_keys_have_equal_numbers() {
        let records = [[None, Some(7)], [Some(2), Some(7)], [None, None], [None, Some(7)]];
        let keys = |record: [Option<u64>; 2]| record.map(|key| key.map(Bits)).into_iter();
        for widths in [[None, None], [Some(3), None], [Some(3), Some(9)], [Some(DENSE - 1), None]] {
            let mut numbers = Numbers::new(widths.into_iter());
            let found = records.map(|record| numbers.of(keys(record)));
            assert_eq!(found, [0, 1, 2, 0], "{widths:?}");
            assert_eq!(numbers.keys(1), [Some(Bits(2)), Some(Bits(7))]);
            let mut other = Numbers::new(widths.into_iter());
            let there = [records[2], records[1]].map(|record| other.of(keys(record)));
            assert_eq!((there, numbers.absorb(&other)), ([0, 1], vec![2, 1]));
            let mut all = [0; 4];
            (0..2).for_each(|at| {
                numbers.take(at, &mut all, records.iter().map(|record| record[at].map(Bits)));
            });
            assert_eq!(all, [0, 1, 2, 0]);
        }
        let mut none = Numbers::new([].into_iter());
        assert_eq!((none.of([].into_iter()), none.keys(0)), (0, vec![]));
    }
}
