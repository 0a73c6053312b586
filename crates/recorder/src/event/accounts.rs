//! Accounts of resident memory: when one is due, and what it holds.
//!
//! An account is due at a sample of the timeline, where no thread of this one's is in the
//! allocator, and at the end. The next one waits [`WAIT`] times as long as an account
//! has taken, so that all of them together take less than half a percent of the run.

use crate::event::lane;
use crate::event::process::{Process, was_ever_threaded};
use crate::event::stats;
use crate::store::accounts::{Accounts, is_profile};
use crate::sys::front::{self, HeapState};
use crate::sys::kernel::{self, Errno, Path};
use crate::sys::locked::Locked;
use crate::sys::range::Range;
use crate::sys::smaps::{self, Resident};
use crate::sys::wiped::Wiped;
use crate::sys::{confined, memory, own_stack};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};
use heaptide_format::shared::Word;
use heaptide_format::{
    ACCOUNT_CONFINED, ACCOUNT_END, ACCOUNT_NO_PROC, ACCOUNT_PEAK, ACCOUNT_RANGES, ACCOUNT_SAMPLE,
    Account, AccountRange, Mode, RANGE_BLOCKS, RANGE_EXECUTE, RANGE_GUARDED, RANGE_READ,
    RANGE_RECORDER, RANGE_SHARED, RANGE_STACK, RANGE_WRITE, Sums,
};

/// Nanoseconds of the run before the first account but that of the end.
const FIRST_NS: u64 = 50_000_000;
/// After an account of each of the two causes, so many times its cost passes.
const WAIT: u64 = 400;
/// A new peak that is higher by less than this part has no account of its own.
const PEAK_PART: u64 = 64;
/// The allocator's own numbers are asked for at the end if they took at most this long, or this
/// part of the run.
const STATE_NS: u64 = 2_000_000;
const STATE_PART: u64 = 200;
/// Bytes of a mapping without rights below a stack, at most.
const GUARD_MAX: u64 = 256 << 10;

/// What is shared about accounts. Zero is: the first one is due after [`FIRST_NS`].
struct Shared {
    accounts: Locked<Accounts>,
    off: AtomicBool,
    /// That of the end was taken, or none can be.
    over: AtomicBool,
    next_sample_ns: AtomicU64,
    next_peak_ns: AtomicU64,
    /// Live bytes of the highest account.
    highest: AtomicU64,
    /// What asking the allocator took the last time.
    state_cost_ns: AtomicU64,
}

// SAFETY: zero is a valid value of every field.
static SHARED: Wiped<Shared> = unsafe { Wiped::new() };

/// Has a forked child find no accounts.
///
/// Errors: the kernel's.
pub fn wipe_in_children() -> Result<(), Errno> {
    SHARED.wipe_in_children()
}

/// There are to be no accounts.
pub fn turn_off() {
    SHARED.get().off.store(true, Relaxed);
}

/// Takes an account if one is due, where the calling thread is not in the allocator.
pub fn take_if_due(p: &Process, now: u64) {
    let shared = SHARED.get();
    let is_due = |next: &AtomicU64| now >= next.load(Relaxed).max(FIRST_NS);
    let (sample, peak) = (is_due(&shared.next_sample_ns), is_due(&shared.next_peak_ns));
    if !(sample || peak) || shared.off.load(Relaxed) || shared.over.load(Relaxed) {
        return;
    }
    let sums = stats::sums(p);
    let live = live(&sums);
    let highest = shared.highest.load(Relaxed);
    let is_peak = live + live / PEAK_PART >= p.header().peak_bytes.get()
        && live > highest + highest / PEAK_PART;
    if !(sample || peak && is_peak) {
        return;
    }
    let cause = if is_peak { ACCOUNT_PEAK } else { ACCOUNT_SAMPLE };
    take(p, cause, now, &sums, State::Asked);
}

/// Takes the last account.
pub fn take_at_end(p: &Process, now: u64) {
    let shared = SHARED.get();
    if shared.off.load(Relaxed) || shared.over.swap(true, Relaxed) {
        return;
    }
    let cost = shared.state_cost_ns.load(Relaxed);
    // A signal handler may have come while the thread was in the allocator, and end the process.
    let at_rest = lane::of_thread().is_some_and(|lane| lane.gate.is_open());
    let may_ask = at_rest && cost <= STATE_NS.max(now / STATE_PART);
    let state = if may_ask { State::Asked } else { State::Unknown };
    take(p, ACCOUNT_END, now, &stats::sums(p), state);
}

/// Whether the allocator is to be asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Asked,
    Unknown,
}

fn live(sums: &Sums) -> u64 {
    (sums.usable_bytes.wrapping_sub(sums.freed_bytes) as i64).max(0) as u64
}

fn take(p: &Process, cause: u32, now: u64, sums: &Sums, state: State) {
    let Some(mut accounts) = SHARED.get().accounts.try_acquire() else {
        return;
    };
    if confined::may_call() {
        take_allowed(p, cause, now, sums, state, &mut accounts);
    } else {
        note_confined(p, cause, now, &mut accounts);
    }
}

