//! Threads: how they enter the recorder, acquire lanes and release them.

use crate::event::inside::{Entry, Inside, here};
use crate::event::lane::{
    self, BUFFER, FLAG_MEASURED, FLAG_PAUSED, LaneState, MEMOS, RANGES, RECALL, Records, lanes,
    set_name,
};
use crate::event::process::{Process, State, process};
use crate::event::start::start;
use crate::event::trace_extents::Writer;
use crate::event::{sampling, stacks, stats, tallies, thread_measure, trace};
use crate::store::budgets::{FORMER_MAX, LANES_MAX, NAMED_MAX};
use crate::store::ids::{NodeId, ScopeId, SiteId};
use crate::store::place::Place;
use crate::store::shared::{Store, store};
use crate::store::{limit, scopes, sites};
use crate::sys::front::{self, Front};
use crate::sys::libc::Function;
use crate::sys::memory::{self, InChild};
use crate::sys::range::Range;
use crate::sys::tls::{Tls, thread_pointer, tls};
use crate::sys::{confined, kernel, maps, own_stack};
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, compiler_fence};
use heaptide_format::shared::{Lane, Word};
use heaptide_format::{FormerThread, Kind, Loss, Mode};
use heaptide_unwind::kept::{Extent, Frame, Kept, words_of};
use heaptide_unwind::memo::Memo;
use heaptide_unwind::stack::{Stack, Walked};

impl Inside {
    /// Enters the recorder from a front; none if the thread is in it already, or nothing is
    /// recorded.
    #[inline(always)]
    pub fn enter<F: Front>(entry: Entry) -> Option<Inside> {
        Inside::enter_or(entry, enter_first::<F>)
    }

    /// Does the same in a callback that the recorder registered.
    pub fn enter_again(entry: Entry) -> Option<Inside> {
        Inside::enter_or(entry, enter_slow)
    }

    #[inline(always)]
    fn enter_or(entry: Entry, slow: impl FnOnce(Entry) -> Option<Inside>) -> Option<Inside> {
        let Some(lane) = NonNull::new(tls().lane.get() as *mut LaneState) else {
            return slow(entry);
        };
        // SAFETY: lanes stay mapped, wiped or not.
        let gate = unsafe { &(*lane.as_ptr()).gate };
        if !gate.is_open() {
            return slow(entry);
        }
        gate.enter(entry.sp, entry.bp);
        Some(Inside { lane })
    }
}

#[cold]
#[inline(never)]
fn enter_first<F: Front>(entry: Entry) -> Option<Inside> {
    front::install::<F>();
    enter_slow(entry)
}

/// Enters a thread that has no lane, or is inside already.
fn enter_slow(entry: Entry) -> Option<Inside> {
    let t = tls();
    if t.busy.get() != 0 {
        return None;
    }
    let lane = match current_lane(t) {
        Some(lane) => lane,
        None => return take_lane(t, entry),
    };
    // SAFETY: the thread's own lane, which is only read.
    let (stack, gate) = unsafe { ((*lane.as_ptr()).stack, &(*lane.as_ptr()).gate) };
    // Either inside already, or that call was left by a jump, and its frame is no longer on this
    // stack. Outside if a signal handler has entered and left after such a jump.
    let is_on_stack =
        |inside_sp| entry.sp <= inside_sp || !stack.holds(entry.sp) || !stack.holds(inside_sp);
    if gate.entered_at().is_some_and(is_on_stack) {
        return None;
    }
    gate.enter(entry.sp, entry.bp);
    Some(Inside { lane })
}

/// Returns the thread's lane, unless it belongs to the process from which this one was forked.
fn current_lane(t: &Tls) -> Option<NonNull<LaneState>> {
    NonNull::new(t.lane.get() as *mut LaneState).filter(|&lane| !is_stale(lane))
}

/// Acquires a lane for the calling thread and enters it. Meanwhile `busy` keeps signal handlers of
/// the thread outside, so that it takes only one lane.
fn take_lane(t: &Tls, entry: Entry) -> Option<Inside> {
    t.busy.set(1);
    compiler_fence(SeqCst);
    // A handler may have taken one just before.
    let lane = current_lane(t).or_else(|| {
        if !t.lane.get().is_null() {
            forget_parent(t);
        }
        first_lane(entry.sp)
    });
    if let Some(lane) = lane {
        // SAFETY: the thread's own lane.
        unsafe { &(*lane.as_ptr()).gate }.enter(entry.sp, entry.bp);
        t.lane.set(lane.as_ptr() as *mut u8);
    }
    compiler_fence(SeqCst);
    t.busy.set(0);
    lane.map(|lane| Inside { lane })
}

