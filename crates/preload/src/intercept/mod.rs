//! Interception in place: an allocator whose functions the loader finds before ours, usually that
//! of an executable, is redirected to our hooks with a jump at the start of each function; likewise
//! an allocator behind ours whose functions the program also calls by other names (`mi_malloc`).
//!
//! Such an allocator is that of its process. The hooks work as usual; their real functions are
//! those whose starts were moved. If the allocator precedes ours, code that finds our functions
//! with `dlsym(RTLD_NEXT)`, possibly the allocator itself, expects those of the C library: ours
//! jump there, and the hooks are entered through their own moved starts.
//!
//! If a command attached, the C library's allocator is intercepted as well, and its function that
//! starts programs.

mod aliases;
pub mod deep;
mod drivers;
pub mod families;
mod inserted;
mod instance;
mod island;
mod kept;
pub mod notice;
mod openmp;
pub mod outcome;
mod patch;
mod pytorch;
mod reach;
mod search;
mod shapes;
mod spawn;
mod symbol_table;

use crate::attachment;
use crate::next_symbol::{self, find_behind, is_libc};
use crate::own_allocator::{self, Duty, NAMES, Place};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::NotIntercepted;
use heaptide_recorder::sys::loader::{LinkMap, look_up, look_up_as_imported, objects};
use heaptide_recorder::sys::options::Options;
use island::Island;
use outcome::Note;
use patch::{Function, Patch, Refusal, write_all};

const USABLE_SIZE: &[u8] = b"malloc_usable_size\0";

/// Whether the decision was made. Children inherit it, like the code.
static IS_DECIDED: AtomicBool = AtomicBool::new(false);

/// Intercepts the allocator that precedes ours, or that the program calls by other names, if there
/// is one, before the first event. Needs about 20 KiB of stack.
pub fn prepare() {
    if IS_DECIDED.swap(true, Relaxed) {
        return;
    }
    let before = next_symbol::object_before(b"malloc\0").map(|object| (object, Order::Before));
    let renamed = || aliases::called_object().map(|object| (object, Order::Behind));
    if let Some(program) = objects().next().filter(|_| attachment::is_inserted()) {
        inserted::intercept(program);
        inserted::connect(program);
    }
    if let Some((object, order)) = before.or_else(renamed) {
        if attachment::is_inserted() && look_up_in(object, USABLE_SIZE).is_none() {
            return; // musl, of which it is linked only if it is used: a family with own sizes
        }
        let (done, note) = intercept(object, order);
        if attachment::is_attached() && is_libc(object) {
            outcome::note_libc(done);
        } else if order == Order::Behind {
            aliases::note(done, note);
        } else {
            outcome::note_malloc(done, note);
        }
    }
    if attachment::is_attached() {
        spawn::intercept();
    }
}

/// Looks up a function of an allocator. The program refers to the C library's default versions.
fn look_up_in(object: &LinkMap, name: &[u8]) -> Option<(usize, usize)> {
    if is_libc(object) { look_up(object, name) } else { look_up_as_imported(object, name) }
}

/// Whether the loader finds the functions of an allocator before ours. If this library was loaded
/// late, nothing finds ours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Before,
    Behind,
}

/// Intercepts the allocator of an object, and returns its functions for the profile.
fn intercept(object: &'static LinkMap, order: Order) -> (Result<(), NotIntercepted>, Note) {
    let malloc = look_up_in(object, b"malloc\0").map_or(0, |(address, _)| address as u64);
    let mut note = Note::new(malloc);
    let done = intercept_all(object, order, &mut note);
    (done, note)
}