/// There will be no more accounts. On the program's stack: this may map no memory.
#[inline(never)]
fn note_confined(p: &Process, cause: u32, now: u64, accounts: &mut Accounts) {
    SHARED.get().over.store(true, Relaxed);
    let missing = ACCOUNT_CONFINED;
    accounts.write(p, &Account { time_ns: now, cause, missing, ..Account::default() }, &mut []);
}

#[inline(never)]
fn take_allowed(
    p: &Process,
    cause: u32,
    now: u64,
    sums: &Sums,
    state: State,
    accounts: &mut Accounts,
) {
    let shared = SHARED.get();
    let live_bytes = live(sums);
    let account = Account {
        time_ns: now,
        cause,
        live_bytes,
        peak_bytes: p.header().peak_bytes.get().max(live_bytes),
        requested_bytes: sums.requested_bytes,
        usable_bytes: sums.usable_bytes,
        ..Account::default()
    };
    let begin = cost_clock();
    // Signals wait meanwhile: a handler that allocates could need a lock of the allocator's that
    // this thread holds.
    own_stack::call(|| gather(p, with_state(p, account, state), begin, accounts));
    let cost = cost_clock().saturating_sub(begin);
    let is_sample_due = now >= shared.next_sample_ns.load(Relaxed).max(FIRST_NS);
    let waits: &[&AtomicU64] = match (cause == ACCOUNT_PEAK, is_sample_due) {
        (true, true) => &[&shared.next_sample_ns, &shared.next_peak_ns],
        (true, false) => &[&shared.next_peak_ns],
        (false, _) => &[&shared.next_sample_ns],
    };
    // One that counts as both leaves both half of their share.
    let next = now.saturating_add(cost.saturating_mul(WAIT / waits.len() as u64));
    waits.iter().for_each(|wait| wait.store(next, Relaxed));
    shared.highest.store(accounts.highest_live(), Relaxed);
}

/// What accounts cost is measured by: time of this thread, which others on a busy machine do not
/// add to.
fn cost_clock() -> u64 {
    kernel::clock_ns(kernel::CLOCK_THREAD_CPUTIME)
}

/// The account with the allocator's own numbers. A child of a process with several threads does not
/// ask: it may be of a raw clone, and locks be held by threads that it does not have.
fn with_state(p: &Process, account: Account, state: State) -> Account {
    let may_lack_threads = p.header().forked.get() != 0 && was_ever_threaded();
    if state == State::Unknown || may_lack_threads {
        return account;
    }
    let begin = cost_clock();
    let HeapState { arena, used, free, mapped } =
        front::platform().map(|platform| (platform.heap_state)()).unwrap_or_default();
    let cost = cost_clock().saturating_sub(begin);
    SHARED.get().state_cost_ns.store(cost, Relaxed);
    Account {
        arena_bytes: arena,
        arena_used_bytes: used,
        arena_free_bytes: free,
        mapped_block_bytes: mapped,
        ..account
    }
}

/// Reads what the kernel knows, on a stack of the recorder's own, and stores the account.
fn gather(p: &Process, mut account: Account, begin: u64, accounts: &mut Accounts) {
    let bytes = ACCOUNT_RANGES * size_of::<AccountRange>();
    let memory = kernel::map_private(bytes);
    if memory.is_null() {
        return;
    }
    account.statm_bytes = kernel::memory_size().map_or(0, |(_, resident)| resident);
    (account.page_table_bytes, account.most_resident_bytes) = status();
    let own = OwnMemory::of(memory as u64, bytes as u64);
    // SAFETY: fresh zeroed memory of that size, released below; zeros are a range.
    let room =
        unsafe { core::slice::from_raw_parts_mut(memory as *mut AccountRange, ACCOUNT_RANGES) };
    let mut count = 0;
    let mut before = None;
    let any = smaps::each(|mapping| {
        add(&mut account, mapping);
        if mapping.resident == 0 && !own.holds(p, mapping) {
            account.absent_bytes += mapping.range.high - mapping.range.low;
        }
        if mapping.resident > 0 {
            match room.get_mut(count) {
                Some(range) => {
                    *range = range_of(p, &own, mapping, before, accounts);
                    count += 1;
                }
                None => {
                    account.ranges_left_out += 1;
                    account.left_out_bytes += (mapping.resident as u64) << 10;
                }
            }
        }
        let rights = mapping.readable || mapping.writable || mapping.executable;
        before = Some((mapping.range, rights));
    });
    account.ranges = count as u32;
    if !any {
        account.missing = ACCOUNT_NO_PROC;
        SHARED.get().over.store(true, Relaxed);
    }
    account.cost_ns = cost_clock().saturating_sub(begin);
    accounts.write(p, &account, &mut room[..count]);
    // SAFETY: nothing refers to it any more.
    unsafe { kernel::unmap(memory, bytes) };
}

