//! Selects the processes, scopes and labels that have series of their own: a limited number of the
//! largest. The selection changes slowly, because a series that comes and goes has no rate, and
//! Prometheus keeps it in its index for hours.

use std::hash::Hash;
use std::time::Duration;

use rustc_hash::FxHashMap;

/// Minimum time for which a place is kept.
const KEPT: Duration = Duration::from_secs(600);
/// After that time, a place is replaced only by a key whose size is larger by this factor.
const LARGER: u64 = 2;
/// Maximum number of replacements per reading.
const CHANGES: usize = 4;

/// A limited number of places.
pub(crate) struct Places<K> {
    most: usize,
    /// Since when each key has had its place.
    held: FxHashMap<K, Duration>,
}

impl<K: Copy + Eq + Ord + Hash> Places<K> {
    /// Creates this many free places.
    pub(crate) fn new(most: usize) -> Places<K> {
        Places { most, held: FxHashMap::default() }
    }

    /// Returns whether a key has a place.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.held.contains_key(key)
    }

    /// Assigns places to the largest keys. A key that is not in `all` loses its place.
    pub(crate) fn update(&mut self, all: &[(K, u64)], now: Duration) {
        let sizes: FxHashMap<K, u64> = all.iter().copied().collect();
        self.held.retain(|key, _| sizes.contains_key(key));
        let free = self.most - self.held.len();
        let mut others: Vec<(u64, K)> = Vec::new();
        if all.len() > self.held.len() {
            let without = all.iter().filter(|(key, _)| !self.held.contains_key(key));
            others.extend(without.map(|&(key, size)| (size, key)));
            others.sort_unstable_by(|a, b| b.cmp(a));
        }
        let mut others = others.into_iter();
        for (_, key) in others.by_ref().take(free) {
            self.held.insert(key, now);
        }
        let mut oldest: Vec<(u64, K)> = Vec::new();
        let mut rivals = others.take(CHANGES).peekable();
        if rivals.peek().is_some() {
            let kept = |&since: &Duration| now < since + KEPT;
            let old = self.held.iter().filter(|(_, since)| !kept(since));
            oldest.extend(old.map(|(key, _)| (sizes[key], *key)));
            oldest.sort_unstable();
        }
        for ((smallest, holder), (size, key)) in oldest.into_iter().zip(rivals) {
            if size <= smallest.saturating_mul(LARGER) {
                break;
            }
            self.held.remove(&holder);
            self.held.insert(key, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(places: &Places<u32>) -> Vec<u32> {
        let mut held: Vec<u32> = places.held.keys().copied().collect();
        held.sort_unstable();
        held
    }

    #[test]
    fn the_largest_have_places_and_keep_them() {
        let (mut places, start) = (Places::new(2), Duration::ZERO);
        places.update(&[(1, 10), (2, 30), (3, 20)], start);
        assert_eq!(held(&places), [2, 3]);
        // A replacement before `KEPT` has passed is not possible, however large the key is.
        places.update(&[(1, 1000), (2, 30), (3, 20)], start + KEPT / 2);
        assert_eq!(held(&places), [2, 3]);
        places.update(&[(1, 40), (2, 30), (3, 20)], start + KEPT);
        assert_eq!(held(&places), [2, 3], "not more than twice as large");
        places.update(&[(1, 41), (2, 30), (3, 20)], start + KEPT);
        assert_eq!(held(&places), [1, 2]);
        places.update(&[(1, 41), (2, 30), (3, 1000)], start + KEPT);
        assert_eq!(held(&places), [1, 3], "1 has come just now");
    }

    #[test]
    fn places_of_what_is_gone_are_free() {
        let (mut places, now) = (Places::new(2), Duration::ZERO);
        places.update(&[(1, 10), (2, 30), (3, 20)], now);
        places.update(&[(1, 10), (3, 20)], now);
        assert_eq!(held(&places), [1, 3]);
        places.update(&[], now);
        assert!(held(&places).is_empty() && !places.has(&1));
    }

    #[test]
    fn few_places_change_hands_at_once() {
        let (mut places, now) = (Places::new(100), Duration::ZERO);
        let all = |large: u64| (0..200u32).map(move |n| (n, if n < 100 { 1 } else { large }));
        places.update(&all(0).collect::<Vec<_>>(), now);
        assert_eq!(held(&places), (0..100).collect::<Vec<_>>());
        places.update(&all(100).collect::<Vec<_>>(), now + KEPT);
        let newcomers = (100..200).filter(|key| places.has(key)).count();
        assert_eq!((newcomers, places.held.len()), (CHANGES, 100));
    }
}
