//! Accounts of resident memory: when they are due, and what they contain.
//!
//! An account is due at a sample of the timeline, when a thread that is in no other event maps
//! memory, and at the end. Nothing here waits for a lock that the program or its C library can
//! hold. The next one waits [`WAIT`] times as long as an account took, so that all accounts
//! together take less than half a percent of the run. While memory grows fast, they may take one
//! part in [`GROWN_PART`].
//!
//! Programs write to memory after they have got it, without an event. So another account is due
//! before a large block or mapping is freed, if much more of it is resident by then.

use crate::event::account_ranges::{Ranges, Scratch};
use crate::event::process::{Process, process};
use crate::event::stats;
use crate::store::accounts::{Accounts, is_about};
use crate::store::shared::{Store, store};
use crate::sys::front::{self, HeapState};
use crate::sys::kernel::{self, MemorySize, Path};
use crate::sys::locked::{Locked, holds_any};
use crate::sys::smaps;
use crate::sys::wiped::Wiped;
use crate::sys::{confined, own_stack};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};
use heaptide_format::shared::Word;
use heaptide_format::{
    ACCOUNT_CONFINED, ACCOUNT_END, ACCOUNT_NO_PROC, ACCOUNT_PEAK, ACCOUNT_SAMPLE, Account, Sums,
};

/// Nanoseconds of the run before the first account, unless the run ends earlier.
const FIRST_NS: u64 = 50_000_000;
/// Time between accounts for each of the two causes, as a multiple of what an account cost.
const WAIT: u64 = 400;
/// A new peak gets an account only if it is higher by at least one part in this.
const PEAK_PART: u64 = 64;
/// If memory has grown by half since the highest account, or has become resident since, another one
/// is due at once, as long as all accounts so far have taken less than one part in this of the run.
const GROWN_PART: u64 = 50;
/// When memory falls, a shorter run may take as much as a run of this many nanoseconds.
const SHORT_NS: u64 = 750_000_000;
/// By how much private memory must have grown since an account to count as resident since: one part
/// in the first number, and the bytes of the second. Programs that grow fast must keep a share of
/// accounts for when they are large.
const FILLED_GROWING: (u64, u64) = (2, 1 << 20);
const FILLED_FALLING: (u64, u64) = (8, 1 << 20);
/// The same once accounts have taken a quarter of their share.
const FILLED_SPENT: (u64, u64) = (4, 6 << 20);
/// Bytes to be freed or unmapped at once before which resident bytes are queried: programs with
/// heaps of their own free them in pieces.
const FALL_BYTES: u64 = 128 << 10;
/// Time between queries of resident bytes, as a multiple of what one took: a program may free large
/// blocks often, and without system calls.
const LOOK_WAIT: u64 = 100;
/// At the end, the allocator's own numbers are queried if that took at most this long the last
/// time, or at most this part of the run.
const STATE_NS: u64 = 2_000_000;
const STATE_PART: u64 = 200;

/// The state of accounts that threads share. All zeros: the first account is due after
/// [`FIRST_NS`].
struct Shared {
    accounts: Locked<Accounts>,
    off: AtomicBool,
    /// Set if the account at the end was taken, or none can be taken any more.
    over: AtomicBool,
    next_sample_ns: AtomicU64,
    next_peak_ns: AtomicU64,
    /// Live and mapped bytes of the highest account.
    highest: AtomicU64,
    /// The private resident bytes of the fullest account that is about as high.
    fullest: AtomicU64,
    /// Live and mapped bytes when an account could last be due.
    held: AtomicU64,
    /// Time that accounts have taken so far.
    spent_ns: AtomicU64,
    next_look_ns: AtomicU64,
    /// Time that the last query of the allocator took.
    state_cost_ns: AtomicU64,
}

// SAFETY: all zeros is a valid value.
#[unsafe(link_section = ".bss.wiped")]
static SHARED: Wiped<Shared> = unsafe { Wiped::new() };

/// Makes forked children start without accounts.
pub fn wipe_in_children() {
    SHARED.wipe_in_children();
}

/// Disables accounts.
pub fn turn_off() {
    SHARED.get().off.store(true, Relaxed);
}

/// Returns whether the user or a command has disabled accounts.
fn is_off(p: &Store) -> bool {
    SHARED.get().off.load(Relaxed) || p.header().accounts_off.get() != 0
}

/// Takes an account if one is due.
pub fn take_if_due(now: u64) {
    take_if(store(), now, false);
}

