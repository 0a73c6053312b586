//! Work for several threads. Where there is no room for another one it is done by this.

use std::panic::resume_unwind;
use std::thread::{Builder, ScopedJoinHandle, scope};

/// Does two things at the same time.
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

/// Does the same on `threads` threads, this one included, which share the work among themselves.
/// There may be fewer; this one always takes part.
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

/// What a thread has made.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::{Resource, setrlimit};

    /// In a process of its own: the limit is the whole process's.
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
