//! Spans of `tracing` as scopes, including spans that are entered alternately.

use crate::block;
use heaptide::{Context, Extent, ScopeLayer};
use tracing::{Span, info_span};
use tracing_subscriber::prelude::*;

/// Returns the number of blocks of 800 bytes that were allocated in the span's own path.
fn allocations() -> u64 {
    let figures = Context::current().figures(Extent::Exclusive).unwrap_or_default();
    figures.requested_bytes / 800
}

pub fn run() {
    let subscriber = tracing_subscriber::registry().with(ScopeLayer::new());
    tracing::subscriber::with_default(subscriber, || {
        {
            let _outer = info_span!("outer").entered();
            drop(block(800));
            let _inner = info_span!("inner").entered();
            drop(block(800));
            drop(block(800));
        }
        in_turn();
        crossed();
    });
    assert_eq!(Context::current(), Context::NONE);
}

/// Two spans that alternate, like tasks, each with a child.
fn in_turn() {
    let (first, second) = (info_span!("first"), info_span!("second"));
    let child = first.in_scope(|| info_span!("child"));
    for _ in 0..3 {
        first.in_scope(|| drop(block(800)));
        second.in_scope(|| (0..2).for_each(|_| drop(block(800))));
        // The path includes the parent even if the span is entered without it.
        child.in_scope(|| drop(block(800)));
    }
    let expected = if heaptide::recording() { (3, 6, 3) } else { (0, 0, 0) };
    let found = |span: &Span| span.in_scope(allocations);
    // The registry's own allocations for spans have less than 800 bytes each.
    assert_eq!((found(&first), found(&second), found(&child)), expected);
}

/// Spans that are left in the order in which they were entered.
fn crossed() {
    let before = Context::current();
    let (first, second) = (info_span!("a"), info_span!("b"));
    let first = first.entered();
    let second = second.entered();
    drop(first);
    drop(block(800));
    drop(second);
    assert_eq!(Context::current(), before);
}
