//! Scope paths that threads inherit while they run code for another thread, such as the threads of
//! OpenMP for the one that starts a parallel region.

use crate::api::interface::with_sites;
use crate::event::tallies;
use crate::event::trace;
use crate::store::ids::ScopeId;
use crate::store::scopes;
use crate::sys::front::Front;
use crate::sys::tls::{Tls, tls};
use core::mem::offset_of;

/// Offset in the thread's block of its number of open scopes, a word of 4 bytes. It is 0 in a
/// thread outside of all scopes, which has nothing to pass on.
pub const DEPTH_AT: usize = offset_of!(Tls, depth);

/// Where a thread was before it inherited a path.
#[derive(Debug)]
pub struct Before {
    context: u64,
    unplaced: u32,
    inherited: u32,
    depth: u32,
}

/// Puts the thread into the scope path of a context. Returns its state for [`leave`], or `None` if
/// the path is its own already, as for the thread that starts a region.
#[inline(never)]
pub fn enter<F: Front>(context: u64) -> Option<Before> {
    with_sites::<F, _>(|lane| {
        let place = &mut lane.place;
        let scope = match scopes::scope_of(context) {
            Some(scope) => scopes::translated(place, scope),
            None => place.root_scope,
        };
        if scope == ScopeId::of(place.scope) {
            return None;
        }
        let before = Before {
            context: scopes::context(place),
            unplaced: place.unplaced,
            inherited: place.inherited,
            depth: tls().depth.get(),
        };
        tallies::settle(lane);
        scopes::set_context(&mut lane.place, context);
        lane.in_scope();
        trace::scope_changed(lane);
        Some(before)
    })
}

/// Puts the thread back to where it was. In a child that was forked meanwhile, which is outside of
/// all scopes, nothing changes.
#[inline(never)]
pub fn leave<F: Front>(before: &Before) {
    with_sites::<F, _>(|lane| {
        if before.context != 0 && scopes::scope_of(before.context).is_none() {
            return;
        }
        tallies::settle(lane);
        lane.live.leave(lane.place.scope, lane.allocated());
        scopes::set_context(&mut lane.place, before.context);
        (lane.place.unplaced, lane.place.inherited) = (before.unplaced, before.inherited);
        tls().depth.set(before.depth);
        lane.in_scope();
        trace::scope_changed(lane);
    })
}
