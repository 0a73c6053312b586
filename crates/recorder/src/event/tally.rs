//! The tallies of a lane: counters of each scope that its thread was in.

use crate::store::ids::ScopeId;
use crate::store::index::Index;
use crate::sys::memory::{self, InChild};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// Indices of the counters: usable bytes allocated, allocations by any call, those by realloc,
/// those by calloc and aligned functions, frees, and their bytes.
pub const ALLOCATED: usize = 0;
pub const ALLOCATIONS: usize = 1;
pub const REALLOCATIONS: usize = 2;
pub const ZEROED: usize = 3;
pub const FREES: usize = 4;
pub const FREED: usize = 5;
pub const COUNTERS: usize = 6;

pub type Counts = [u64; COUNTERS];

/// The counters of a scope of a lane.
pub struct Tally {
    pub scope: AtomicU32,
    pub counts: [AtomicU64; COUNTERS],
}

/// Tallies in the first chunk of a lane; each further one has twice as many.
const FIRST_CHUNK: usize = 64;
/// Number of chunks: more tallies than a profile can have scopes.
const CHUNKS: usize = 20;

/// A lane's tallies. Other threads read what is atomic. All zeros: off.
#[repr(C)]
pub struct Tallies {
    pub is_on: AtomicU32,
    /// Odd while the lane's thread changes `at` and a tally.
    pub version: AtomicU32,
    /// The lane's totals when they were last added to a tally.
    pub at: [AtomicU64; COUNTERS],
    /// Counters that a lane's record lacks: calls that return zeroed or aligned blocks, calls of
    /// realloc without a block, blocks that realloc freed, and their bytes.
    pub zeroed: AtomicU64,
    pub resized_nothing: AtomicU64,
    pub moved_blocks: AtomicU64,
    pub moved_bytes: AtomicU64,
    /// Frees of null pointers, which malloc-tag counts.
    pub freed_nothing: AtomicU64,
    /// Words of the lane that show whether anything happened since.
    pub seen: [u64; 4],
    /// The number of a scope's tally, plus one.
    index: Index<1>,
    chunks: [AtomicPtr<Tally>; CHUNKS],
    pub count: AtomicU32,
}

impl Tallies {
    /// Returns the tally of a scope, created if it is new; none without memory.
    pub fn of(&mut self, scope: ScopeId) -> Option<&'static Tally> {
        match self.index.get([scope.number()]) {
            0 => self.create(scope),
            number => self.get(number as usize - 1),
        }
    }

    #[cold]
    fn create(&mut self, scope: ScopeId) -> Option<&'static Tally> {
        let count = self.count.load(Relaxed);
        let (chunk, _) = position(count as usize);
        let place = self.chunks.get(chunk)?;
        if place.load(Relaxed).is_null() {
            let bytes = (FIRST_CHUNK << chunk) * size_of::<Tally>();
            let memory = memory::take(bytes, InChild::Nothing) as *mut Tally;
            place.store(memory, Release);
        }
        let tally = self.get(count as usize)?;
        tally.scope.store(scope.number(), Relaxed);
        if !self.index.insert([scope.number()], count + 1) {
            return None;
        }
        self.count.store(count + 1, Release);
        Some(tally)
    }

    /// Returns the tally with a number; none if it was not created.
    pub fn get(&self, number: usize) -> Option<&'static Tally> {
        let (chunk, at) = position(number);
        let memory = self.chunks.get(chunk)?.load(Acquire);
        // SAFETY: null, or memory for that many tallies, which is never released; all zeros is a
        // valid value.
        (!memory.is_null()).then(|| unsafe { &*memory.add(at) })
    }
}

/// Returns the chunk of a tally, and the position in it.
fn position(number: usize) -> (usize, usize) {
    let chunk = (number / FIRST_CHUNK + 1).ilog2() as usize;
    (chunk, number - FIRST_CHUNK * ((1 << chunk) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_format::shared::Word;

    #[test]
    fn each_number_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for number in 0..10_000 {
            assert_eq!(position(number), expected, "{number}");
            expected.1 += 1;
            if expected.1 == FIRST_CHUNK << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    #[test]
    fn each_scope_has_a_tally_of_its_own() {
        // SAFETY: all zeros is a valid value.
        let mut tallies = unsafe { std::boxed::Box::<Tallies>::new_zeroed().assume_init() };
        let scopes = 1..500u32;
        for scope in scopes.clone() {
            tallies.of(ScopeId::new(scope)).expect("memory").counts[ALLOCATED].add(scope as u64);
        }
        for scope in scopes {
            let tally = tallies.of(ScopeId::new(scope)).expect("memory");
            assert_eq!(tally.counts[ALLOCATED].load(Relaxed), scope as u64);
        }
        assert_eq!(tallies.count.load(Relaxed), 499);
    }
}