/// Clears the state of a forked child: lane and scope path were the parent's. Pauses and
/// measurements continue.
fn forget_parent(t: &Tls) {
    t.lane.set(core::ptr::null_mut());
    t.released.set(0);
    t.retry_sp.set(0);
    t.carried.set(0);
    t.locks.set(0); // of the parent, if a signal handler forked
}

/// Acquires a lane for a thread without one, in a process that may not have started to record.
fn first_lane(sp: u64) -> Option<NonNull<LaneState>> {
    let p = process();
    if p.state() == State::Off {
        return None;
    }
    let started = p.state() == State::Active || own_stack::call(start) == Some(true);
    NonNull::new(if started { acquire(store(), sp) } else { core::ptr::null_mut() })
}

/// Returns whether a lane belongs to the process from which this one was forked: its memory was
/// wiped.
#[inline(always)]
fn is_stale(lane: NonNull<LaneState>) -> bool {
    // SAFETY: lanes stay mapped, wiped or not.
    unsafe { (*lane.as_ptr()).gate.is_stale() }
}

/// Whether each thread gets a lane of its own, as long as lanes are few.
static APART: AtomicBool = AtomicBool::new(false);
/// Number of lanes up to which threads get their own: each takes some memory for good.
const APART_MAX: usize = 2048;

/// Returns the lane that the calling thread released when it began to exit, if threads keep their
/// lanes and it has no other.
pub fn former_lane() -> Option<&'static LaneState> {
    let t = tls();
    let is_late = t.released.get() > 0 && t.lane.get().is_null();
    if !is_late || !APART.load(Relaxed) || !confined::may_call() {
        return None;
    }
    let tid = kernel::gettid();
    // SAFETY: lanes stay mapped; both fields are atomic.
    let mut lanes = lane::all().iter().map(|&lane| unsafe { &*lane });
    lanes.find(|lane| lane.in_use.load(Acquire) == 0 && lane.tid.load(Relaxed) == tid)
}

/// Gives each thread that begins from now on a lane of its own.
pub fn keep_apart() {
    APART.store(true, Relaxed);
}

/// Acquires a lane for the calling thread; null if there is none.
fn acquire(p: &Store, sp: u64) -> *mut LaneState {
    let lane = {
        let Some(mut records) = lanes().records.acquire_patiently() else {
            p.lost(Loss::NoLane);
            return core::ptr::null_mut();
        };
        let name = name_for(p, kernel::thread_name());
        let apart = APART.load(Relaxed) && lanes().count.load(Relaxed) < APART_MAX;
        let lane = match free_lane(p, &name).filter(|_| !apart) {
            Some(lane) => lane,
            None => create(process(), &mut records, &name),
        };
        if lane.is_null() {
            p.lost(Loss::NoLane);
            return lane;
        }
        // SAFETY: an unused lane, owned by this thread under the lock.
        unsafe { occupy(process(), &mut records, lane, sp) };
        lane
    };
    watch_exit(lane);
    lane
}

/// The shared name.
const OTHERS: &[u8; 16] = b"[other threads]\0";

/// Returns the name of the lane for a thread with this name. The limit is for programs that give
/// each thread a name of its own.
fn name_for(p: &Store, name: [u8; 16]) -> [u8; 16] {
    let is_full = p.header().profile_full_ns.get() != 0;
    let are_many = is_full || lanes().count.load(Relaxed) >= NAMED_MAX;
    if are_many && lane::named(&name).next().is_none() { *OTHERS } else { name }
}

/// Returns an unused lane with this name; a lane counts as unused if a thread that took it while
/// exiting is gone.
fn free_lane(p: &Store, name: &[u8; 16]) -> Option<*mut LaneState> {
    let unused = |lane: &*mut LaneState| {
        // SAFETY: lanes stay mapped; `in_use` is atomic.
        unsafe { (**lane).in_use.load(Acquire) == 0 }
    };
    if let Some(lane) = lane::named(name).find(unused) {
        return Some(lane);
    }
    let pid = p.pid.load(Relaxed);
    let abandoned = |lane: &*mut LaneState| {
        // SAFETY: as above; `late` was set before `in_use`.
        let state = unsafe { &**lane };
        state.late && confined::may_call() && kernel::thread_is_gone(pid, state.tid.load(Relaxed))
    };
    let lane = lane::named(name).find(abandoned)?;
    lanes().in_use.fetch_sub(1, Relaxed);
    Some(lane)
}

