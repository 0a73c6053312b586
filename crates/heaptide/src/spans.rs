//! The spans of `tracing` as scopes.

use crate::interface;
use std::cell::RefCell;
use tracing::span::{Attributes, Id};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

/// A layer that turns each span into a scope, with the attribute `span` and the span's name as
/// value.
///
/// A scope's path follows the tree of the spans, even if spans are entered and left in another
/// order, as by executors that run many tasks on a thread: with `Instrument`, a future's
/// allocations are in its span's scope on any thread that polls it.
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
    /// Creates a layer with the attribute `span`.
    pub fn new() -> ScopeLayer {
        ScopeLayer::default()
    }

    /// Creates a layer with another attribute.
    pub fn with_attribute(attribute: &'static str) -> ScopeLayer {
        ScopeLayer { attribute }
    }
}

/// Data of a span: its own path, and that of its parent.
#[derive(Clone, Copy)]
struct Place {
    name: u32,
    /// The path of the parent.
    outer: u64,
    /// Its own path; 0 before it is first entered.
    own: u64,
}

/// A span that this thread has entered and not left yet.
struct Entered {
    span: Id,
    /// The path to restore when it is left.
    before: u64,
}

thread_local! {
    /// The spans that this thread is in, innermost last.
    static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

/// Accesses the spans that this thread is in. `None` if the thread is ending and has destroyed
/// them.
fn entered<R>(look: impl FnOnce(&mut Vec<Entered>) -> R) -> Option<R> {
    ENTERED.try_with(|entered| Some(look(&mut *entered.try_borrow_mut().ok()?))).ok()?
}

/// Returns whether this span is the innermost one of the thread; then the thread's path is the
/// span's, or below it.
fn is_innermost(span: &Id) -> bool {
    entered(|entered| entered.last().is_some_and(|last| last.span == *span)).unwrap_or(false)
}

/// Returns the thread's path outside of all its spans.
fn outside() -> u64 {
    let first = entered(|entered| entered.first().map(|first| first.before));
    first.flatten().unwrap_or_else(interface::context)
}

/// Gives a span its path, as a scope in its parent's, if it has none yet.
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
        // Entered again each time, so that the path counts the entries.
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
                // A span entered later is still open: when it is left, it restores the path that
                // this one replaced.
                Some(above) => above.before = left.before,
                None => drop(interface::set_context(left.before)),
            }
        });
    }
}

fn name_of(attribute: &str, metadata: &'static Metadata<'static>) -> u32 {
    interface::intern(attribute, metadata.name())
}