/// Takes an account if one is due. `falls`: the program is about to free memory.
fn take_if(p: &Store, now: u64, falls: bool) {
    let shared = SHARED.get();
    let is_due = |next: &AtomicU64| now >= next.load(Relaxed).max(FIRST_NS);
    let (sample, peak) = (is_due(&shared.next_sample_ns), is_due(&shared.next_peak_ns));
    let spent = shared.spent_ns.load(Relaxed);
    let held = held(p);
    let falls = shared.held.swap(held, Relaxed) > held || falls;
    let is_within = |ns| now >= FIRST_NS && spent.saturating_mul(GROWN_PART) < ns;
    let is_early = is_within(now);
    let is_over = is_off(p) || shared.over.load(Relaxed);
    // Skips the sums if even the peak of the heap would not make a new high.
    let most = p.header().peak_bytes.get() + p.header().mapped_bytes.get();
    let may_be_high = is_clearly_above(most, shared.highest.load(Relaxed));
    let may_look = is_due(&shared.next_look_ns);
    let may_be_filled = (is_early || falls && is_within(SHORT_NS)) && may_look && is_most(held);
    if !(sample || may_be_high && (peak || is_early) || may_be_filled) || is_over {
        return;
    }
    if confined::may_call() {
        let growth = match falls {
            false => FILLED_GROWING,
            true if is_within(now / 4) => FILLED_FALLING,
            true => FILLED_SPENT,
        };
        let is_filled = may_be_filled && is_filled(now, growth);
        take_if_high(p, now, Due { sample, peak, is_early, is_filled });
    } else {
        note_confined(ACCOUNT_SAMPLE, now);
    }
}

/// Takes an account if one is due before the program frees or unmaps `bytes` of its memory, which
/// are still counted and resident.
#[inline(always)]
pub fn take_before_fall(bytes: u64) {
    if bytes >= FALL_BYTES {
        take_if_filled();
    }
}

#[cold]
#[inline(never)]
fn take_if_filled() {
    let p = store();
    if is_most(held(p)) {
        take_if(p, p.now(), true);
    }
}

/// Returns the live and mapped bytes, as published.
fn held(p: &Store) -> u64 {
    p.header().published_live.get().max(0) as u64 + p.header().mapped_bytes.get()
}

/// Returns whether this is about as much as the process held at the highest account, or more.
fn is_most(held: u64) -> bool {
    is_about(held, SHARED.get().highest.load(Relaxed))
}

/// Returns the resident bytes that no file has: of the program's code, of files that it maps, and
/// of the profile, a program can have more than of its own data.
fn private(size: Option<MemorySize>) -> u64 {
    size.map_or(0, |size| size.resident.saturating_sub(size.shared))
}

/// Returns whether more private memory is resident than at the fullest account, by one part in
/// `part` and by `least` bytes.
fn is_filled(now: u64, (part, least): (u64, u64)) -> bool {
    let begin = cost_clock();
    let fullest = SHARED.get().fullest.load(Relaxed);
    let private = private(kernel::memory_size());
    let cost = cost_clock().saturating_sub(begin);
    let next = now.saturating_add(cost.saturating_mul(LOOK_WAIT));
    SHARED.get().next_look_ns.store(next, Relaxed);
    private > fullest + (fullest / part).max(least)
}

/// The causes for which an account is due.
#[derive(Clone, Copy)]
struct Due {
    sample: bool,
    peak: bool,
    is_early: bool,
    is_filled: bool,
}

/// Takes an account if a due cause applies.
#[inline(never)]
fn take_if_high(p: &Store, now: u64, due: Due) {
    let Due { sample, peak, is_early, is_filled } = due;
    let sums = stats::sums(process());
    let (live, highest) = (live(&sums), SHARED.get().highest.load(Relaxed));
    let is_peak = is_high(p, live, highest);
    let has_grown = live + p.header().mapped_bytes.get() > highest + highest / 2;
    if !(sample || is_peak && (peak || is_early && has_grown) || is_filled) {
        return;
    }
    let cause = if is_peak || is_filled { ACCOUNT_PEAK } else { ACCOUNT_SAMPLE };
    take(&Request { cause, now, sums: &sums, has_state: true, has_sites: !holds_any() });
}

/// Returns whether live plus mapped bytes are clearly above those of the highest account, and live
/// or mapped bytes are near their peak.
fn is_high(p: &Store, live: u64, highest: u64) -> bool {
    let header = p.header();
    let mapped = header.mapped_bytes.get();
    let is_near = |bytes: u64, peak: u64| bytes > 0 && bytes + bytes / PEAK_PART >= peak;
    is_clearly_above(live + mapped, highest)
        && (is_near(live, header.peak_bytes.get())
            || is_near(mapped, header.mapped_peak_bytes.get()))
}

fn is_clearly_above(bytes: u64, highest: u64) -> bool {
    bytes > highest + highest / PEAK_PART
}

/// Takes the last account.
pub fn take_at_end(p: &Process, now: u64) {
    let shared = SHARED.get();
    if is_off(store()) || shared.over.swap(true, Relaxed) {
        return;
    }
    if !confined::may_call() {
        return note_confined(ACCOUNT_END, now);
    }
    let cost = shared.state_cost_ns.load(Relaxed);
    let has_state = cost <= STATE_NS.max(now / STATE_PART);
    let (cause, sums, has_sites) = (ACCOUNT_END, &stats::sums(p), !holds_any());
    take(&Request { cause, now, sums, has_state, has_sites });
}