/// Size of a lane's own stack, on which unwind tables are evaluated.
const OWN_STACK: usize = 16 << 10;

/// Offsets in a lane's memory, in bytes: of the kept stack's frames, words and slots, of scratch
/// frames, recall table, memos, buffer, own stack and trace. The state is at the beginning.
struct Parts {
    frames: usize,
    words: usize,
    slots: usize,
    scratch: usize,
    recall: usize,
    memos: usize,
    buffer: usize,
    own_stack: usize,
    trace: usize,
    all: usize,
}

impl Parts {
    fn of(depth: usize) -> Parts {
        let frames = size_of::<LaneState>().next_multiple_of(64);
        let words = (frames + depth * size_of::<Frame>()).next_multiple_of(64);
        let slots = (words + words_of(depth) * size_of::<u64>()).next_multiple_of(64);
        let scratch = (slots + words_of(depth) * size_of::<u32>()).next_multiple_of(64);
        let recall = (scratch + depth * size_of::<Walked>()).next_multiple_of(64);
        let memos = recall + RECALL * 16;
        let buffer = (memos + MEMOS * size_of::<Memo>()).next_multiple_of(64);
        let own_stack = (buffer + BUFFER).next_multiple_of(64);
        let trace = own_stack + OWN_STACK;
        let all = (trace + size_of::<Writer>()).next_multiple_of(4096);
        Parts { frames, words, slots, scratch, recall, memos, buffer, own_stack, trace, all }
    }
}

fn create(p: &Process, records: &mut Records, name: &[u8; 16]) -> *mut LaneState {
    let index = lanes().count.load(Relaxed);
    if index >= LANES_MAX {
        return core::ptr::null_mut();
    }
    let depth = stacks::max_depth(store());
    let parts = Parts::of(depth);
    let memory = memory::take(parts.all, InChild::Zeros);
    if memory.is_null() {
        return core::ptr::null_mut();
    }
    let Some(record) = records.lanes.record::<Lane>(Kind::Lanes, index as u32) else {
        // SAFETY: fresh memory, to which nothing else refers.
        unsafe { memory::release(memory, parts.all, InChild::Zeros) };
        return core::ptr::null_mut();
    };
    record.index.set(index as u32);
    set_name(record, name);
    // SAFETY: fresh memory, divided according to the offsets. A reference to the state exists only
    // after all fields that may not be zero are set.
    unsafe {
        let state = memory as *mut LaneState;
        (&raw mut (*state).header).write(store().header());
        (&raw mut (*state).record).write(record);
        (&raw mut (*state).place.scope).write(ScopeId::NONE.record());
        (&raw mut (*state).place.here_record).write(SiteId::NONE.record());
        (*state).place.lane = index as u32;
        let words = words_of(depth);
        let kept = Kept {
            frames: slice::from_raw_parts_mut(memory.add(parts.frames) as *mut Frame, depth),
            slots: slice::from_raw_parts_mut(memory.add(parts.slots) as *mut u32, words),
            words: slice::from_raw_parts_mut(memory.add(parts.words) as *mut u64, words),
            extent: Extent::default(),
        };
        let scratch = slice::from_raw_parts_mut(memory.add(parts.scratch) as *mut Walked, depth);
        let reuse = !p.no_reuse.load(Relaxed);
        (&raw mut (*state).unwinder).write(Stack { kept, scratch, stepped: 0, reuse });
        (*state).recall = memory.add(parts.recall) as *mut [u64; 2];
        (*state).memos = memory.add(parts.memos) as *mut Memo;
        (*state).others.buffer = memory.add(parts.buffer);
        (*state).own_stack = memory.add(parts.own_stack + OWN_STACK);
        (*state).trace_memory = memory.add(parts.trace) as *mut Writer;
        if store().header().mode.get() != Mode::Counters as u32 {
            let place = &mut (*state).place;
            limit::beyond(store(), || {
                place.root_scope = scopes::create_root(&mut records.roots, index as u32);
                create_first_sites(store(), place);
            });
            if place.base_site.is_none() || place.root_scope.is_none() {
                memory::release(memory, parts.all, InChild::Zeros);
                return core::ptr::null_mut();
            }
            record.base_site.set(place.base_site.number());
        }
        records.lanes.commit_record(record);
        (*lanes().table.load(Relaxed).add(index)).store(state, Relaxed);
        lanes().count.store(index + 1, Release);
        state
    }
}

