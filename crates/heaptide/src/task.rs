//! Futures that carry their scope across awaits and threads.

use crate::interface;
use crate::scope::{Context, Name};
use std::future::Future;
use std::pin::Pin;
use std::task;

/// The scope path of a task between its polls.
#[derive(Debug, Clone, Copy)]
struct Path {
    context: u64,
    /// A scope to enter at the first poll; 0 afterwards, or if there is none.
    enter: u32,
}

/// Restores the thread's own path and saves the task's, even if the task panics.
struct Within<'a> {
    path: &'a mut Path,
    before: u64,
}

impl Path {
    /// Runs a step of the task with its path, and saves the path afterwards.
    #[inline]
    fn within<R>(&mut self, step: impl FnOnce() -> R) -> R {
        if !interface::loaded() {
            return step();
        }
        let before = interface::set_context(self.context);
        if self.enter != 0 {
            interface::scope_begin(std::mem::take(&mut self.enter));
        }
        let _within = Within { path: self, before };
        step()
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        self.path.context = interface::set_context(self.before);
    }
}

/// A future with a scope path of its own: [`InScope::in_scope`].
///
/// Each poll uses the path, on any thread, and then restores the thread's own. Scopes that the
/// future itself opens stay open across its awaits until it closes them.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct Scoped<F> {
    /// Pinned with the whole. An option, so that it can be dropped within its path.
    future: Option<F>,
    path: Path,
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut task::Context<'_>) -> task::Poll<F::Output> {
        let (mut future, path) = parts(self);
        path.within(|| {
            // The future exists until the whole is dropped.
            future.as_mut().as_pin_mut().map_or(task::Poll::Pending, |running| running.poll(task))
        })
    }
}

/// Projects a pinned future: the inner future stays pinned, the path may be moved.
fn parts<F>(scoped: Pin<&mut Scoped<F>>) -> (Pin<&mut Option<F>>, &mut Path) {
    // SAFETY: `future` is never moved once it is pinned: only `Pin::set` replaces it, and `Scoped`
    // is neither packed nor `Unpin` unless `F` is.
    unsafe {
        let scoped = scoped.get_unchecked_mut();
        (Pin::new_unchecked(&mut scoped.future), &mut scoped.path)
    }
}

impl<F> Drop for Scoped<F> {
    /// Frees the future's data within its scope.
    fn drop(&mut self) {
        // SAFETY: it is not moved any more; afterwards its fields are dropped in place.
        let (mut future, path) = parts(unsafe { Pin::new_unchecked(self) });
        if future.is_some() {
            path.within(|| future.set(None));
        }
    }
}

/// Puts futures into scopes.
///
/// ```
/// use heaptide::{InScope, Name};
///
/// static FETCH: Name = Name::new("fetch");
///
/// async fn fetch() -> usize {
///     vec![0u8; 100].len() // allocated in `fetch`, on any thread that polls it
/// }
///
/// let future = fetch().in_scope(&FETCH); // to be awaited, or given to an executor
/// # let mut future = std::pin::pin!(future);
/// # let waker = std::task::Waker::noop();
/// # let polled = future.as_mut().poll(&mut std::task::Context::from_waker(waker));
/// # assert_eq!(polled, std::task::Poll::Ready(100));
/// ```
pub trait InScope: Future + Sized {
    /// Runs the future in this scope, inside the caller's current path. The scope is entered at the
    /// first poll, and counts as entered once.
    fn in_scope(self, name: &Name) -> Scoped<Self> {
        let enter = if interface::loaded() { name.number() } else { 0 };
        Scoped { future: Some(self), path: Path { context: interface::context(), enter } }
    }

    /// Runs the future with this path, for example that of the task that spawns it.
    ///
    /// ```
    /// use heaptide::{Context, InScope};
    ///
    /// let future = async { vec![1, 2, 3] }.in_context(Context::current());
    /// # drop(future);
    /// ```
    fn in_context(self, context: Context) -> Scoped<Self> {
        Scoped { future: Some(self), path: Path { context: context.0, enter: 0 } }
    }
}

impl<F: Future> InScope for F {}
