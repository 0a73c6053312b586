//! Distributes the batches of a stream to threads: each takes the next, and one at a time reads
//! ahead.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::stream::{Batch, Stream};

/// The most batches to read ahead.
const AHEAD: usize = 8;

/// The batches of a stream, for any number of threads.
///
/// No thread is dedicated to reading: a thread that finds few batches available reads until there
/// are enough, while the others take them. So reading rarely moves between processors, whose caches
/// keep its data, and threads wait only if there is nothing to take.
pub(crate) struct Supply<'a> {
    state: Mutex<State<'a>>,
    /// Signals another batch, or the end.
    changed: Condvar,
    ahead: usize,
}

struct State<'a> {
    ready: VecDeque<Batch<'a>>,
    /// The stream, unless a thread is reading it or it has ended.
    stream: Option<Stream<'a>>,
    is_over: bool,
}

/// A thread that reads. The others continue regardless of how it ends.
struct Reading<'s, 'a> {
    supply: &'s Supply<'a>,
    /// `None` once it was returned.
    stream: Option<Stream<'a>>,
}

impl<'a> Supply<'a> {
    /// Reads ahead of consumers.
    pub(crate) fn ahead(stream: Stream<'a>) -> Supply<'a> {
        Supply::new(stream, AHEAD)
    }

    /// Reads a batch only when a thread requests it.
    pub(crate) fn on_demand(stream: Stream<'a>) -> Supply<'a> {
        Supply::new(stream, 1)
    }

    fn new(stream: Stream<'a>, ahead: usize) -> Supply<'a> {
        let state = State { ready: VecDeque::new(), stream: Some(stream), is_over: false };
        Supply { state: Mutex::new(state), changed: Condvar::new(), ahead }
    }

    /// Returns the next batch; `None` at the end.
    pub(crate) fn next(&self) -> Option<Batch<'a>> {
        let mut state = self.lock();
        loop {
            if state.ready.len() <= self.ahead / 2
                && let Some(stream) = state.stream.take()
            {
                drop(state);
                Reading { supply: self, stream: Some(stream) }.read();
                state = self.lock();
            } else if let Some(batch) = state.ready.pop_front() {
                return Some(batch);
            } else if state.is_over {
                return None;
            } else {
                // Another thread is reading, and wakes this one even if it stops reading.
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading<'_, '_> {
    /// Reads until enough batches are ready, or to the end.
    fn read(mut self) {
        while let Some(batch) = self.stream.as_mut().and_then(Stream::next) {
            let mut state = self.supply.lock();
            state.ready.push_back(batch);
            self.supply.changed.notify_one();
            if state.ready.len() >= self.supply.ahead {
                // A waiting thread may have to read now, because this one may not take another
                // batch.
                self.supply.changed.notify_all();
                state.stream = self.stream.take();
                return;
            }
        }
    }
}

impl Drop for Reading<'_, '_> {
    /// A stream that was not returned has ended, or the thread has panicked.
    fn drop(&mut self) {
        if self.stream.is_some() {
            self.supply.lock().is_over = true;
            self.supply.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use heaptide_analysis::threads;

    use super::*;
    use crate::stream::Make;
    use crate::table::Table;

    /// Creates a stream of `batches` batches of one record, which ends with the result of `then`.
    fn stream(batches: usize, then: fn() -> Option<(usize, Make<'static>)>) -> Stream<'static> {
        let mut left = batches;
        let one = || Some((1, Box::new(Table::default) as Make<'static>));
        Stream::new(Table::default(), move || match left.checked_sub(1) {
            Some(less) => {
                left = less;
                one()
            }
            None => then(),
        })
    }

    fn taken(supply: &Supply) -> Vec<u64> {
        std::iter::from_fn(|| supply.next()).map(|batch| batch.first).collect()
    }

    #[test]
    fn every_batch_is_taken_once_and_in_order() {
        let in_order: Vec<u64> = (0..1000).collect();
        for new in [Supply::ahead, Supply::on_demand] {
            assert_eq!(taken(&new(stream(1000, || None))), in_order);
            let supply = new(stream(1000, || None));
            let parts = threads::together(4, || taken(&supply));
            assert!(parts.iter().all(|part| part.is_sorted()), "{parts:?}");
            let mut all = parts.concat();
            all.sort_unstable();
            assert_eq!(all, in_order);
        }
    }

    #[test]
    fn batches_are_read_only_on_demand() {
        let supply = Supply::on_demand(stream(1, || panic!("nobody asked")));
        assert!(supply.next().is_some());
        let supply = Supply::ahead(stream(AHEAD, || panic!("that is more than enough")));
        assert!(supply.next().is_some());
    }

    #[test]
    fn threads_that_stop_leave_no_thread_waiting() {
        for new in [Supply::ahead, Supply::on_demand] {
            for _ in 0..2000 {
                let supply = new(stream(1 << 20, || None));
                let taken = threads::together(4, || supply.next().is_some());
                assert_eq!(taken.iter().filter(|taken| **taken).count(), taken.len());
            }
        }
    }

    #[test]
    fn other_threads_continue_after_a_thread_panics() {
        let supply = Supply::ahead(stream(2, || panic!("on purpose")));
        assert!(catch_unwind(AssertUnwindSafe(|| supply.next().is_some())).is_err());
        assert_eq!(taken(&supply), [0, 1]);
    }
}
