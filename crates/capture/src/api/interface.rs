//! What programs call: the table of functions that `heaptide.h` finds, and the same by name.
//!
//! Every one is a few lines: enter the recorder, do it, leave. A thread that is inside already, in
//! a monitor or a signal handler, gets nothing done.

use crate::api::marks::{self, Patience};
use crate::api::monitors::{self, Monitor};
use crate::api::regions::{self, Block, Label};
use crate::api::thread_measure::{self, Measurement};
use crate::api::{control, windows};
use crate::event::lane::{Inside, LaneState};
use crate::event::process::{State, process};
use crate::event::record::{self, Entry};
use crate::event::stacks::here;
use crate::event::stats::{self, Figures, Histograms};
use crate::event::tls::tls;
use crate::store::names::{self, Value};
use crate::store::scopes;
use crate::sys::options::Options;
use core::arch::naked_asm;
use heaptide_format::{MarkKind, Mode};

/// Functions in the order of `struct heaptide_interface`; each is also exported by its name.
#[cfg(not(embedded))]
macro_rules! interface {
    ($($field:ident = $function:ident,)*) => {
        /// As `heaptide.h` has it. Later versions append.
        #[repr(C)]
        pub struct Interface {
            version: u32,
            size: u32,
            $($field: *const (),)*
        }

        // SAFETY: constant pointers to functions.
        unsafe impl Sync for Interface {}

        #[unsafe(no_mangle)]
        #[used]
        #[allow(non_upper_case_globals, reason = "its name in C")]
        pub static heaptide_interface: Interface = Interface {
            version: 1,
            size: size_of::<Interface>() as u32,
            $($field: $function as *const (),)*
        };
    };
}

/// The same in a program: C code that is linked into it finds the table, and nothing outside of it
/// does. It can be written over by that of the library, if that is in the process too.
#[cfg(embedded)]
macro_rules! interface {
    ($($field:ident = $function:ident,)*) => {
        const FUNCTIONS: usize = [$(stringify!($field)),*].len();
        /// Bytes of the table.
        pub const INTERFACE_BYTES: usize = 8 + FUNCTIONS * 8;

        core::arch::global_asm!(
            ".pushsection .data.heaptide_interface, \"aw\"",
            ".globl heaptide_interface",
            ".hidden heaptide_interface",
            ".type heaptide_interface, @object",
            ".size heaptide_interface, {bytes}",
            ".p2align 3",
            "heaptide_interface:",
            ".long 1, {bytes}",
            $(concat!(".quad {", stringify!($field), "}"),)*
            ".popsection",
            bytes = const INTERFACE_BYTES,
            $($field = sym $function,)*
        );
    };
}

interface! {
    recording = heaptide_recording,
    intern = heaptide_intern,
    intern_int = heaptide_intern_int,
    scope_begin = heaptide_scope_begin,
    scope_end = heaptide_scope_end,
    context = heaptide_context,
    set_context = heaptide_set_context,
    label = heaptide_label,
    unlabel = heaptide_unlabel,
    resolve = heaptide_resolve,
    pool = heaptide_pool,
    pool_add = heaptide_pool_add,
    pool_remove = heaptide_pool_remove,
    pool_allocated = heaptide_pool_allocated,
    pool_freed = heaptide_pool_freed,
    pool_reallocated = heaptide_pool_reallocated,
    window_begin = heaptide_window_begin,
    window_end = heaptide_window_end,
    window_figures = heaptide_window_figures,
    measure_begin = heaptide_measure_begin,
    measure_end = heaptide_measure_end,
    mark = heaptide_mark,
    snapshot = heaptide_snapshot,
    turn = heaptide_turn,
    pause = heaptide_pause,
    resume = heaptide_resume,
    active = heaptide_active,
    threshold = heaptide_threshold,
    reset = heaptide_reset,
    flush = heaptide_flush,
    totals = heaptide_totals,
    thread = heaptide_thread,
    scope = heaptide_scope,
    histograms = heaptide_histograms,
    monitor_register = heaptide_monitor_register,
    monitor_deregister = heaptide_monitor_deregister,
    monitor_options = heaptide_monitor_options,
    scope_begin_named = heaptide_scope_begin_named,
    scope_end_named = heaptide_scope_end_named,
}

