//! Scope paths: where in its own terms a thread is.
//!
//! Each lane has a tree of its own, so entering a scope is a look at the child entered last and two
//! plain stores; a reader joins equal paths. Leaving is going to the parent: the open scopes of a
//! thread are its path, however deep.

use crate::event::lane::LaneState;
use crate::event::tls::tls;
use crate::store::names::{self, Value};
use crate::store::profile::Cursor;
use crate::store::shared::store;
use crate::store::sites::{self, NO_NODE};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use heaptide_format::{KEY_GRANULE, Kind, Loss, Name, Scope};

/// The record of a scope path.
#[inline(always)]
pub fn at(scope: u32) -> *mut Scope {
    let base = store().base.load(Relaxed);
    base.wrapping_add(scope as usize * KEY_GRANULE as usize) as *mut Scope
}

/// Its number.
#[inline(always)]
pub fn id(record: *mut Scope) -> u32 {
    let base = store().base.load(Relaxed);
    ((record as u64 - base as u64) / KEY_GRANULE) as u32
}

/// A lane's root; 0 if there is no room.
pub fn create_root(cursor: &mut Cursor, lane: u32) -> u32 {
    let record = cursor.take(Kind::Scopes, lane, size_of::<Scope>()) as *mut Scope;
    if record.is_null() {
        return 0;
    }
    // SAFETY: `take` gives zeroed room for a scope.
    unsafe { (*record).lane = lane };
    cursor.commit(size_of::<Scope>());
    id(record)
}

/// Makes `scope`, one of this lane's, the path that the thread is in.
#[inline(always)]
pub fn go(lane: &mut LaneState, scope: u32) {
    lane.scope = at(scope);
    lane.last_node = NO_NODE;
    // SAFETY: the lane's own record.
    sites::is_here(lane, unsafe { (*lane.scope).site });
}

/// Enters the scope of this name.
#[inline(always)]
pub fn begin(lane: &mut LaneState, name: u32) {
    // SAFETY: the lane's own records; the child used last is one of them.
    unsafe {
        let last = (*lane.scope).last;
        let child = at(last);
        if last != 0 && (*child).name == name {
            (*child).entered += 1;
            (*tls()).depth += 1;
            return go(lane, last);
        }
    }
    begin_other(lane, name);
}

/// The same by its words. What was entered last from here is often entered again, and is told by a
/// look at its words: only else are they looked up.
#[inline(always)]
pub fn begin_named(lane: &mut LaneState, attribute: &[u8], value: &[u8]) {
    // SAFETY: the lane's own records.
    let name = unsafe {
        match (*lane.scope).last {
            0 => 0,
            last => (*at(last)).name,
        }
    };
    if name != 0 && names::is(name, attribute, Value::Text(value)) {
        return begin(lane, name);
    }
    begin(lane, names::id(names::intern(attribute, Value::Text(value))));
}

/// Leaves the scope of these words.
#[inline(always)]
pub fn end_named(lane: &mut LaneState, attribute: &[u8], value: &[u8]) {
    // SAFETY: the lane's own record.
    let name = unsafe { (*lane.scope).name };
    if name != 0 && names::is(name, attribute, Value::Text(value)) {
        return end(lane, name);
    }
    end(lane, names::id(names::intern(attribute, Value::Text(value))));
}

#[inline(never)]
fn begin_other(lane: &mut LaneState, name: u32) {
    // SAFETY: the thread's own block.
    unsafe { (*tls()).depth += 1 };
    let child = if name == 0 { 0 } else { child(lane, name) };
    if child == 0 {
        // The end that belongs to it must not close another.
        lane.unplaced += 1;
        return store().lost(Loss::NoScope);
    }
    // SAFETY: the lane's own record.
    unsafe { (*at(child)).entered += 1 };
    go(lane, child);
}

/// Siblings looked at before the index is asked.
const NEAR: usize = 4;

/// The child of the current path with this name, made if need be; 0 if there is no room.
fn child(lane: &mut LaneState, name: u32) -> u32 {
    // SAFETY: the lane's own records.
    unsafe {
        let parent = &mut *lane.scope;
        let mut next = parent.first;
        for _ in 0..NEAR {
            if next == 0 {
                break;
            }
            if (*at(next)).name == name {
                parent.last = next;
                return next;
            }
            next = (*at(next)).next;
        }
        if next != 0 {
            let known = lane.index_of_scopes.get([id(lane.scope), name]);
            if known != 0 {
                parent.last = known;
                return known;
            }
        }
        create(lane, name)
    }
}

fn create(lane: &mut LaneState, name: u32) -> u32 {
    let record = lane.scopes.take(Kind::Scopes, lane.index, size_of::<Scope>()) as *mut Scope;
    if record.is_null() {
        return 0;
    }
    let (child, around) = (id(record), id(lane.scope));
    if !lane.index_of_scopes.insert([around, name], child) {
        return 0;
    }
    // SAFETY: fresh zeroed room, and the lane's own record of the parent.
    unsafe {
        let parent = &mut *lane.scope;
        (*record).parent = around;
        (*record).name = name;
        (*record).lane = lane.index;
        (*record).next = parent.first;
        lane.scopes.commit(size_of::<Scope>());
        parent.first = child;
        parent.last = child;
        parent.children += 1;
    }
    child
}

