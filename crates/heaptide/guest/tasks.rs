//! Futures that are polled alternately, on two threads and on one: each keeps its scope.

use crate::block;
use heaptide::{Context, InScope, Name, scope};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{self, Poll, Waker};
use std::thread;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

static FIRST: Name = Name::with_attribute("task", "first");
static SECOND: Name = Name::with_attribute("task", "second");
static INNER: Name = Name::new("inner");

/// Waits for the next poll.
async fn turn() {
    let mut waited = false;
    poll_fn(|_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending })
        .await
}

/// Five steps; each allocates three blocks, and one more in a scope of its own.
async fn steps(bytes: usize) {
    let kept = block(bytes);
    for _ in 0..5 {
        (0..3).for_each(|_| drop(block(bytes)));
        INNER.run(|| drop(block(bytes)));
        turn().await;
    }
    drop(kept);
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> bool {
    future.poll(&mut task::Context::from_waker(Waker::noop())).is_ready()
}

pub fn run() {
    on_two_threads();
    on_one_thread();
    dropped_halfway();
    assert_eq!(Context::current(), Context::NONE);
}

/// A thread that polls each task once, and sends it back if it is still pending.
fn worker(back: mpsc::Sender<Option<Task>>) -> (mpsc::Sender<Task>, thread::JoinHandle<()>) {
    let (send, receive) = mpsc::channel::<Task>();
    let work = move || {
        for mut task in receive {
            let done = poll(task.as_mut());
            assert_eq!(Context::current(), Context::NONE);
            back.send((!done).then_some(task)).unwrap();
        }
    };
    (send, thread::spawn(work))
}

/// Each poll happens on a different thread than the previous one.
fn on_two_threads() {
    let outer = scope!("executor");
    let mut tasks: Vec<Task> =
        vec![Box::pin(steps(1000).in_scope(&FIRST)), Box::pin(steps(2000).in_scope(&SECOND))];
    drop(outer);
    let (back, results) = mpsc::channel();
    let workers = [worker(back.clone()), worker(back)];
    for round in 0.. {
        let mut left = Vec::new();
        for (number, task) in tasks.into_iter().enumerate() {
            workers[(round + number) % 2].0.send(task).unwrap();
            left.extend(results.recv().unwrap());
        }
        tasks = left;
        if tasks.is_empty() {
            break;
        }
    }
    for (send, thread) in workers {
        drop(send);
        thread.join().unwrap();
    }
}

/// Guards that are held across awaits stay separate.
fn on_one_thread() {
    async fn held(name: &'static str, bytes: usize) {
        let _scope = scope!("held", name);
        for _ in 0..4 {
            drop(block(bytes));
            turn().await;
        }
    }
    let context = Context::current();
    let mut first = Box::pin(held("first", 300).in_context(context));
    let mut second = Box::pin(held("second", 400).in_scope(&SECOND));
    while !(poll(first.as_mut()) & poll(second.as_mut())) {
        assert_eq!(Context::current(), Context::NONE);
    }
}

/// A task's data is freed in its scope, even if the task never completes.
fn dropped_halfway() {
    static LEFT: Name = Name::with_attribute("task", "left");
    let mut task = Box::pin(steps(5000).in_scope(&LEFT));
    assert!(!poll(task.as_mut()));
    drop(task);
}