fn intercept_all(
    object: &'static LinkMap,
    order: Order,
    note: &mut Note,
) -> Result<(), NotIntercepted> {
    if Options::known().is_some_and(|options| !options.intercept) {
        return Err(NotIntercepted::TurnedOff);
    }
    if look_up_in(object, USABLE_SIZE).is_none() {
        return Err(NotIntercepted::NoUsableSize);
    }
    if !patch::may_change_code() {
        return Err(NotIntercepted::Threads);
    }
    let own = next_symbol::own_object().ok_or(NotIntercepted::Unmovable)?;
    let malloc = look_up_in(object, b"malloc\0").ok_or(NotIntercepted::Unmovable)?.0;
    let ours = look_up(own, b"malloc\0").ok_or(NotIntercepted::Unmovable)?.0;
    let near = |address: usize| Island::near(address as u64).ok_or(NotIntercepted::Refused);
    let mut plan = Plan { near: near(malloc)?, own: near(ours)?, entries: [None; NAMES.len()] };
    let done = plan.make(object, own, order).and_then(|()| plan.carry_out());
    if done.is_err() {
        // SAFETY: no jump to them was written.
        unsafe {
            plan.near.release();
            plan.own.release();
        }
        return done;
    }
    for (index, entry) in plan.entries.iter().enumerate() {
        if let Some(Entry { theirs: Some((function, patch)), .. }) = entry {
            let Function { address, size } = *function;
            let place = Place { call: patch.moved as usize, address: address as usize, size };
            own_allocator::note(index, place);
            note.add(NAMES[index].text());
        }
    }
    own_allocator::set_object(object);
    Ok(())
}

/// The plan for one function.
#[derive(Clone, Copy)]
struct Entry {
    /// The allocator's function, whose entry jumps to our hook; `None` if it does not exist, or is
    /// not intercepted.
    theirs: Option<(Function, Patch)>,
    /// Our own function, which jumps to the next one after it; `None` if there is none.
    ours: Option<Patch>,
}

/// The whole plan, before anything is changed.
struct Plan {
    /// Near the allocator.
    near: Island,
    /// Near this library.
    own: Island,
    /// One per name in [`NAMES`].
    entries: [Option<Entry>; NAMES.len()],
}

impl Plan {
    fn make(
        &mut self,
        object: &LinkMap,
        own: &LinkMap,
        order: Order,
    ) -> Result<(), NotIntercepted> {
        // Calls of ours reach the hooks by themselves, or there are none.
        let has_hooks_only = attachment::is_attached() || order == Order::Behind;
        for (index, name) in NAMES.iter().enumerate() {
            let theirs = look_up_in(object, name.symbol).map(function);
            let Some(hook) = look_up(own, name.symbol).map(function) else { continue };
            if theirs.is_none() && has_hooks_only {
                continue;
            }
            let next = if has_hooks_only { None } else { find_behind(name.symbol) };
            if theirs.is_none() && name.is_operator() && next.is_some_and(|next| next.runtime) {
                continue; // it calls malloc
            }
            let ours = match next {
                Some(next) => Some(
                    Patch::plan(hook, next.address as u64, &mut self.own)
                        .map_err(|_| NotIntercepted::Unmovable)?,
                ),
                None => None,
            };
            let entered = ours.map_or(hook.address, |patch| patch.moved);
            let theirs = match theirs {
                Some(theirs) => self.patch_of(theirs, entered, name.duty)?,
                None => None,
            };
            self.entries[index] = Some(Entry { theirs, ours });
        }
        Ok(())
    }

    /// Plans the jump from a function of the allocator to our hook. Two names of one function share
    /// a jump, to the hook of the first.
    fn patch_of(
        &mut self,
        function: Function,
        hook: u64,
        duty: Duty,
    ) -> Result<Option<(Function, Patch)>, NotIntercepted> {
        let planned = self.entries.iter().flatten().filter_map(|entry| entry.theirs);
        let same = planned.into_iter().find(|(other, _)| other.address == function.address);
        if same.is_some() {
            return Ok(same);
        }
        match (Patch::plan(function, hook, &mut self.near), duty) {
            (Ok(patch), _) => Ok(Some((function, patch))),
            (Err(Refusal::Unmovable), Duty::Allocates) => Ok(None),
            (Err(Refusal::Unmovable), Duty::Frees) => Err(NotIntercepted::Unmovable),
            (Err(Refusal::NoRoom), _) => Err(NotIntercepted::Refused),
        }
    }

    /// Writes all jumps, or none.
    fn carry_out(&self) -> Result<(), NotIntercepted> {
        let patches = self.entries.iter().flatten();
        let patches = patches.flat_map(|entry| {
            let theirs = entry.theirs.as_ref().map(|(_, patch)| patch);
            [entry.ours.as_ref(), theirs].into_iter().flatten()
        });
        let is_done = self.near.seal() && self.own.seal() && write_all(patches);
        if is_done { Ok(()) } else { Err(NotIntercepted::Refused) }
    }
}

/// Returns a function that was looked up.
fn function((address, size): (usize, usize)) -> Function {
    Function { address: address as u64, size }
}