/// Creates the sites of a lane that have no stack of the program.
fn create_first_sites(p: &Store, place: &mut Place) {
    place.base_site = sites::create(place, 0);
    place.unstored_site = match p.unstored.load(Relaxed) {
        0 => place.base_site,
        node => sites::of_stack(place, NodeId::new(node)),
    };
    if place.unstored_site.is_none() {
        place.unstored_site = place.base_site;
    }
}

/// Prepares a lane for the calling thread.
///
/// # Safety
/// `lane` is unused and the lock of lanes is held.
unsafe fn occupy(p: &Process, records: &mut Records, lane: *mut LaneState, sp: u64) {
    let t = tls();
    // SAFETY: the caller promises that no other thread uses the lane.
    let state = unsafe { &mut *lane };
    {
        let in_use = lanes().in_use.fetch_add(1, AcqRel) + 1;
        if in_use > 1 {
            p.threaded.store(true, Release);
        }
        store().header().lanes_at_once.fetch_max(in_use, Relaxed);
        state.live.begin(p, store().header(), state.allocated());
        state.last_block = core::ptr::null_mut();
        state.unwinder.kept.extent.forget();
        state.credit = 256;
        state.before = stats::of_lane(state);
        tallies::begin_if_wanted(state);
        resume_scope(state);
        let paused = if t.paused.get() > 0 { FLAG_PAUSED } else { 0 };
        let measured = if thread_measure::is_measuring() { FLAG_MEASURED } else { 0 };
        state.flags = paused | measured;
        state.generation = store().generation.load(Relaxed);
        state.others.ranges = [Range::EMPTY; RANGES];
        state.stack = Range::of_thread(sp, thread_pointer());
        if state.stack == Range::EMPTY {
            let mapping = maps::mapping_of(sp, state.buffer());
            state.stack = mapping.unwrap_or(Range::EMPTY);
        }
        state.late = t.released.get() > 0;
        let tid = kernel::gettid();
        state.tid.store(tid, Relaxed);
        state.thread_pointer.store(thread_pointer(), Relaxed);
        state.renamed.store(0, Relaxed);
        state.in_use.store(1, Release);
        note_former(records, state.record, tid);
        state.record.tid.set(tid);
        state.record.threads.add(1);
        state.leaves.clear();
        state.size_leaves.clear();
        state.mode = store().header().mode.get();
        sampling::begin(state);
        trace::begin(state, tid);
        state.choose_path();
    }
}

/// Stores the id of the thread that had a lane before this one.
fn note_former(records: &mut Records, lane: &Lane, tid: u32) {
    let (former, lane) = (lane.tid.get(), lane.index.get());
    if former == 0 || former == tid || records.former as usize >= FORMER_MAX {
        return;
    }
    let record = FormerThread { lane, tid: former };
    if records.former_threads.write(Kind::FormerThreads, 0, record).is_some() {
        records.former += 1;
    }
}

/// Sets the scope of a thread that takes a lane: the one in its former lane, or none.
fn resume_scope(state: &mut LaneState) {
    tallies::settle(state);
    let place = &mut state.place;
    (place.unplaced, place.inherited) = (0, 0);
    place.last_node = sites::NO_NODE;
    if place.root_scope.is_none() {
        return;
    }
    scopes::go(place, place.root_scope);
    match tls().carried.take() {
        // Ends of scopes that began before the fork close nothing here.
        0 => place.inherited = tls().depth.get(),
        scope => {
            let own = scopes::translated(place, ScopeId::new(scope));
            scopes::go(place, own);
        }
    }
    state.in_scope();
}

impl LaneState {
    /// Releases the lane: its thread exits or takes another one.
    fn release(&mut self) {
        let p = store();
        self.publish_live();
        let now = p.now();
        self.publish_work();
        p.note_time(now);
        lanes().in_use.fetch_sub(1, AcqRel);
        self.in_use.store(0, Release);
    }
}

/// Looks up the calling thread's stack while that is still possible.
pub fn learn_stack<F: Front>() {
    let here = here();
    if let Some(mut inside) = Inside::enter::<F>(here) {
        stacks::find_stack(inside.lane(), store(), here.sp);
    }
}