/// Where the table is.
#[cfg(embedded)]
pub fn table() -> *mut u64 {
    let table;
    // SAFETY: takes an address of this very program.
    unsafe {
        core::arch::asm!("lea {}, [rip + heaptide_interface]", out(reg) table,
            options(pure, nomem, nostack, preserves_flags));
    }
    table
}

/// The bytes that a caller points at.
///
/// # Safety
/// `text` has `length` readable bytes, or is null.
unsafe fn bytes<'a>(text: *const u8, length: usize) -> &'a [u8] {
    // SAFETY: as promised.
    if text.is_null() { b"" } else { unsafe { core::slice::from_raw_parts(text, length) } }
}

/// The attribute that a caller means.
///
/// # Safety
/// As [`bytes`].
#[inline(always)]
unsafe fn attribute_of<'a>(attribute: *const u8, length: usize) -> &'a [u8] {
    // SAFETY: as promised.
    if attribute.is_null() { names::REGION } else { unsafe { bytes(attribute, length) } }
}

/// Does something with the thread's lane; the default if there is none, or it is in use.
#[inline(always)]
fn with_lane<R: Default>(act: impl FnOnce(&mut LaneState) -> R) -> R {
    match Inside::enter(here()) {
        Some(mut inside) => act(inside.lane()),
        None => R::default(),
    }
}

/// Does something that needs no lane of its own, only to know which one: so a monitor may ask for
/// it in its callbacks.
fn with_lane_index<R: Default>(act: impl FnOnce(u32) -> R) -> R {
    if let Some(mut inside) = Inside::enter(here()) {
        return act(inside.lane().index);
    }
    // SAFETY: the thread's own lane, which is only read.
    match unsafe { (*tls()).lane.as_ref() } {
        Some(lane) if monitors::is_calling(lane) => act(lane.index),
        _ => R::default(),
    }
}

/// The same where there are sites.
#[inline(always)]
fn with_sites<R: Default>(act: impl FnOnce(&mut LaneState) -> R) -> R {
    with_lane(|lane| if has_sites(lane) { act(lane) } else { R::default() })
}

/// The same for what moves bytes from site to site. Live neither rises nor falls by that, but what
/// it is made of changes: the next high is another one.
fn with_regions(act: impl FnOnce(&mut LaneState) -> bool) -> bool {
    with_sites(|lane| {
        let done = act(lane);
        lane.live.look_again(process(), lane.header);
        done
    })
}

