//! A hash table of live blocks by address, in which a look-up accesses two cache lines: a bucket,
//! and the block.
//!
//! A bucket is one cache line with halves of the hashes, by Knuth's multiplication (The Art of
//! Computer Programming, volume 3, section 6.4), and the numbers of the blocks. A block whose
//! bucket is full goes to the next one with room, and the buckets passed over count it. So a
//! look-up ends at the first bucket that was never passed over, and a removal moves nothing: the
//! overflow counters of F14 (N. Bronson, X. Shi: "Open-sourcing F14 for faster, more
//! memory-efficient hash tables", 2019).

use std::hint::black_box;

/// A value with a unique address.
pub(super) trait Addressed: Copy {
    /// Returns the address.
    fn address(&self) -> u64;
}

/// Values by address.
#[derive(Debug)]
pub(super) struct Table<T> {
    /// Their number is a power of two.
    buckets: Vec<Bucket>,
    /// Number of hash bits that do not select the bucket.
    shift: u32,
    count: usize,
    things: Vec<Line<T>>,
    /// Unused indices of `things`.
    free: Vec<u32>,
}

/// A value in a cache line of its own, if it fits.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line<T>(T);

/// Entries of a bucket.
const PLACES: usize = 7;
/// Maximum average number of values per bucket: then one bucket in fifty overflows.
const LOAD: usize = 4;
/// Binary logarithm of the initial number of buckets.
const FIRST_BITS: u32 = 8;

/// Maximum number of addresses to prefetch together.
pub(super) const EXPECTED_MAX: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Bucket {
    /// The hash of each value.
    hashes: [u32; PLACES],
    /// Number of values that found no room here and are in a later bucket.
    passed: u32,
    /// The number of each value plus one; 0 in a free entry.
    numbers: [u32; PLACES],
}

impl Bucket {
    /// Returns the entries with this hash as a bit mask. It can include free entries.
    #[inline]
    fn matching(&self, hash: u32) -> u32 {
        bits(self.hashes.map(|of| of == hash))
    }

    /// Returns the first free entry.
    #[inline]
    fn free_place(&self) -> Option<usize> {
        let free = bits(self.numbers.map(|number| number == 0));
        (free != 0).then(|| free.trailing_zeros() as usize)
    }
}

#[inline]
fn bits(places: [bool; PLACES]) -> u32 {
    let bit = |(place, is): (u32, &bool)| u32::from(*is) << place;
    (0..).zip(&places).fold(0, |bits, place| bits | bit(place))
}

/// The position of a value.
#[derive(Clone, Copy)]
struct At {
    bucket: usize,
    place: usize,
    number: usize,
}

