//! A bounded number of values that take long to make. Requests at the same time share a value,
//! which one thread makes.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;
use tokio::task;

use crate::refusal::Refusal;

/// A computed value, or the reason why there is none.
type Made<V> = Result<Arc<V>, Refusal>;

/// The capacity of a cache.
#[derive(Clone, Copy)]
pub struct Room {
    /// The most values.
    pub most: usize,
    /// The number of values to keep regardless of their size.
    pub least: usize,
    /// The most bytes of all; beyond that only `least` values are kept.
    pub bytes: usize,
}

/// A value that takes memory.
pub trait Weight {
    /// Returns its approximate size in bytes.
    fn bytes(&self) -> usize;
}

/// Values by key, the most recently used first.
pub struct Cache<K, V> {
    entries: Mutex<Vec<Entry<K, V>>>,
    room: Room,
}

struct Entry<K, V> {
    key: K,
    /// `None` while it is being computed.
    made: watch::Receiver<Option<Made<V>>>,
}

impl<K: PartialEq, V: Weight + Send + Sync + 'static> Cache<K, V> {
    /// Creates an empty cache.
    pub fn new(room: Room) -> Cache<K, V> {
        Cache { entries: Mutex::default(), room }
    }

    /// Returns the value of a key. If it is missing or outdated, it is computed on a separate
    /// thread; concurrent requests wait for the same computation, which completes even if nothing
    /// waits for it any more.
    pub async fn get(
        &self,
        key: K,
        is_fresh: impl Fn(&V) -> bool,
        make: impl FnOnce() -> Result<V, Refusal> + Send + 'static,
    ) -> Made<V> {
        let mut made = self.entry(key, is_fresh, make);
        let unknown = || Refusal::failed("the server has a fault: see standard error");
        let made = {
            let made = made.wait_for(Option::is_some).await.map_err(|_| unknown())?;
            made.as_ref().cloned().unwrap_or_else(|| Err(unknown()))
        };
        self.leave_oldest();
        made
    }

    /// Evicts values beyond the capacity, except those being computed.
    fn leave_oldest(&self) {
        let mut entries = self.lock();
        let bytes = |entry: &Entry<K, V>| match &*entry.made.borrow() {
            Some(Ok(value)) => value.bytes(),
            Some(Err(_)) | None => 0,
        };
        let is_made = |entry: &Entry<K, V>| entry.made.borrow().is_some();
        let Room { most, least, bytes: limit } = self.room;
        while entries.len() > most
            || entries.len() > least && entries.iter().map(bytes).sum::<usize>() > limit
        {
            let Some(last) = entries.iter().rposition(is_made) else { break };
            entries.remove(last);
        }
    }

    /// Returns the value of a key if it is cached.
    pub fn found(&self, is_it: impl Fn(&K, &V) -> bool) -> Option<Arc<V>> {
        self.lock().iter().find_map(|entry| match &*entry.made.borrow() {
            Some(Ok(value)) if is_it(&entry.key, value) => Some(value.clone()),
            _ => None,
        })
    }

    fn entry(
        &self,
        key: K,
        is_fresh: impl Fn(&V) -> bool,
        make: impl FnOnce() -> Result<V, Refusal> + Send + 'static,
    ) -> watch::Receiver<Option<Made<V>>> {
        let mut entries = self.lock();
        let is_usable = |made: &Option<Made<V>>| match made {
            None => true,
            Some(Ok(value)) => is_fresh(value),
            Some(Err(_)) => false,
        };
        if let Some(at) = entries.iter().position(|entry| entry.key == key) {
            let entry = entries.remove(at);
            let is_usable = is_usable(&entry.made.borrow());
            if is_usable {
                let made = entry.made.clone();
                entries.insert(0, entry);
                return made;
            }
        }
        let (sender, made) = watch::channel(None);
        entries.insert(0, Entry { key, made: made.clone() });
        drop(entries);
        task::spawn_blocking(move || {
            let value = make().map(Arc::new);
            let _ = sender.send(Some(value)); // nothing waits any more
        });
        made
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry<K, V>>> {
        self.entries.lock().unwrap_or_else(|error| error.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    impl Weight for u32 {
        fn bytes(&self) -> usize {
            *self as usize
        }
    }

    #[test]
    fn each_value_is_computed_once_and_the_oldest_is_evicted() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let room = Room { most: 2, least: 1, bytes: 1000 };
            let cache: Arc<Cache<u32, u32>> = Arc::new(Cache::new(room));
            let made = Arc::new(AtomicU32::new(0));
            let get = |key: u32| {
                let (cache, made) = (cache.clone(), made.clone());
                async move {
                    let make = move || {
                        std::thread::sleep(Duration::from_millis(20));
                        made.fetch_add(1, Ordering::Relaxed);
                        if key == 9 { Err(Refusal::missing("nine")) } else { Ok(key * 10) }
                    };
                    cache.get(key, |_| true, make).await
                }
            };
            let mut all: Vec<_> = (0..50).map(|_| tokio::spawn(get(1))).collect();
            for answer in &mut all {
                assert_eq!(answer.await.expect("no panic").as_deref(), Ok(&10));
            }
            assert_eq!(made.load(Ordering::Relaxed), 1);
            assert_eq!(get(2).await.as_deref(), Ok(&20));
            assert_eq!(get(1).await.as_deref(), Ok(&10));
            assert_eq!(get(3).await.as_deref(), Ok(&30));
            assert_eq!(made.load(Ordering::Relaxed), 3);
            assert_eq!(get(1).await.as_deref(), Ok(&10));
            assert_eq!(made.load(Ordering::Relaxed), 3, "2 was the oldest");
            assert_eq!(get(2).await.as_deref(), Ok(&20));
            assert_eq!(made.load(Ordering::Relaxed), 4);
            for _ in 0..2 {
                assert_eq!(get(9).await.err(), Some(Refusal::missing("nine")));
            }
            assert_eq!(made.load(Ordering::Relaxed), 6, "errors are not kept");
            let stale = cache.get(1, |_| false, || Ok(11)).await;
            assert_eq!(stale.as_deref(), Ok(&11));
            assert_eq!(cache.get(4, |_| true, || Ok(990)).await.as_deref(), Ok(&990));
            assert!(cache.found(|key, _| *key == 4).is_some());
            assert!(cache.found(|key, _| *key == 1).is_none(), "more than 1000 bytes");
            assert_eq!(cache.get(5, |_| true, || Ok(2000)).await.as_deref(), Ok(&2000));
            assert!(cache.found(|key, _| *key == 5).is_some(), "one is kept, however large");
        });
    }
}
