//! Runs work on several threads. If a thread cannot be started, the calling thread does its work.

use std::num::NonZero;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, ScopedJoinHandle, available_parallelism, scope};

/// Maximum number of threads: with more, the work is bound by memory bandwidth.
const THREADS_MAX: usize = 8;
/// Items that a thread takes at a time: a fraction of a millisecond of work.
const PART: usize = 1024;

/// Runs two closures at the same time and returns both results.
///
/// ```
/// let both = heaptide_analysis::threads::both(|| 1 + 1, || "two");
/// assert_eq!(both, (2, "two"));
/// ```
pub fn both<A: Send, B>(one: impl Fn() -> A + Sync, other: impl FnOnce() -> B) -> (A, B) {
    scope(|scope| {
        let thread = Builder::new().spawn_scoped(scope, &one);
        let other = other();
        (thread.map_or_else(|_| one(), joined), other)
    })
}

/// Runs `work` on up to `threads` threads, including the calling one, and returns their results.
/// The closures divide the work among themselves. There can be fewer threads than requested; the
/// calling one always takes part.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// let left = AtomicU32::new(10);
/// let take = || left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
/// let count = || std::iter::from_fn(|| take().ok()).count();
/// let done = heaptide_analysis::threads::together(4, count);
/// assert_eq!(done.iter().sum::<usize>(), 10);
/// ```
pub fn together<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    scope(|scope| {
        let start = |_| Builder::new().spawn_scoped(scope, &work).ok();
        let others: Vec<_> = (1..threads).map_while(start).collect();
        let mut done = vec![work()];
        done.extend(others.into_iter().map(joined));
        done
    })
}

/// Processes `count` items on up to as many threads as there are processors. `work` receives a
/// range of items at a time; few items are a single range. The results are in order.
///
/// ```
/// let sums = heaptide_analysis::threads::in_parts(5000, |items| items.sum::<usize>());
/// assert_eq!(sums.iter().sum::<usize>(), 4999 * 5000 / 2);
/// assert_eq!(heaptide_analysis::threads::in_parts(3, |items| items), [0..3]);
/// ```
pub fn in_parts<T: Send>(count: usize, work: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let parts = count.div_ceil(PART);
    let threads = available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX).min(parts);
    let next = AtomicUsize::new(0);
    let share = || {
        let parts = std::iter::from_fn(|| {
            let part = next.fetch_add(1, Ordering::Relaxed);
            (part < parts).then_some(part)
        });
        let items = |part: usize| part * PART..count.min((part + 1) * PART);
        parts.map(|part| (part, work(items(part)))).collect::<Vec<_>>()
    };
    let mut done: Vec<(usize, T)> = together(threads, share).into_iter().flatten().collect();
    done.sort_unstable_by_key(|&(part, _)| part);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Returns the result of a thread, or resumes its panic.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::{Resource, setrlimit};

    /// Runs in a process of its own, because the limit applies to a whole process.
    #[test]
    fn without_room_for_a_thread_this_one_does_it() {
        const INSIDE: &str = "WITHOUT_ROOM_FOR_THREADS";
        if std::env::var_os(INSIDE).is_none() {
            let this = std::env::current_exe().expect("this program");
            let mut again = std::process::Command::new(this);
            again.arg("threads::tests::without_room_for_a_thread_this_one_does_it");
            let status = again.args(["--exact", "--nocapture"]).env(INSIDE, "1").status();
            return assert!(status.expect("this program").success());
        }
        setrlimit(Resource::RLIMIT_DATA, 1, 1).expect("a limit");
        assert!(Builder::new().spawn(|| ()).is_err());
        assert_eq!(both(|| 1, || 2), (1, 2));
        assert_eq!(together(3, || 7), [7]);
    }
}
