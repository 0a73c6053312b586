//! Scope paths: where a thread is, in the terms of the program.
//!
//! Each lane has a tree of its own. Entering a scope usually is a comparison with the child that
//! was entered last and two plain stores; readers join equal paths. Leaving moves to the parent:
//! the open scopes of a thread are its path, at any depth.

use crate::store::budgets::SCOPES_MAX;
use crate::store::ids::{NameId, ScopeId, SiteId};
use crate::store::names::{self, Value};
use crate::store::place::{Place, TRANSLATIONS};
use crate::store::profile::Cursor;
use crate::store::shared::store;
use crate::store::sites::{self, NO_NODE};
use crate::sys::tls::tls;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use heaptide_format::shared::{FileHeader, Scope, Word};
use heaptide_format::{Kind, Loss};

/// Creates a lane's root; none if there is no room.
pub fn create_root(cursor: &mut Cursor, lane: u32) -> ScopeId {
    let Some(root) = cursor.record::<Scope>(Kind::Scopes, lane) else {
        return ScopeId::NONE;
    };
    root.lane.set(lane);
    root.highest.set(i64::MAX as u64); // the root has no highest of its own
    cursor.commit_record(root);
    ScopeId::of(root)
}

/// Makes `scope`, a scope of this lane, the path that the thread is in.
#[inline(always)]
pub fn go(place: &mut Place, scope: ScopeId) {
    place.scope = scope.record();
    place.last_node = NO_NODE;
    sites::is_here(place, SiteId::new(place.scope.site.get()));
}

fn name_of(scope: &Scope) -> NameId {
    NameId::new(scope.name.get())
}

/// Returns the enclosing scope; none for a root.
fn parent_of(scope: ScopeId) -> ScopeId {
    ScopeId::new(scope.record().parent.get())
}

/// Enters the scope with this name.
#[inline(always)]
pub fn begin(place: &mut Place, name: NameId) {
    let last = ScopeId::new(place.scope.last.get());
    let child = last.record();
    if !last.is_none() && name_of(child) == name {
        child.entered.add(1);
        tls().enter_scope();
        return go(place, last);
    }
    begin_other(place, name);
}

/// Enters the scope with this attribute and value. The scope that was entered last from here is
/// often entered again, so it is compared first; only other names are looked up.
#[inline(always)]
pub fn begin_named(place: &mut Place, attribute: &[u8], value: &[u8]) {
    let last = ScopeId::new(place.scope.last.get());
    let name = if last.is_none() { NameId::NONE } else { name_of(last.record()) };
    if !name.is_none() && names::is(name, attribute, Value::Text(value)) {
        return begin(place, name);
    }
    begin(place, names::id(names::intern(attribute, Value::Text(value))));
}

/// Leaves the scope with this attribute and value.
#[inline(always)]
pub fn end_named(place: &mut Place, attribute: &[u8], value: &[u8]) {
    let name = name_of(place.scope);
    if !name.is_none() && names::is(name, attribute, Value::Text(value)) {
        return end(place, name);
    }
    end(place, names::id(names::intern(attribute, Value::Text(value))));
}

#[inline(never)]
fn begin_other(place: &mut Place, name: NameId) {
    tls().enter_scope();
    let child = if name.is_none() { ScopeId::NONE } else { child(place, name) };
    if child.is_none() {
        // Its end must not close another scope.
        place.unplaced += 1;
        return store().lost(Loss::NoScope);
    }
    child.record().entered.add(1);
    go(place, child);
}

/// Siblings that are compared before the index is used.
const NEAR: usize = 4;

/// Returns the child of the current path with this name, created if it is new; none if there is no
/// room.
fn child(place: &mut Place, name: NameId) -> ScopeId {
    let parent = place.scope;
    let mut next = ScopeId::new(parent.first.get());
    for _ in 0..NEAR {
        if next.is_none() {
            break;
        }
        if name_of(next.record()) == name {
            parent.last.set(next.number());
            return next;
        }
        next = ScopeId::new(next.record().next.get());
    }
    if !next.is_none() {
        let known = place.index_of_scopes.get([ScopeId::of(parent).number(), name.number()]);
        if known != 0 {
            parent.last.set(known);
            return ScopeId::new(known);
        }
    }
    create(place, name)
}

fn create(place: &mut Place, name: NameId) -> ScopeId {
    if store().scopes.fetch_add(1, Relaxed) >= SCOPES_MAX {
        store().scopes.fetch_sub(1, Relaxed);
        return ScopeId::NONE;
    }
    let Some(child) = place.scopes.record::<Scope>(Kind::Scopes, place.lane) else {
        return ScopeId::NONE;
    };
    let parent = place.scope;
    let (id, around) = (ScopeId::of(child), ScopeId::of(parent).number());
    if !place.index_of_scopes.insert([around, name.number()], id.number()) {
        return ScopeId::NONE;
    }
    child.parent.set(around);
    child.name.set(name.number());
    child.lane.set(place.lane);
    child.next.set(parent.first.get());
    place.scopes.commit_record(child);
    parent.first.set(id.number());
    parent.last.set(id.number());
    id
}

