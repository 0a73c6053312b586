//! Blocks by address: an open-addressing table of the blocks that are live, small enough to stay
//! in the cache of most programs, and blocks in a row whose places are used again at once.
//!
//! A slot has half of the address's hash, by Knuth's multiplication (The Art of Computer
//! Programming, volume 3, section 6.4), so that slots move without a look at their blocks.

/// What has an address of its own.
pub(super) trait Addressed: Copy {
    /// The address.
    fn address(&self) -> u64;
}

/// Things by address.
#[derive(Debug)]
pub(super) struct Table<T> {
    /// Above, half of the hash; below, the number of the thing plus one, 0 in a free slot.
    slots: Vec<u64>,
    /// Bits of the hash that are not the place of a slot.
    shift: u32,
    count: usize,
    things: Vec<T>,
    free: Vec<u32>,
}

/// Slots at first, as a power of two.
const FIRST_BITS: u32 = 10;

fn hash(address: u64) -> u32 {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

fn hash_of(slot: u64) -> u32 {
    (slot >> 32) as u32
}

impl<T: Addressed> Table<T> {
    pub(super) fn new() -> Table<T> {
        let (slots, shift) = (vec![0; 1 << FIRST_BITS], 32 - FIRST_BITS);
        Table { slots, shift, count: 0, things: Vec::new(), free: Vec::new() }
    }

    fn place(&self, hash: u32) -> usize {
        (hash >> self.shift) as usize
    }

    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.slots.len() - 1)
    }

    fn number(slot: u64) -> usize {
        (slot as u32 - 1) as usize
    }

    /// The slot of an address, if it is there; else where it would be.
    #[inline]
    fn find(&self, address: u64) -> Result<usize, usize> {
        let hash = hash(address);
        let mut at = self.place(hash);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return Err(at);
            }
            if hash_of(slot) == hash && self.things[Self::number(slot)].address() == address {
                return Ok(at);
            }
            at = self.after(at);
        }
    }

    /// Adds a thing, and gives back what had its address.
    #[inline]
    pub(super) fn insert(&mut self, thing: T) -> Option<T> {
        let at = match self.find(thing.address()) {
            Ok(at) => {
                let there = &mut self.things[Self::number(self.slots[at])];
                return Some(std::mem::replace(there, thing));
            }
            Err(at) => at,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.things[number as usize] = thing;
                number
            }
            None => {
                self.things.push(thing);
                (self.things.len() - 1) as u32
            }
        };
        self.slots[at] = u64::from(hash(thing.address())) << 32 | (u64::from(number) + 1);
        self.count += 1;
        if self.count > self.slots.len() / 2 {
            self.grow();
        }
        None
    }

    /// Twice as many slots.
    #[cold]
    fn grow(&mut self) {
        let double = vec![0; self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, double);
        self.shift = self.shift.saturating_sub(1);
        for slot in old.into_iter().filter(|&slot| slot != 0) {
            let mut at = self.place(hash_of(slot));
            while self.slots[at] != 0 {
                at = self.after(at);
            }
            self.slots[at] = slot;
        }
    }

    /// Takes a thing out. Those behind it move up, so that none is lost behind a free slot.
    #[inline]
    pub(super) fn remove(&mut self, address: u64) -> Option<T> {
        let mut hole = self.find(address).ok()?;
        let number = Self::number(self.slots[hole]);
        let mask = self.slots.len() - 1;
        let mut at = self.after(hole);
        while self.slots[at] != 0 {
            let from_home = at.wrapping_sub(self.place(hash_of(self.slots[at]))) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.after(at);
        }
        self.slots[hole] = 0;
        self.count -= 1;
        self.free.push(number as u32);
        Some(self.things[number])
    }

    pub(super) fn get_mut(&mut self, address: u64) -> Option<&mut T> {
        let at = self.find(address).ok()?;
        Some(&mut self.things[Self::number(self.slots[at])])
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let used = self.slots.iter().filter(|&&slot| slot != 0);
        used.map(|&slot| &self.things[Self::number(slot)])
    }

    /// Looks at the places of addresses that will be asked for soon, all at once: then memory is
    /// waited for once, and not for each.
    #[inline]
    pub(super) fn expect(&self, addresses: impl Iterator<Item = u64> + Clone) {
        let slot = |address| self.slots[self.place(hash(address))];
        let slots = addresses.clone().fold(0, |sum, address| sum ^ slot(address));
        std::hint::black_box(slots);
        let thing = |address| {
            let hash = hash(address);
            let mut at = self.place(hash);
            while self.slots[at] != 0 && hash_of(self.slots[at]) != hash {
                at = self.after(at);
            }
            let number = (self.slots[at] as u32).wrapping_sub(1) as usize;
            self.things.get(number).map_or(0, |thing| thing.address())
        };
        std::hint::black_box(addresses.fold(0, |sum, address| sum ^ thing(address)));
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
}