/// Leaves the innermost scope, which should have this name; 0: whatever it is called.
#[inline(always)]
pub fn end(lane: &mut LaneState, name: u32) {
    // SAFETY: the lane's own record.
    let (parent, is) = unsafe { ((*lane.scope).parent, (*lane.scope).name) };
    if lane.unplaced == 0 && parent != 0 && (name == is || name == 0) {
        // SAFETY: the thread's own block.
        unsafe { (*tls()).depth -= 1 };
        return go(lane, parent);
    }
    end_other(lane, name);
}

/// An end out of turn: of a scope that found no place, of one that a fork's parent began, of one
/// further out, which closes those inside it, or of none that is open, which is ignored.
#[cold]
#[inline(never)]
fn end_other(lane: &mut LaneState, name: u32) {
    // SAFETY: the thread's own block.
    let depth = unsafe { &mut (*tls()).depth };
    if lane.unplaced > 0 {
        lane.unplaced -= 1;
        *depth = depth.saturating_sub(1);
        return;
    }
    // SAFETY: the lane's own record.
    if lane.inherited > 0 && unsafe { (*lane.scope).parent } == 0 {
        lane.inherited -= 1;
        *depth = depth.saturating_sub(1);
        return;
    }
    note_mismatch(lane, name);
    let (mut scope, mut closed) = (id(lane.scope), 0);
    // SAFETY: the lane's own records, up to its root.
    unsafe {
        while (*at(scope)).parent != 0 {
            let parent = (*at(scope)).parent;
            closed += 1;
            if (*at(scope)).name == name {
                *depth = depth.saturating_sub(closed);
                return go(lane, parent);
            }
            scope = parent;
        }
    }
}

/// Counts it, and keeps the first for the report.
fn note_mismatch(lane: &LaneState, name: u32) {
    let p = store();
    p.lost(Loss::ScopeMismatch);
    let Some(Name { kind, value, .. }) = (name != 0).then(|| {
        // SAFETY: an interned name.
        unsafe { *names::at(name) }
    }) else {
        return;
    };
    let said = if kind == 0 { value as u32 } else { 0 };
    // SAFETY: the header is mapped; the fields are only used so.
    unsafe {
        let first = AtomicU32::from_ptr(&raw mut (*lane.header).mismatch_end);
        if first.compare_exchange(0, said, AcqRel, Relaxed).is_ok() {
            (*lane.header).mismatch_open = id(lane.scope);
        }
    }
}

/// The thread's path as another thread can be given it; 0 outside of all scopes. Of this process
/// only: its number is in it, and a check against numbers that were never given out.
pub fn context(lane: &LaneState) -> u64 {
    let scope = id(lane.scope);
    if scope == lane.root_scope { 0 } else { sealed(scope) }
}

fn sealed(scope: u32) -> u64 {
    let pid = store().pid.load(Relaxed);
    let check = (scope ^ pid.rotate_left(16)).wrapping_mul(0x9e37_79b9);
    (check as u64) << 32 | scope as u64
}

/// The scope of a context, whichever lane's; none if it is not one of this process.
pub fn scope_of(context: u64) -> Option<u32> {
    let scope = context as u32;
    (scope != 0 && sealed(scope) == context).then_some(scope)
}

/// Makes a context the thread's path; outside of all scopes if it is none.
pub fn set_context(lane: &mut LaneState, context: u64) {
    let scope = match scope_of(context) {
        Some(scope) => translated(lane, scope),
        None => lane.root_scope,
    };
    (lane.unplaced, lane.inherited) = (0, 0);
    // SAFETY: the thread's own block.
    unsafe { (*tls()).depth = depth(scope) as u32 };
    go(lane, scope);
}

/// This lane's record for the path of any lane's: as much of it as there is room for.
pub fn translated(lane: &mut LaneState, scope: u32) -> u32 {
    // SAFETY: scopes stay mapped, and their names and parents never change.
    if unsafe { (*at(scope)).lane } == lane.index {
        return scope;
    }
    let remembered = lane.translations[scope as usize % TRANSLATIONS];
    if remembered[0] == scope {
        return remembered[1];
    }
    let before = lane.scope;
    lane.scope = at(lane.root_scope);
    let whole = descend(lane, scope);
    let own = id(lane.scope);
    lane.scope = before;
    if whole {
        lane.translations[scope as usize % TRANSLATIONS] = [scope, own];
    } else {
        store().lost(Loss::NoScope);
    }
    own
}

/// Paths of other lanes that a lane remembers its own for.
pub const TRANSLATIONS: usize = 64;

/// Goes from the root along the names of another lane's path. Its records lead upwards only, so
/// names are collected from the inner end, as many as fit, once for every so many of them.
fn descend(lane: &mut LaneState, scope: u32) -> bool {
    const AT_ONCE: usize = 64;
    let mut names = [0u32; AT_ONCE];
    let mut left = depth(scope);
    while left > 0 {
        let some = left.min(AT_ONCE);
        left -= some;
        let mut up = scope;
        // SAFETY: scopes stay mapped; there are as many steps up as the path is deep.
        unsafe {
            for _ in 0..left {
                up = (*at(up)).parent;
            }
            for name in names[..some].iter_mut().rev() {
                *name = (*at(up)).name;
                up = (*at(up)).parent;
            }
        }
        for &name in &names[..some] {
            let next = child(lane, name);
            if next == 0 {
                return false;
            }
            lane.scope = at(next);
        }
    }
    true
}

/// Scopes round each other, the root not counted.
pub fn depth(mut scope: u32) -> usize {
    let mut depth = 0;
    // SAFETY: scopes stay mapped, and parents lead to a root.
    unsafe {
        while (*at(scope)).parent != 0 {
            depth += 1;
            scope = (*at(scope)).parent;
        }
    }
    depth
}