/// Returns the name of the innermost open scope with this attribute; none if there is none.
pub fn innermost(place: &Place, attribute: &[u8]) -> NameId {
    let mut scope = ScopeId::of(place.scope);
    loop {
        let parent = parent_of(scope);
        if parent.is_none() {
            return NameId::NONE;
        }
        let name = name_of(scope.record());
        if names::has_attribute(name, attribute) {
            return name;
        }
        scope = parent;
    }
}

/// Leaves the innermost scope, which should have this name; without a name, any.
#[inline(always)]
pub fn end(place: &mut Place, name: NameId) {
    let parent = ScopeId::new(place.scope.parent.get());
    let is_named = name_of(place.scope) == name || name.is_none();
    if place.unplaced == 0 && !parent.is_none() && is_named {
        tls().leave_scopes(1);
        return go(place, parent);
    }
    end_other(place, name);
}

/// Handles an end that does not match the innermost scope: of a scope for which there was no room,
/// of one that began before the fork, of an outer one, which closes those inside it, or of one that
/// is not open, which is ignored.
#[cold]
#[inline(never)]
fn end_other(place: &mut Place, name: NameId) {
    if place.unplaced > 0 {
        place.unplaced -= 1;
        return tls().leave_scopes(1);
    }
    if place.inherited > 0 && place.scope.parent.get() == 0 {
        place.inherited -= 1;
        return tls().leave_scopes(1);
    }
    note_mismatch(place.scope, name);
    let (mut scope, mut closed) = (ScopeId::of(place.scope), 0);
    loop {
        let parent = parent_of(scope);
        if parent.is_none() {
            return;
        }
        closed += 1;
        if name_of(scope.record()) == name {
            tls().leave_scopes(closed);
            return go(place, parent);
        }
        scope = parent;
    }
}

/// Counts a mismatch, and stores the first for the report.
fn note_mismatch(open: &'static Scope, name: NameId) {
    let p = store();
    p.lost(Loss::ScopeMismatch);
    if name.is_none() {
        return;
    }
    let record = name.record();
    let said = if record.kind == 0 { record.value as u32 } else { 0 };
    let header: &FileHeader = p.header();
    if header.mismatch_end.compare_exchange(0, said, AcqRel, Relaxed).is_ok() {
        header.mismatch_open.set(ScopeId::of(open).number());
    }
}

/// Returns the thread's path as a number that other threads can enter; 0 outside of all scopes. It
/// is valid in this process only: it contains the scope's number and a check, which depends on the
/// pid, against arbitrary numbers.
pub fn context(place: &Place) -> u64 {
    let scope = ScopeId::of(place.scope);
    if scope == place.root_scope { 0 } else { sealed(scope.number()) }
}

fn sealed(scope: u32) -> u64 {
    let pid = store().pid.load(Relaxed);
    let check = (scope ^ pid.rotate_left(16)).wrapping_mul(0x9e37_79b9);
    (check as u64) << 32 | scope as u64
}

/// Returns the scope of a context, of any lane; none if the context is not of this process.
pub fn scope_of(context: u64) -> Option<ScopeId> {
    let scope = context as u32;
    (scope != 0 && sealed(scope) == context).then_some(ScopeId::new(scope))
}

/// Makes a context the thread's path, or leaves all scopes if the context is invalid.
pub fn set_context(place: &mut Place, context: u64) {
    let scope = match scope_of(context) {
        Some(scope) => translated(place, scope),
        None => place.root_scope,
    };
    (place.unplaced, place.inherited) = (0, 0);
    tls().depth.set(depth(scope) as u32);
    go(place, scope);
}

/// Returns this lane's scope for a path of any lane, as deep as there is room for.
pub fn translated(place: &mut Place, scope: ScopeId) -> ScopeId {
    if scope.record().lane.get() == place.lane {
        return scope;
    }
    let slot = scope.number() as usize % TRANSLATIONS;
    let [known, own] = place.translations[slot];
    if known == scope {
        return own;
    }
    let before = place.scope;
    place.scope = place.root_scope.record();
    let whole = descend(place, scope);
    let own = ScopeId::of(place.scope);
    place.scope = before;
    if whole {
        place.translations[slot] = [scope, own];
    } else {
        store().lost(Loss::NoScope);
    }
    own
}

/// Moves from the root along the names of another lane's path. Returns whether there was room for
/// all of it. Records link upwards only, so the names are collected from the inner end, up to
/// `AT_ONCE` at a time.
fn descend(place: &mut Place, scope: ScopeId) -> bool {
    const AT_ONCE: usize = 64;
    let mut names = [NameId::NONE; AT_ONCE];
    let mut left = depth(scope);
    while left > 0 {
        let some = left.min(AT_ONCE);
        left -= some;
        let mut up = scope;
        for _ in 0..left {
            up = parent_of(up);
        }
        for name in names[..some].iter_mut().rev() {
            *name = name_of(up.record());
            up = parent_of(up);
        }
        for &name in &names[..some] {
            let next = child(place, name);
            if next.is_none() {
                return false;
            }
            place.scope = next.record();
        }
    }
    true
}

/// Returns the number of scopes in a path, without the root.
pub fn depth(mut scope: ScopeId) -> usize {
    let mut depth = 0;
    loop {
        scope = parent_of(scope);
        if scope.is_none() {
            return depth;
        }
        depth += 1;
    }
}