/// A request for an account.
struct Request<'a> {
    cause: u32,
    now: u64,
    sums: &'a Sums,
    /// Set if the allocator's own numbers are part of it.
    has_state: bool,
    /// Set if recorded mappings may be looked up: the thread holds no lock of the recorder, and a
    /// signal handler did not interrupt one that does.
    has_sites: bool,
}

fn live(sums: &Sums) -> u64 {
    (sums.usable_bytes.wrapping_sub(sums.freed_bytes) as i64).max(0) as u64
}

/// Stores that there will be no more accounts. Runs on the program's stack, since it may map no
/// memory.
#[inline(never)]
fn note_confined(cause: u32, now: u64) {
    SHARED.get().over.store(true, Relaxed);
    if let Some(mut accounts) = SHARED.get().accounts.try_acquire() {
        let missing = ACCOUNT_CONFINED;
        let account = Account { time_ns: now, cause, missing, ..Account::default() };
        accounts.write(store(), &account, 0, &mut []);
    }
}

#[inline(never)]
fn take(request: &Request) {
    let &Request { cause, now, .. } = request;
    let shared = SHARED.get();
    let begin = cost_clock();
    // Signals are blocked meanwhile: a handler could need the arena that this thread reads.
    let most = own_stack::call(|| gather(request, begin)).flatten();
    let cost = cost_clock().saturating_sub(begin);
    shared.spent_ns.fetch_add(cost, Relaxed);
    let is_sample_due = now >= shared.next_sample_ns.load(Relaxed).max(FIRST_NS);
    let waits: &[&AtomicU64] = match (cause == ACCOUNT_PEAK, is_sample_due) {
        (true, true) => &[&shared.next_sample_ns, &shared.next_peak_ns],
        (true, false) => &[&shared.next_peak_ns],
        (false, _) => &[&shared.next_sample_ns],
    };
    // An account that counts for both causes uses half of the share of each.
    let next = now.saturating_add(cost.saturating_mul(WAIT / waits.len() as u64));
    waits.iter().for_each(|wait| wait.store(next, Relaxed));
    if let Some((highest, fullest)) = most {
        shared.highest.store(highest, Relaxed);
        shared.fullest.store(fullest, Relaxed);
    }
}

/// Returns an account with the recorder's own counters.
fn counted(&Request { cause, now, sums, .. }: &Request) -> Account {
    let live_bytes = live(sums);
    Account {
        time_ns: now,
        cause,
        live_bytes,
        peak_bytes: store().header().peak_bytes.get().max(live_bytes),
        mapped_bytes: store().header().mapped_bytes.get(),
        requested_bytes: sums.requested_bytes,
        usable_bytes: sums.usable_bytes,
        ..Account::default()
    }
}

/// Returns the CPU time of this thread, which measures the cost of accounts: other threads on a
/// busy machine do not add to it.
fn cost_clock() -> u64 {
    kernel::clock_ns(kernel::CLOCK_THREAD_CPUTIME)
}

/// Adds the allocator's own numbers to an account.
fn with_state(account: Account) -> Account {
    let begin = cost_clock();
    let HeapState { source, arena, used, free, mapped } =
        front::platform().map(|platform| (platform.heap_state)()).unwrap_or_default();
    let cost = cost_clock().saturating_sub(begin);
    SHARED.get().state_cost_ns.store(cost, Relaxed);
    Account {
        source: source as u32,
        arena_bytes: arena,
        arena_used_bytes: used,
        arena_free_bytes: free,
        mapped_block_bytes: mapped,
        ..account
    }
}

/// Reads what the kernel knows, on a stack of the recorder's own, and stores the account. Returns
/// the live and mapped bytes of the highest account, and the private resident bytes of the fullest
/// one that is about as high; none if there is no room, or if another thread takes an account.
fn gather(request: &Request, begin: u64) -> Option<(u64, u64)> {
    let mut account = counted(request);
    (account.page_table_bytes, account.most_resident_bytes) = status();
    if request.has_state {
        account = with_state(account);
    }
    let mut accounts = SHARED.get().accounts.try_acquire()?;
    let mut scratch = Scratch::map()?;
    let size = kernel::memory_size();
    account.statm_bytes = size.as_ref().map_or(0, |size| size.resident);
    let private_bytes = private(size);
    let mut ranges = Ranges::new(&mut accounts, &mut scratch, request.has_sites);
    if !smaps::each(|mapping| ranges.add(&mut account, mapping)) {
        account.missing = ACCOUNT_NO_PROC;
        SHARED.get().over.store(true, Relaxed);
    }
    let (accounts, ranges) = ranges.finish();
    account.ranges = ranges.len() as u32;
    account.cost_ns = cost_clock().saturating_sub(begin);
    accounts.write(store(), &account, private_bytes, ranges);
    Some((accounts.highest_bytes(), accounts.fullest_bytes()))
}

/// Returns the bytes of page tables and the highest resident bytes; 0 if they are not known.
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