fn hash(address: u64) -> u32 {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

impl<T: Addressed> Table<T> {
    pub(super) fn new() -> Table<T> {
        Table {
            buckets: vec![Bucket::default(); 1 << FIRST_BITS],
            shift: u32::BITS - FIRST_BITS,
            count: 0,
            things: Vec::new(),
            free: Vec::new(),
        }
    }

    fn home(&self, hash: u32) -> usize {
        (hash >> self.shift) as usize
    }

    fn after(&self, bucket: usize) -> usize {
        (bucket + 1) & (self.buckets.len() - 1)
    }

    /// Returns the position of the value with an address.
    #[inline]
    fn find(&self, address: u64) -> Option<At> {
        let hash = hash(address);
        let mut bucket = self.home(hash);
        loop {
            let of = &self.buckets[bucket];
            let mut matching = of.matching(hash);
            while matching != 0 {
                let place = matching.trailing_zeros() as usize;
                let number = (of.numbers[place] as usize).wrapping_sub(1);
                if self.things.get(number).is_some_and(|thing| thing.0.address() == address) {
                    return Some(At { bucket, place, number });
                }
                matching &= matching - 1;
            }
            if of.passed == 0 {
                return None;
            }
            bucket = self.after(bucket);
        }
    }

    /// Adds a value, and returns the previous one with its address.
    #[inline]
    pub(super) fn insert(&mut self, thing: T) -> Option<T> {
        if let Some(at) = self.find(thing.address()) {
            return Some(std::mem::replace(&mut self.things[at.number].0, thing));
        }
        let number = match self.free.pop() {
            Some(number) => {
                self.things[number as usize] = Line(thing);
                number
            }
            None => {
                self.things.push(Line(thing));
                (self.things.len() - 1) as u32
            }
        };
        self.count += 1;
        if self.count > self.buckets.len() * LOAD {
            self.grow();
        }
        self.put(hash(thing.address()), number + 1);
        None
    }

    /// Puts a new number into the first bucket with room for it.
    #[inline]
    fn put(&mut self, hash: u32, number: u32) {
        let mut at = self.home(hash);
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(place) = bucket.free_place() {
                (bucket.hashes[place], bucket.numbers[place]) = (hash, number);
                return;
            }
            bucket.passed += 1;
            at = self.after(at);
        }
    }

    /// Doubles the number of buckets.
    #[cold]
    fn grow(&mut self) {
        let double = vec![Bucket::default(); self.buckets.len() * 2];
        let old = std::mem::replace(&mut self.buckets, double);
        self.shift = self.shift.saturating_sub(1);
        for bucket in old {
            let places = bucket.hashes.into_iter().zip(bucket.numbers);
            places.filter(|&(_, number)| number != 0).for_each(|(hash, n)| self.put(hash, n));
        }
    }

    /// Removes a value.
    #[inline]
    pub(super) fn remove(&mut self, address: u64) -> Option<T> {
        let At { bucket, place, number } = self.find(address)?;
        let mut passed = self.home(hash(address));
        while passed != bucket {
            self.buckets[passed].passed -= 1;
            passed = self.after(passed);
        }
        self.buckets[bucket].numbers[place] = 0;
        self.count -= 1;
        self.free.push(number as u32);
        Some(self.things[number].0)
    }

    pub(super) fn get_mut(&mut self, address: u64) -> Option<&mut T> {
        let at = self.find(address)?;
        Some(&mut self.things[at.number].0)
    }

    /// Returns all values, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let numbers = self.buckets.iter().flat_map(|bucket| bucket.numbers);
        numbers.filter(|&number| number != 0).map(|number| &self.things[number as usize - 1].0)
    }

    /// Prefetches the buckets and values of addresses that will be looked up soon: their cache
    /// misses overlap instead of occurring one after the other.
    #[inline]
    pub(super) fn expect(&self, addresses: impl Iterator<Item = u64> + Clone) {
        let bucket = |hash| &self.buckets[self.home(hash)];
        let passed = addresses.clone().fold(0, |sum, address| sum ^ bucket(hash(address)).passed);
        black_box(passed);
        let number = |hash| {
            let bucket = bucket(hash);
            let place = bucket.matching(hash).trailing_zeros() as usize;
            bucket.numbers.get(place).copied().unwrap_or(0)
        };
        let mut numbers = [0; EXPECTED_MAX];
        numbers.iter_mut().zip(addresses).for_each(|(to, address)| *to = number(hash(address)));
        // Keep this loop minimal, because the processor's out-of-order window is limited.
        let thing = |number: u32| self.things.get((number as usize).wrapping_sub(1));
        let address = |number| thing(number).map_or(0, |thing| thing.0.address());
        black_box(numbers.into_iter().fold(0, |sum, number| sum ^ address(number)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    impl Addressed for (u64, u32) {
        fn address(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn it_holds_what_a_map_holds() {
        let (mut table, mut map) = (Table::new(), BTreeMap::new());
        let mut random = 1u64;
        for n in 0..200_000u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let address = (random >> 40) % 5000 * 16;
            match random >> 33 & 3 {
                0 | 1 => assert_eq!(table.insert((address, n)), map.insert(address, (address, n))),
                2 => assert_eq!(table.remove(address), map.remove(&address)),
                _ => assert_eq!(table.get_mut(address), map.get_mut(&address)),
            }
        }
        table.expect([16, 32, 1 << 40].into_iter());
        let mut all: Vec<_> = table.iter().copied().collect();
        all.sort_unstable();
        assert_eq!(all, map.into_values().collect::<Vec<_>>());
        assert!(all.len() > 2000);
    }

    #[test]
    fn things_of_one_bucket_are_found_in_those_behind_it() {
        let mut table = Table::new();
        let last = (1 << FIRST_BITS) - 1;
        let of_last = |address: &u64| table.home(hash(*address)) == last;
        let crowd: Vec<u64> = (1u64..).filter(of_last).take(5 * PLACES).collect();
        for round in 0..3 {
            assert!(crowd.iter().all(|&address| table.insert((address, round)).is_none()));
            assert_eq!(table.buckets[last].passed as usize, 4 * PLACES);
            table.expect(crowd.iter().copied());
            let (first, second) = crowd.split_at(crowd.len() / 2);
            // Values in the home bucket are removed first; those in later buckets must still be
            // found.
            for &address in first.iter().chain(second.iter().rev()) {
                assert_eq!(table.remove(address), Some((address, round)));
                assert_eq!(table.remove(address), None);
            }
            assert!(table.buckets.iter().all(|bucket| bucket.passed == 0));
        }
        assert_eq!((table.buckets.len(), table.things.len()), (1 << FIRST_BITS, crowd.len()));
    }
}
