//! Locks with a bounded wait, and the values that they guard.
//!
//! While a thread holds one, its signals are blocked: a handler would wait for a lock of its own
//! thread, other threads would wait for the handler, and one that is left by a jump would never
//! release the lock. The first lock of a thread blocks them, so a thread releases its locks in
//! reverse order.

use crate::sys::tls::tls;
use crate::sys::{confined, kernel};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::compiler_fence;

/// A value that only the holder of its lock can access. A thread that does not get the lock
/// continues without it. All zeros is a free lock, if that is a valid value of `T`.
pub struct Locked<T> {
    taken: AtomicU32,
    value: UnsafeCell<T>,
}

/// A lock for data that is stored elsewhere.
pub type Lock = Locked<()>;

// SAFETY: only the holder has a reference to the value, and there is one holder at a time. What the
// values point to belongs to the process, not to a thread.
unsafe impl<T> Sync for Locked<T> {}

/// A cell for state that one lock or one thread guards.
#[repr(transparent)]
pub struct Guarded<T>(pub UnsafeCell<T>);

// SAFETY: each user documents which lock or thread guards the cell.
unsafe impl<T> Sync for Guarded<T> {}

/// Holds the lock until it is dropped.
pub struct Held<'a, T> {
    lock: &'a Locked<T>,
    signals: Signals,
}

/// Number of turns after which waiting for a lock ends: some seconds on a machine whose other cores
/// are busy.
const TURNS: u32 = 1_000_000;

/// The same between two pauses of a patient wait, the number of pauses, and their length.
const TURNS_BETWEEN: u32 = 1024;
const PAUSES: u32 = 5000;
const PAUSE_NS: u64 = 1_000_000;

impl<T> Locked<T> {
    /// Tries once, without waiting: for a signal handler, which may have interrupted the holder.
    pub fn try_acquire(&self) -> Option<Held<'_, T>> {
        self.acquire_within(1, Signals::block())
    }

    /// Waits for the lock; none if another thread holds it for some seconds.
    pub fn acquire(&self) -> Option<Held<'_, T>> {
        self.acquire_within(TURNS, Signals::block())
    }

    /// Waits without blocking signals, and without counting the lock: for one that is taken too
    /// often for two system calls. Handlers may only try to acquire it.
    pub fn acquire_unblocked(&self) -> Option<Held<'_, T>> {
        self.acquire_within(TURNS, Signals::Arrive)
    }

    /// Waits for a lock whose holder may wait for a disk; none if that takes more than some
    /// seconds. On an idle machine, [`Locked::acquire`] gives up after some hundredths of a second.
    pub fn acquire_patiently(&self) -> Option<Held<'_, T>> {
        let signals = Signals::block();
        for _ in 0..PAUSES {
            if self.take_within(TURNS_BETWEEN) {
                return Some(Held { lock: self, signals });
            }
            if !confined::may_call() {
                break;
            }
            kernel::wait_for_change(&self.taken, 1, PAUSE_NS);
        }
        self.acquire_within(TURNS, signals)
    }

    fn acquire_within(&self, turns: u32, signals: Signals) -> Option<Held<'_, T>> {
        if self.take_within(turns) {
            return Some(Held { lock: self, signals });
        }
        signals.restore();
        None
    }

    /// Takes the lock if it is free within some turns.
    fn take_within(&self, turns: u32) -> bool {
        for turn in 0..turns {
            if self.taken.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
                return true;
            }
            if turn % 64 == 63 {
                kernel::sched_yield();
            }
            core::hint::spin_loop();
        }
        false
    }
}

/// What happens to the thread's signals while it holds a lock.
#[derive(Clone, Copy)]
enum Signals {
    /// The lock is not counted.
    Arrive,
    /// They stay as they are: the thread has blocked them for another lock, or the program has
    /// forbidden itself system calls.
    Unchanged,
    /// This mask is restored.
    Blocked(u64),
}

impl Signals {
    #[inline(never)]
    fn block() -> Signals {
        let is_first = !holds_any();
        let before = (is_first && confined::may_call()).then(kernel::block_signals);
        count_locks(1);
        before.map_or(Signals::Unchanged, Signals::Blocked)
    }

    #[inline(never)]
    fn restore(self) {
        if matches!(self, Signals::Arrive) {
            return;
        }
        count_locks(-1);
        if let Signals::Blocked(before) = self {
            kernel::restore_signals(before);
        }
    }
}

/// Counts a lock of the calling thread, before it is acquired or after it was released.
fn count_locks(change: i32) {
    let locks = &tls().locks;
    locks.set(locks.get().saturating_add_signed(change));
    compiler_fence(SeqCst);
}

/// Returns whether the calling thread holds locks of the recorder; in a signal handler, whether it
/// held some when it was interrupted.
pub fn holds_any() -> bool {
    tls().locks.get() != 0
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this holds the lock, and lends the value no longer than that.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this holds the lock, and is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.lock.taken.store(0, Release);
        self.signals.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{format, thread};

    fn locked(value: u64) -> Locked<u64> {
        Locked { taken: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    #[test]
    fn one_holds_it_at_a_time() {
        let lock = locked(7);
        let held = lock.try_acquire().expect("it is free");
        assert!(lock.try_acquire().is_none());
        assert_eq!((*held, holds_any()), (7, true));
        drop(held);
        assert!(!holds_any());
        assert!(lock.acquire().is_some());
    }

    #[test]
    #[cfg_attr(miri, ignore = "there are no signals")]
    fn signals_stay_blocked_until_the_first_lock_is_released() {
        let (outer, inner) = (locked(1), locked(2));
        let are_blocked = || {
            let before = kernel::block_signals();
            kernel::restore_signals(before);
            before != 0
        };
        assert!(!are_blocked());
        let held = outer.acquire().expect("it is free");
        drop(inner.acquire().expect("it is free"));
        assert!(are_blocked());
        drop(held);
        assert!(!are_blocked());
    }

    /// Returns how often a thread of this process has slept.
    fn sleeps(tid: u32) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status"));
        let status = status.expect("its status");
        let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|number| number.trim().parse().ok()).expect("a number")
    }

    /// The holder takes long, like one that waits for a disk: until the other thread has slept.
    /// One that only yields gives up.
    #[test]
    #[cfg_attr(miri, ignore = "there are no system calls")]
    fn a_patient_thread_gets_the_lock_of_a_slow_one() {
        const SLEEPS: u64 = 3;
        let (lock, is_held) = (locked(1), std::sync::Barrier::new(2));
        let gave_up = std::sync::atomic::AtomicBool::new(false);
        let waiter = kernel::gettid();
        thread::scope(|scope| {
            scope.spawn(|| {
                let held = lock.acquire().expect("it is free");
                is_held.wait();
                let before = sleeps(waiter);
                while sleeps(waiter) < before + SLEEPS && !gave_up.load(Relaxed) {
                    thread::yield_now();
                }
                drop(held);
            });
            is_held.wait();
            let got = lock.acquire_patiently().is_some();
            gave_up.store(!got, Relaxed);
            assert!(got);
        });
    }

    #[test]
    fn no_increment_of_four_threads_is_lost() {
        const TIMES: u64 = if cfg!(miri) { 100 } else { 10_000 };
        let lock = locked(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..TIMES).for_each(|_| *lock.acquire().expect("the lock") += 1));
            }
        });
        assert_eq!(*lock.acquire().expect("it is free"), 4 * TIMES);
    }
}