/// Adds a mapping to the sums over all.
fn add(account: &mut Account, mapping: &Resident) {
    account.resident_bytes += (mapping.resident as u64) << 10;
    account.swap_bytes += (mapping.swap as u64) << 10;
}

/// Bytes of page tables, and the highest resident bytes; 0 if they are not known.
fn status() -> (u64, u64) {
    let mut buffer = [0u8; 4096];
    let status = Path::new(b"/proc/self/status\0").map(|p| kernel::read_file(p, &mut buffer));
    let Some(Ok(status)) = status else {
        return (0, 0);
    };
    let value = |key: &[u8]| {
        let line = status.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(key));
        line.map_or(0, |value| smaps::kib(value.trim_ascii_start()) as u64 * 1024)
    };
    (value(b"VmPTE:"), value(b"VmHWM:"))
}

/// Where the recorder's memory is.
struct OwnMemory {
    arenas: [Range; 3],
    code: Range,
    /// What this account is gathered in, and the stack that does it.
    scratch: Range,
    stack: u64,
}

impl OwnMemory {
    fn of(scratch: u64, bytes: u64) -> OwnMemory {
        let marker = 0u8;
        OwnMemory {
            arenas: memory::ranges(),
            code: front::platform().map_or(Range::EMPTY, |platform| (platform.own_code)()),
            scratch: Range { low: scratch, high: scratch + bytes },
            stack: &raw const marker as u64,
        }
    }

    /// Whether a mapping is the recorder's. Pieces outside of its arenas are known by what it asks
    /// the kernel for all of its memory: no core files, no huge pages.
    fn holds(&self, p: &Process, mapping: &Resident) -> bool {
        let (start, range) = (mapping.range.low, mapping.range);
        let is_anonymous = mapping.name().is_empty();
        self.arenas.iter().any(|arena| arena.holds(start))
            || self.code.holds(start)
            || is_profile(p, start)
            || range.holds(self.scratch.low)
            || range.holds(self.stack)
            || is_anonymous && mapping.set_apart && !mapping.shared
    }
}

/// The record of a mapping. `before` is the mapping listed before it, and whether anything may be
/// done there.
fn range_of(
    p: &Process,
    own: &OwnMemory,
    mapping: &Resident,
    before: Option<(Range, bool)>,
    accounts: &mut Accounts,
) -> AccountRange {
    let Range { low, high } = mapping.range;
    let guarded = before.is_some_and(|(range, rights)| {
        !rights && range.high == low && range.high - range.low <= GUARD_MAX
    });
    let bit = |is: bool, flag: u32| if is { flag } else { 0 };
    let mut flags = bit(mapping.readable, RANGE_READ)
        | bit(mapping.writable, RANGE_WRITE)
        | bit(mapping.executable, RANGE_EXECUTE)
        | bit(mapping.shared, RANGE_SHARED)
        | bit(guarded, RANGE_GUARDED);
    let (is_anonymous, mut lane) = (mapping.name().is_empty(), 0);
    if own.holds(p, mapping) {
        flags |= RANGE_RECORDER;
    } else if let Some(index) = stack_of(mapping, guarded) {
        flags |= RANGE_STACK;
        lane = index;
    } else if is_anonymous && mapping.writable && has_blocks(p, mapping) {
        flags |= RANGE_BLOCKS;
    }
    AccountRange {
        start: low,
        length: high - low,
        resident_kib: mapping.resident,
        private_dirty_kib: mapping.private_dirty,
        swap_kib: mapping.swap,
        flags,
        name: accounts.name(mapping.name()).number(),
        lane,
        site: 0,
        account: 0,
    }
}

/// The lane of the thread whose stack this is. Of a thread of libc's, the control block lies above
/// its stack in the same mapping; of the first thread, it does not.
fn stack_of(mapping: &Resident, guarded: bool) -> Option<u32> {
    let is_first = mapping.name() == b"[stack]";
    if !guarded && !is_first {
        return None;
    }
    let is_its = |&&lane: &&*mut lane::LaneState| {
        // SAFETY: lanes stay mapped; of another thread's, words are read that it may be writing.
        let lane = unsafe { &*lane };
        let block = lane.thread_pointer.load(Relaxed);
        let in_use = lane.in_use.load(Relaxed) != 0;
        in_use && (mapping.range.holds(lane.stack.low) || !is_first && mapping.range.holds(block))
    };
    // SAFETY: as above.
    lane::all().iter().find(is_its).map(|&lane| unsafe { (*lane).index() })
}

/// Whether recorded blocks begin in a mapping, where that is known.
fn has_blocks(p: &Process, mapping: &Resident) -> bool {
    let has_shadow = p.header().mode.get() != Mode::Counters as u32 && p.shadow.is_made();
    has_shadow && p.shadow.has_blocks(mapping.range.low, mapping.range.high)
}
