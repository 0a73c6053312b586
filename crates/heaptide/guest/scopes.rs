//! Scopes and contexts: allocations are counted by scope path, regardless of the freeing thread.

use crate::{block, blocks};
use heaptide::{Context, Extent, Figures, Name, Scope, carried, in_context, scope};
use std::thread;

/// Returns the counters of the thread's current path, without nested paths.
fn own() -> Figures {
    Context::current().figures(Extent::Exclusive).unwrap_or_default()
}

/// Checks a value, which has to be 0 without the recorder.
fn check(found: u64, expected: u64) {
    assert_eq!(found, if heaptide::recording() { expected } else { 0 });
}

pub fn run() {
    let kept = {
        let _scope = scope!("load");
        let kept = blocks(10, 1000);
        check(own().allocations, 11);
        check(own().requested_bytes, 10 * 1000 + 10 * 24);
        kept
    };
    {
        let _scope = scope!("use");
        drop(kept);
        check(own().allocations, 0);
    }
    for number in 0..3usize {
        let _scope = scope!("iteration", number);
        for _ in 0..=number {
            drop(block(100));
        }
        check(own().allocations, number as u64 + 1);
    }
    similar_names();
    check(nested(3), 3);
    out_of_order();
    let _scope = scope!("text", &String::from("é — as it is"));
    drop(block(50));
}

/// Names with a common prefix are distinct, and so are two paths with the same last name.
fn similar_names() {
    static ONE: Name = Name::new("dummy1");
    static TEN: Name = Name::new("dummy10");
    ONE.run(|| drop(block(11)));
    TEN.run(|| {
        drop(block(22));
        ONE.run(|| drop(block(33)));
        check(own().requested_bytes, 22);
    });
    let _scope = ONE.enter();
    check(own().requested_bytes, 11);
}

/// Recursion nests: each level has a path of its own. Returns the sum of allocations of all levels.
fn nested(levels: usize) -> u64 {
    let _scope = heaptide::function!();
    drop(block(70));
    let own = own().allocations;
    if levels > 1 { own + nested(levels - 1) } else { own }
}

/// Closing a scope also closes the scopes opened in it; nothing stays open.
fn out_of_order() {
    let outside = Context::current();
    let (first, second) = (scope!("first"), Scope::enter("second", 2));
    drop(first);
    assert_eq!(Context::current(), outside);
    drop(second);
    assert_eq!(Context::current(), outside);
}

pub fn contexts() {
    {
        let _scope = scope!("shared");
        let context = Context::current();
        let work = || drop(block(500));
        let threads: Vec<_> = (0..4).map(|_| thread::spawn(carried(work))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        thread::spawn(move || in_context(context, || drop(block(501)))).join().unwrap();
    }
    let threads: Vec<_> = (0..30u32)
        .map(|number| {
            thread::spawn(move || {
                let _scope = scope!("worker", number);
                (0..7).for_each(|_| drop(block(600)));
                check(own().allocations, 7);
                assert_eq!(Context::NONE.attach_and_look(), Context::NONE);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(Context::current(), Context::NONE);
}

/// Attaches a path temporarily.
trait Look {
    fn attach_and_look(self) -> Context;
}

impl Look for Context {
    fn attach_and_look(self) -> Context {
        let _attached = self.attach();
        Context::current()
    }
}