static KEY_CREATE: Function = Function::new(b"pthread_key_create\0");
static SET_SPECIFIC: Function = Function::new(b"pthread_setspecific\0");
/// The key whose destructor notices thread exits, plus one. Forked children have it, too.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Creates the key together with the first lane: the first 32 keys of a program need no memory in a
/// thread.
fn create_key() {
    if KEY.load(Relaxed) != 0 || KEY_CREATE.get() == 0 {
        return;
    }
    let mut key = 0u32;
    // SAFETY: libc's pthread_key_create.
    unsafe {
        let create: extern "C" fn(*mut u32, extern "C" fn(*mut u8)) -> i32 =
            core::mem::transmute(KEY_CREATE.get());
        if create(&mut key, thread_exits) == 0 {
            KEY.store(key + 1, Relaxed);
        }
    }
}

fn watch_exit(lane: *mut LaneState) {
    create_key();
    let key = KEY.load(Relaxed);
    if key == 0 || SET_SPECIFIC.get() == 0 {
        return;
    }
    // SAFETY: libc's pthread_setspecific, with a key that was created here; a value other than null
    // makes the destructor run.
    unsafe {
        let set: extern "C" fn(u32, *mut LaneState) -> i32 =
            core::mem::transmute(SET_SPECIFIC.get());
        set(key - 1, lane);
    }
}

/// Returns whether the C library can tell the recorder that a thread exits.
pub fn can_have_destructor() -> bool {
    KEY_CREATE.get() != 0 && SET_SPECIFIC.get() != 0
}

/// The calling thread exits, and no code of the program runs in it any more: what it still frees is
/// not recorded.
pub fn ends() {
    thread_exits(core::ptr::null_mut());
    tls().busy.set(1);
}

extern "C" fn thread_exits(_: *mut u8) {
    give_back();
    forget_thread();
}

/// Returns the calling thread's lane, unless the thread is inside the recorder, or has none.
fn own_lane() -> Option<NonNull<LaneState>> {
    // SAFETY: lanes stay mapped, wiped or not.
    NonNull::new(tls().lane.get() as *mut LaneState)
        .filter(|lane| unsafe { (*lane.as_ptr()).gate.is_open() })
}

/// Releases the thread's lane, unless the thread is inside the recorder.
fn give_back() {
    if let Some(mut lane) = own_lane() {
        let t = tls();
        t.lane.set(core::ptr::null_mut());
        t.released.set(t.released.get() + 1);
        // SAFETY: the thread's lane, to which nothing else refers while it is not inside.
        unsafe { lane.as_mut() }.release();
    }
}

/// Clears the state of a thread that exits for good.
fn forget_thread() {
    let t = tls();
    t.depth.set(0);
    t.carried.set(0);
    t.paused.set(0);
    thread_measure::give_back();
    if let Some(platform) = front::platform() {
        (platform.thread_exits)();
    }
}

/// Handles a new name of the calling thread: it continues in another lane, or renames its lane if
/// that is unused.
pub fn renamed_self() {
    let Some(lane) = own_lane() else {
        return;
    };
    // SAFETY: the thread's lane, to which nothing else refers while it is not inside.
    let lane = unsafe { lane.as_ref() };
    let (record, place, name) = (lane.record, &lane.place, kernel::thread_name());
    let frees: u64 = record.freed_classes.iter().map(Word::get).sum();
    if record.usable_bytes.get() == 0 && frees == 0 && record.threads.get() == 1 {
        return set_name(record, &name);
    }
    if record.name.iter().zip(name).all(|(a, b)| a.get() == b) {
        return;
    }
    let t = tls();
    let scope = ScopeId::of(place.scope);
    if !place.root_scope.is_none() && scope != place.root_scope {
        t.carried.set(scope.number());
    }
    give_back();
    t.released.set(t.released.get() - 1);
}

/// Handles a new name of another thread, with this pthread_t: it renames its lane at its next
/// sample.
pub fn renamed_other(pthread: u64) {
    for &lane in lane::all() {
        // SAFETY: lanes stay mapped; both fields are atomic.
        unsafe {
            if (*lane).in_use.load(Acquire) != 0 && (*lane).thread_pointer.load(Relaxed) == pthread
            {
                (*lane).renamed.store(1, Relaxed);
            }
        }
    }
}
