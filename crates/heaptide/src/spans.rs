//! The spans of `tracing` as scopes.

use crate::interface;
use std::cell::RefCell;
use tracing::span::{Attributes, Id};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

/// A layer that makes each span a scope, with the attribute `span` and the span's name as value.
///
/// A scope's path follows the tree of the spans, also where spans are entered and left in another
/// order than that, as executors do that run many tasks on a thread: with `Instrument`, a future's
/// allocations are in its span's scope on whichever thread it is polled.
///
/// ```
/// use tracing_subscriber::prelude::*;
///
/// let subscriber = tracing_subscriber::registry().with(heaptide::ScopeLayer::new());
/// tracing::subscriber::with_default(subscriber, || {
///     let _span = tracing::info_span!("load").entered();
///     drop(vec![0u8; 1000]); // allocated in the scope `load`
/// });
/// ```
#[derive(Debug, Clone)]
pub struct ScopeLayer {
    attribute: &'static str,
}

impl Default for ScopeLayer {
    fn default() -> Self {
        ScopeLayer { attribute: "span" }
    }
}

impl ScopeLayer {
    /// With the attribute `span`.
    pub fn new() -> ScopeLayer {
        ScopeLayer::default()
    }

    /// With an attribute of your own.
    pub fn with_attribute(attribute: &'static str) -> ScopeLayer {
        ScopeLayer { attribute }
    }
}

/// What a span keeps: its own path, and that of what it was made in.
#[derive(Clone, Copy)]
struct Place {
    name: u32,
    /// The path it is within.
    outer: u64,
    /// Its own path, once it was entered; 0 before.
    own: u64,
}

/// A span that this thread has entered and not left.
struct Entered {
    span: Id,
    /// The path to go back to when it is left.
    before: u64,
}

thread_local! {
    /// The spans this thread is in, innermost last.
    static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

/// Looks at the spans this thread is in. A thread that is ending may have none any more.
fn entered<R>(look: impl FnOnce(&mut Vec<Entered>) -> R) -> Option<R> {
    ENTERED.try_with(|entered| Some(look(&mut *entered.try_borrow_mut().ok()?))).ok()?
}

/// Whether this span is the innermost that the thread is in: then the thread's path is the span's,
/// with what was opened within it.
fn is_innermost(span: &Id) -> bool {
    entered(|entered| entered.last().is_some_and(|last| last.span == *span)).unwrap_or(false)
}

/// The thread's path outside all of its spans.
fn outside() -> u64 {
    let first = entered(|entered| entered.first().map(|first| first.before));
    first.flatten().unwrap_or_else(interface::context)
}

/// Gives a span its path, as a scope within its outer one, if it has none yet.
fn path_of<S: for<'a> LookupSpan<'a>>(span: &SpanRef<S>) -> u64 {
    let Some(place) = span.extensions().get::<Place>().copied() else {
        return outside();
    };
    if place.own != 0 {
        return place.own;
    }
    let before = interface::set_context(place.outer);
    interface::scope_begin(place.name);
    let own = interface::set_context(before);
    span.extensions_mut().replace(Place { own, ..place });
    own
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ScopeLayer {
    fn on_new_span(&self, _: &Attributes, id: &Id, context: Context<S>) {
        if !interface::loaded() {
            return;
        }
        let Some(span) = context.span(id) else {
            return;
        };
        let outer = match span.parent() {
            Some(parent) if is_innermost(&parent.id()) => interface::context(),
            Some(parent) => path_of(&parent),
            None => outside(),
        };
        let name = name_of(self.attribute, span.metadata());
        span.extensions_mut().replace(Place { name, outer, own: 0 });
    }

    fn on_enter(&self, id: &Id, context: Context<S>) {
        let Some(span) = context.span(id) else {
            return;
        };
        let Some(place) = span.extensions().get::<Place>().copied() else {
            return;
        };
        // Entered anew each time, so that the path counts how often it was.
        let before = interface::set_context(place.outer);
        interface::scope_begin(place.name);
        if place.own == 0 {
            span.extensions_mut().replace(Place { own: interface::context(), ..place });
        }
        let kept = entered(|entered| entered.push(Entered { span: id.clone(), before }));
        if kept.is_none() {
            interface::set_context(before);
        }
    }

    fn on_exit(&self, id: &Id, _: Context<S>) {
        entered(|entered| {
            let Some(at) = entered.iter().rposition(|entry| entry.span == *id) else {
                return;
            };
            let left = entered.remove(at);
            match entered.get_mut(at) {
                // Left before what was entered after it: that goes back further.
                Some(above) => above.before = left.before,
                None => drop(interface::set_context(left.before)),
            }
        });
    }
}

fn name_of(attribute: &str, metadata: &'static Metadata<'static>) -> u32 {
    interface::intern(attribute, metadata.name())
}