#[inline(always)]
fn has_sites(lane: &LaneState) -> bool {
    lane.mode != Mode::Counters as u32
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_recording() -> i32 {
    if process().state() == State::New {
        with_lane(|_| ());
    }
    (process().state() == State::Active) as i32
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_intern(
    attribute: *const u8,
    attribute_length: usize,
    value: *const u8,
    value_length: usize,
) -> u32 {
    // SAFETY: the interface's contract.
    let value = Value::Text(unsafe { bytes(value, value_length) });
    // SAFETY: as above.
    unsafe { intern(attribute, attribute_length, value) }
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_intern_int(
    attribute: *const u8,
    attribute_length: usize,
    value: i64,
) -> u32 {
    // SAFETY: the interface's contract.
    unsafe { intern(attribute, attribute_length, Value::Number(value)) }
}

/// # Safety
/// As [`bytes`].
#[inline(always)]
unsafe fn intern(attribute: *const u8, length: usize, value: Value<'_>) -> u32 {
    // SAFETY: as promised.
    let attribute = unsafe { attribute_of(attribute, length) };
    if process().state() != State::Active && heaptide_recording() == 0 {
        return 0;
    }
    names::intern(attribute, value)
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_scope_begin(name: u32) {
    with_sites(|lane| scopes::begin(lane, names::id(name)));
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_scope_end(name: u32) {
    with_sites(|lane| scopes::end(lane, names::id(name)));
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_scope_begin_named(
    attribute: *const u8,
    attribute_length: usize,
    value: *const u8,
    value_length: usize,
) {
    // SAFETY: the interface's contract.
    let (attribute, value) =
        unsafe { (attribute_of(attribute, attribute_length), bytes(value, value_length)) };
    with_sites(|lane| scopes::begin_named(lane, attribute, value));
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_scope_end_named(
    attribute: *const u8,
    attribute_length: usize,
    value: *const u8,
    value_length: usize,
) {
    // SAFETY: the interface's contract.
    let (attribute, value) =
        unsafe { (attribute_of(attribute, attribute_length), bytes(value, value_length)) };
    with_sites(|lane| scopes::end_named(lane, attribute, value));
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_context() -> u64 {
    with_sites(|lane| scopes::context(lane))
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_set_context(context: u64) -> u64 {
    with_sites(|lane| {
        let before = scopes::context(lane);
        scopes::set_context(lane, context);
        before
    })
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_label(
    address: u64,
    label: *const u8,
    label_length: usize,
    element_bytes: usize,
    dimensions: *const usize,
    dimension_count: usize,
    region_bytes: usize,
) -> i32 {
    // SAFETY: the interface's contract.
    let (name, dimensions) = unsafe {
        let some = !dimensions.is_null() && dimension_count > 0;
        let given =
            if some { core::slice::from_raw_parts(dimensions, dimension_count) } else { &[] };
        (bytes(label, label_length), given)
    };
    let label = Label { name, element_bytes, dimensions };
    with_regions(|lane| regions::label(lane, address, &label, region_bytes as u64)) as i32
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_unlabel(address: u64) -> i32 {
    with_regions(|lane| regions::unlabel(lane, address)) as i32
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_resolve(address: u64, out: *mut Block) -> i32 {
    let Some(block) = with_sites(|_| regions::resolve(address)) else {
        return 0;
    };
    // SAFETY: the interface's contract.
    unsafe { out.write(block) };
    1
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_pool(name: *const u8, length: usize) -> u32 {
    // SAFETY: the interface's contract.
    let name = unsafe { bytes(name, length) };
    with_sites(|_| names::intern(names::POOL, Value::Text(name)))
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_pool_add(pool: u32, chunk: u64, chunk_bytes: usize) -> i32 {
    with_regions(|lane| regions::pool_add(lane, names::id(pool), chunk, chunk_bytes as u64)) as i32
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_pool_remove(chunk: u64) -> i32 {
    with_regions(|lane| regions::pool_remove(lane, chunk)) as i32
}

/// Functions whose caller's stack counts: as hooks, they hand its registers on and jump.
macro_rules! traced {
    ($symbol:ident = $body:path) => {
        #[unsafe(naked)]
        #[cfg_attr(not(embedded), unsafe(no_mangle))]
        unsafe extern "C" fn $symbol() {
            naked_asm!(
".cfi_startproc",
                "mov r8, rsp", "mov r9, rbp", "jmp {body}",
                ".cfi_endproc",
body = sym $body)
        }
    };
}

traced!(heaptide_pool_allocated = pool_allocated);
traced!(heaptide_pool_reallocated = pool_reallocated);

extern "C" fn pool_allocated(
    pool: u32,
    block: u64,
    requested: usize,
    usable: usize,
    sp: u64,
    bp: u64,
) -> i32 {
    with_stack(sp, bp, |lane, stack| {
        regions::pool_allocated(
            lane,
            names::id(pool),
            block,
            requested as u64,
            usable as u64,
            stack,
        )
    })
}

extern "C" fn pool_reallocated(
    old: u64,
    block: u64,
    requested: usize,
    usable: usize,
    sp: u64,
    bp: u64,
) -> i32 {
    with_stack(sp, bp, |lane, stack| {
        regions::pool_reallocated(lane, old, block, requested as u64, usable as u64, stack)
    })
}

fn with_stack(sp: u64, bp: u64, act: impl FnOnce(&mut LaneState, u32) -> bool) -> i32 {
    let Some(mut inside) = Inside::enter(Entry { sp, bp }) else {
        return 0;
    };
    if !has_sites(inside.lane()) || inside.lane().is_off() {
        return 0;
    }
    let stack = record::node_here(&mut inside);
    let lane = inside.lane();
    let done = act(lane, stack);
    lane.live.look_again(process(), lane.header);
    done as i32
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_pool_freed(block: u64) -> i32 {
    with_regions(|lane| regions::pool_freed(lane, block)) as i32
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_window_begin(name: *const u8, length: usize) -> u32 {
    // SAFETY: the interface's contract.
    let name = unsafe { bytes(name, length) };
    with_lane(|lane| windows::begin(lane, name))
}

/// Hands figures out, if there are any and somebody wants them.
///
/// # Safety
/// `out` has room for figures, or is null.
unsafe fn hand_out(figures: Option<Figures>, out: *mut Figures) -> i32 {
    if let Some(figures) = figures
        && !out.is_null()
    {
        // SAFETY: as promised.
        unsafe { out.write(figures) };
    }
    figures.is_some() as i32
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_window_end(window: u32, out: *mut Figures) -> i32 {
    // SAFETY: the interface's contract.
    unsafe { hand_out(with_lane(|lane| windows::end(lane, window)), out) }
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_window_figures(window: u32, out: *mut Figures) -> i32 {
    // SAFETY: the interface's contract.
    unsafe { hand_out(with_lane(|lane| windows::figures(lane, window)), out) }
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_measure_begin(measurement: *mut Measurement) {
    // SAFETY: the interface's contract.
    let measurement = unsafe { &mut *measurement };
    with_lane(|lane| thread_measure::begin(lane, measurement));
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_measure_end(measurement: *mut Measurement, out: *mut Figures) -> i32 {
    // SAFETY: the interface's contract.
    unsafe {
        let measurement = &mut *measurement;
        hand_out(with_lane(|lane| thread_measure::end(lane, measurement)), out)
    }
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_mark(name: *const u8, length: usize) {
    // SAFETY: the interface's contract.
    let name = unsafe { bytes(name, length) };
    with_lane_index(|lane| marks::mark(name, MarkKind::Mark, lane, 0));
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_snapshot(name: *const u8, length: usize) -> u32 {
    // SAFETY: the interface's contract.
    let name = unsafe { bytes(name, length) };
    with_lane_index(|lane| marks::snapshot(name, lane, Patience::Waits))
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_turn(on: i32) {
    with_lane(|lane| control::turn(lane, on != 0));
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_pause(whole_process: i32) {
    with_lane(|lane| control::pause(lane, whole_process != 0));
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_resume(whole_process: i32) {
    with_lane(|lane| control::resume(lane, whole_process != 0));
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_active(whole_process: i32) -> i32 {
    with_lane(|lane| match whole_process {
        0 => !lane.is_off(),
        _ => !lane.process_is_off(),
    }) as i32
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_threshold(limit: usize, below: i32) {
    with_lane(|_| control::threshold(limit as u64, below != 0));
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_reset() -> i32 {
    with_lane(marks::reset) as i32
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_flush() {
    with_lane(control::flush);
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_totals(out: *mut Figures) {
    // SAFETY: the interface's contract.
    unsafe { out.write(with_lane_index(|_| stats::totals(process()))) };
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_thread(out: *mut Figures) {
    // SAFETY: the interface's contract.
    unsafe { out.write(with_lane(|lane| stats::thread(lane))) };
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_scope(context: u64, inclusive: i32, out: *mut Figures) -> i32 {
    let figures = with_sites(|_| {
        let path = scopes::scope_of(context)?;
        Some(stats::scope(process(), path, inclusive != 0))
    });
    // SAFETY: the interface's contract.
    unsafe { hand_out(figures, out) }
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_histograms(out: *mut Histograms) {
    // SAFETY: the interface's contract: room for three arrays of numbers, for which zero is one.
    unsafe {
        core::ptr::write_bytes(out, 0, 1);
        with_lane_index(|_| stats::histograms(process(), &mut *out));
    }
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_monitor_register(monitor: *const Monitor) -> u64 {
    // SAFETY: the interface's contract.
    with_lane(|lane| unsafe { monitors::register(lane, monitor) })
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
extern "C" fn heaptide_monitor_deregister(id: u64) -> i32 {
    match Inside::enter(here()) {
        Some(mut inside) => monitors::deregister(inside.lane(), id) as i32,
        // From one of its own callbacks.
        None => {
            // SAFETY: the thread's own lane, which its callback's caller also only reads.
            let lane = unsafe { (*tls()).lane.as_ref() };
            lane.is_some_and(|lane| monitors::deregister(lane, id)) as i32
        }
    }
}

#[cfg_attr(not(embedded), unsafe(no_mangle))]
unsafe extern "C" fn heaptide_monitor_options(
    library: *const u8,
    length: usize,
    buffer: *mut u8,
    size: usize,
) -> usize {
    // SAFETY: the interface's contract.
    let library = unsafe { bytes(library, length) };
    let all = Options::get().and_then(|options| options.handed_on.value(b"HEAPTIDE_MONITORS"));
    // SAFETY: the interface's contract.
    all.map_or(0, |all| unsafe { monitors::options(all, library, buffer, size) })
}
