//! The functions that programs call: the table that `heaptide.h` finds, and the same functions by
//! name.
//!
//! Each function enters the recorder, does its work, and leaves. If the thread is inside already,
//! in a monitor or a signal handler, it does nothing.

use crate::api::regions::{self, Block, Label};
use crate::api::{control, monitors, windows};
use crate::event::device_pools::{self, HandedOut};
use crate::event::device_state;
use crate::event::inside::{Entry, Inside, here};
use crate::event::lane::{self, LaneState};
use crate::event::marks::{self, Patience};
use crate::event::monitors::{Monitor, is_calling};
use crate::event::output::{self, Target};
use crate::event::process::{State, process};
use crate::event::record;
use crate::event::requests;
use crate::event::start::start_on_request;
use crate::event::stats::{self, Figures, Histograms};
use crate::event::tag_report;
use crate::event::tag_tree::Request;
use crate::event::tallies;
use crate::event::thread_measure::{self, Measurement};
use crate::event::threads;
use crate::event::trace;
use crate::store::ids::NodeId;
use crate::store::names::{self, Value};
use crate::store::scopes;
use crate::store::shared::store;
use crate::sys::arch;
use crate::sys::front::Front;
use crate::sys::kernel::Fd;
use crate::sys::options::Options;
use crate::sys::own_stack;
use crate::sys::replaced::Replaced;
use core::arch::naked_asm;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU64;
use heaptide_format::settings::Setting;
use heaptide_format::{DEVICE_UNKNOWN, Mode};

/// Calls a macro with the names of all functions, in the order of `struct heaptide_interface`. Each
/// is a function of this module; a front exports it as `heaptide_` and its name.
#[macro_export]
macro_rules! interface_functions {
    ($with:ident) => {
        $with! {
            recording,
            intern,
            intern_int,
            scope_begin,
            scope_end,
            context,
            set_context,
            label,
            unlabel,
            resolve,
            pool,
            pool_add,
            pool_remove,
            pool_allocated,
            pool_freed,
            pool_reallocated,
            window_begin,
            window_end,
            window_figures,
            measure_begin,
            measure_end,
            mark,
            snapshot,
            turn,
            pause,
            resume,
            active,
            threshold,
            reset,
            flush,
            totals,
            thread,
            scope,
            histograms,
            monitor_register,
            monitor_deregister,
            monitor_options,
            scope_begin_named,
            scope_end_named,
            write,
            write_to,
            start,
            separate_threads,
            process_memory,
            start_with,
            tally_scopes,
            write_tags,
            replaced_libraries,
            omit_dump,
            tool_settings,
        }
    };
}

/// An array from a C caller: a pointer and a length. The calling conventions of x86-64 and aarch64
/// pass a struct of two words like two arguments, if registers are left for both.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Array<'a, T> {
    data: *const T,
    length: usize,
    lent: PhantomData<&'a [T]>,
}

/// A text, which need not end with a zero byte.
type Text<'a> = Array<'a, u8>;

impl<'a, T> Array<'a, T> {
    /// Returns the elements; none for null.
    fn get(self) -> &'a [T] {
        if self.data.is_null() {
            return &[];
        }
        // SAFETY: the interface's contract: that many can be read, and do not change meanwhile.
        unsafe { core::slice::from_raw_parts(self.data, self.length) }
    }
}

/// Where the caller wants a value, if it does.
type Place<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Returns the attribute that the caller passed, or the default one for null.
#[inline(always)]
fn attribute_of(attribute: Text<'_>) -> &[u8] {
    if attribute.data.is_null() { names::REGION } else { attribute.get() }
}

/// Calls `act` with the thread's lane. Returns the default if there is none, or it is in use.
#[inline(always)]
fn with_lane<F: Front, R: Default>(act: impl FnOnce(&mut LaneState) -> R) -> R {
    match Inside::enter::<F>(here()) {
        Some(mut inside) => act(inside.lane()),
        None => R::default(),
    }
}

/// Calls `act` with the index of the thread's lane. Since that does not need exclusive access to
/// the lane, it also works in a monitor's callbacks.
pub(super) fn with_lane_index<F: Front, R: Default>(act: impl FnOnce(u32) -> R) -> R {
    if let Some(mut inside) = Inside::enter::<F>(here()) {
        return act(inside.lane().index());
    }
    match lane::of_thread() {
        Some(lane) if is_calling(lane) => act(lane.index()),
        _ => R::default(),
    }
}

/// Calls `act` with the thread's lane in modes with sites.
#[inline(always)]
pub(super) fn with_sites<F: Front, R: Default>(act: impl FnOnce(&mut LaneState) -> R) -> R {
    with_lane::<F, _>(|lane| if has_sites(lane) { act(lane) } else { R::default() })
}

/// Calls `act`, which moves bytes between sites, with the thread's lane. Live bytes do not change
/// by that, but their composition does, so the next high is another one.
pub(super) fn with_regions<F: Front>(act: impl FnOnce(&mut LaneState) -> bool) -> bool {
    with_sites::<F, _>(|lane| {
        let done = act(lane);
        lane.renew_bounds();
        done
    })
}

#[inline(always)]
fn has_sites(lane: &LaneState) -> bool {
    lane.mode != Mode::Counters as u32
}

/// Returns whether sites count all blocks. Where they count only sampled blocks, they usually do
/// not count the chunk of a pool.
fn has_every_block(lane: &LaneState) -> bool {
    !lane.is_counted_by_lane()
}

pub extern "C" fn recording<F: Front>() -> i32 {
    if process().state() == State::New {
        with_lane::<F, _>(|_| ());
    }
    (process().state() == State::Active) as i32
}

pub extern "C" fn intern<F: Front>(attribute: Text<'_>, value: Text<'_>) -> u32 {
    intern_value::<F>(attribute_of(attribute), Value::Text(value.get()))
}

pub extern "C" fn intern_int<F: Front>(attribute: Text<'_>, value: i64) -> u32 {
    intern_value::<F>(attribute_of(attribute), Value::Number(value))
}

#[inline(always)]
pub(super) fn intern_value<F: Front>(attribute: &[u8], value: Value<'_>) -> u32 {
    if process().state() != State::Active && recording::<F>() == 0 {
        return 0;
    }
    names::intern(attribute, value)
}

/// Begins or ends scopes of the calling thread.
#[inline(always)]
pub(super) fn in_scopes<F: Front>(change: impl FnOnce(&mut LaneState)) {
    with_sites::<F, _>(|lane| {
        tallies::settle(lane);
        change(lane);
        lane.in_scope();
        trace::scope_changed(lane);
    });
}

/// Ends a scope of the calling thread.
#[inline(always)]
pub(super) fn end_in_scopes<F: Front>(change: impl FnOnce(&mut LaneState)) {
    in_scopes::<F>(|lane| {
        lane.live.leave(lane.place.scope, lane.allocated());
        change(lane);
    });
}

pub extern "C" fn scope_begin<F: Front>(name: u32) {
    in_scopes::<F>(|lane| scopes::begin(&mut lane.place, names::id(name)));
}

pub extern "C" fn scope_end<F: Front>(name: u32) {
    end_in_scopes::<F>(|lane| scopes::end(&mut lane.place, names::id(name)));
}

pub extern "C" fn scope_begin_named<F: Front>(attribute: Text<'_>, value: Text<'_>) {
    let (attribute, value) = (attribute_of(attribute), value.get());
    in_scopes::<F>(|lane| scopes::begin_named(&mut lane.place, attribute, value));
}

pub extern "C" fn scope_end_named<F: Front>(attribute: Text<'_>, value: Text<'_>) {
    let (attribute, value) = (attribute_of(attribute), value.get());
    end_in_scopes::<F>(|lane| scopes::end_named(&mut lane.place, attribute, value));
}

pub extern "C" fn context<F: Front>() -> u64 {
    with_sites::<F, _>(|lane| scopes::context(&lane.place))
}

pub extern "C" fn set_context<F: Front>(context: u64) -> u64 {
    with_sites::<F, _>(|lane| {
        let before = scopes::context(&lane.place);
        tallies::settle(lane);
        scopes::set_context(&mut lane.place, context);
        lane.in_scope();
        trace::scope_changed(lane);
        before
    })
}

pub extern "C" fn label<F: Front>(
    address: u64,
    label: Text<'_>,
    element_bytes: usize,
    dimensions: Array<'_, usize>,
    region_bytes: usize,
) -> i32 {
    let label = Label { name: label.get(), element_bytes, dimensions: dimensions.get() };
    with_regions::<F>(|lane| regions::label(lane, address, &label, region_bytes as u64)) as i32
}

pub extern "C" fn unlabel<F: Front>(address: u64) -> i32 {
    with_regions::<F>(|lane| regions::unlabel(lane, address)) as i32
}

pub extern "C" fn resolve<F: Front>(address: u64, out: Place<'_, Block>) -> i32 {
    hand_out(with_sites::<F, _>(|_| regions::resolve(address)), out)
}

pub extern "C" fn pool<F: Front>(name: Text<'_>) -> u32 {
    with_sites::<F, _>(|_| names::intern(names::POOL, Value::Text(name.get())))
}

pub extern "C" fn pool_add<F: Front>(pool: u32, chunk: u64, chunk_bytes: usize) -> i32 {
    if is_on_device(chunk) && device_pools::added::<F>(here(), chunk, names::id(pool)) {
        return 1;
    }
    with_regions::<F>(|lane| {
        has_every_block(lane) && regions::pool_add(lane, names::id(pool), chunk, chunk_bytes as u64)
    }) as i32
}

pub extern "C" fn pool_remove<F: Front>(chunk: u64) -> i32 {
    (with_regions::<F>(|lane| regions::pool_remove(lane, chunk))
        || is_on_device(chunk) && device_pools::is_in_chunk::<F>(here(), chunk)) as i32
}

/// Returns whether an address can be one of device memory: some is known, and no memory of the host
/// that has a name contains it.
fn is_on_device(address: u64) -> bool {
    device_state::is_recorded() && !regions::is_named(address)
}

/// Defines functions for which the caller's stack is recorded: like hooks, they pass its registers.
macro_rules! with_registers {
    ($function:ident = $body:ident) => {
        #[unsafe(naked)]
        pub unsafe extern "C" fn $function<F: Front>() {
            naked_asm!(
                ".cfi_startproc",
                arch::pass_registers!(4),
                ".cfi_endproc",
                body = sym $body::<F>
            )
        }
    };
}

with_registers!(pool_allocated = pool_allocated_body);
with_registers!(pool_reallocated = pool_reallocated_body);

extern "C" fn pool_allocated_body<F: Front>(
    pool: u32,
    block: u64,
    requested: usize,
    usable: usize,
    sp: u64,
    bp: u64,
) -> i32 {
    let (entry, on_device) = (Entry { sp, bp }, on_device(block, (requested, usable)));
    let name = || names::id(pool);
    if is_on_device(block) && device_pools::handed_out::<F>(entry, &on_device, name) {
        return 1;
    }
    with_stack::<F>(sp, bp, |lane, stack| {
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

extern "C" fn pool_reallocated_body<F: Front>(
    old: u64,
    block: u64,
    requested: usize,
    usable: usize,
    sp: u64,
    bp: u64,
) -> i32 {
    let on_device = on_device(block, (requested, usable));
    if is_on_device(old) && device_pools::moved::<F>(Entry { sp, bp }, old, &on_device) {
        return 1;
    }
    with_stack::<F>(sp, bp, |lane, stack| {
        regions::pool_reallocated(lane, old, block, requested as u64, usable as u64, stack)
    })
}

fn on_device(address: u64, (requested, usable): (usize, usize)) -> HandedOut {
    let bytes = usable.max(requested) as u64;
    HandedOut { address, requested: requested as u64, bytes, device: DEVICE_UNKNOWN }
}

fn with_stack<F: Front>(sp: u64, bp: u64, act: impl FnOnce(&mut LaneState, NodeId) -> bool) -> i32 {
    let Some(mut inside) = Inside::enter::<F>(Entry { sp, bp }) else {
        return 0;
    };
    if !has_every_block(inside.lane()) || inside.lane().is_off() {
        return 0;
    }
    let stack = record::node_here(&mut inside);
    let lane = inside.lane();
    let done = act(lane, stack);
    lane.renew_bounds();
    done as i32
}

pub extern "C" fn pool_freed<F: Front>(block: u64) -> i32 {
    (with_regions::<F>(|lane| regions::pool_freed(lane, block))
        || device_pools::came_back::<F>(here(), block, DEVICE_UNKNOWN)) as i32
}

pub extern "C" fn window_begin<F: Front>(name: Text<'_>) -> u32 {
    with_lane::<F, _>(|lane| windows::begin(lane, name.get()))
}

/// Writes a value, if there is one and the caller wants it. Returns whether there is one.
fn hand_out<T>(value: Option<T>, out: Place<'_, T>) -> i32 {
    let there_is = value.is_some();
    if let (Some(value), Some(out)) = (value, out) {
        out.write(value);
    }
    there_is as i32
}

pub extern "C" fn window_end<F: Front>(window: u32, out: Place<'_, Figures>) -> i32 {
    hand_out(with_lane::<F, _>(|lane| windows::end(lane, window)), out)
}

pub extern "C" fn window_figures<F: Front>(window: u32, out: Place<'_, Figures>) -> i32 {
    hand_out(with_lane::<F, _>(|lane| windows::figures(lane, window)), out)
}

pub extern "C" fn measure_begin<F: Front>(measurement: &mut Measurement) {
    with_lane::<F, _>(|lane| thread_measure::begin(lane, measurement));
}

pub extern "C" fn measure_end<F: Front>(
    measurement: &mut Measurement,
    out: Place<'_, Figures>,
) -> i32 {
    hand_out(with_lane::<F, _>(|lane| thread_measure::end(lane, measurement)), out)
}

pub extern "C" fn mark<F: Front>(name: Text<'_>) {
    with_lane_index::<F, _>(|lane| marks::mark_here(name.get(), lane));
}

pub extern "C" fn snapshot<F: Front>(name: Text<'_>) -> u32 {
    with_lane_index::<F, _>(|lane| marks::snapshot(name.get(), lane, Patience::Waits))
}

pub extern "C" fn turn<F: Front>(on: i32) {
    with_lane::<F, _>(|lane| control::turn(lane, on != 0));
}

pub extern "C" fn pause<F: Front>(whole_process: i32) {
    with_lane::<F, _>(|lane| control::pause(lane, whole_process != 0));
}

pub extern "C" fn resume<F: Front>(whole_process: i32) {
    with_lane::<F, _>(|lane| control::resume(lane, whole_process != 0));
}

pub extern "C" fn active<F: Front>(whole_process: i32) -> i32 {
    with_lane::<F, _>(|lane| match whole_process {
        0 => !lane.is_off(),
        _ => !lane.process_is_off(),
    }) as i32
}

pub extern "C" fn threshold<F: Front>(limit: usize, below: i32) {
    with_lane::<F, _>(|_| requests::threshold(limit as u64, below != 0));
}

pub extern "C" fn reset<F: Front>() -> i32 {
    with_lane::<F, _>(marks::reset) as i32
}

pub extern "C" fn flush<F: Front>() {
    with_lane::<F, _>(requests::flush);
}

pub extern "C" fn totals<F: Front>(out: &mut MaybeUninit<Figures>) {
    let totals = |_| stats::totals(store(), &marks::sums_at_reset());
    out.write(with_lane_index::<F, _>(totals));
}

pub extern "C" fn thread<F: Front>(out: &mut MaybeUninit<Figures>) {
    out.write(with_lane::<F, _>(|lane| stats::thread(lane)));
}

pub extern "C" fn scope<F: Front>(context: u64, inclusive: i32, out: Place<'_, Figures>) -> i32 {
    let figures = with_sites::<F, _>(|lane| {
        let path = scopes::scope_of(context).filter(|_| has_every_block(lane))?;
        Some(stats::scope(path, inclusive != 0))
    });
    hand_out(figures, out)
}

pub extern "C" fn histograms<F: Front>(out: &mut MaybeUninit<Histograms>) {
    let out = out.write(Histograms::default());
    with_lane_index::<F, _>(|_| stats::histograms(out));
}

pub unsafe extern "C" fn monitor_register<F: Front>(monitor: *const Monitor) -> u64 {
    // SAFETY: the interface's contract.
    with_lane::<F, _>(|lane| unsafe { monitors::register(lane, monitor) })
}

pub extern "C" fn monitor_deregister<F: Front>(id: u64) -> i32 {
    match Inside::enter::<F>(here()) {
        Some(mut inside) => monitors::deregister(inside.lane(), id) as i32,
        // In one of its own callbacks.
        None => lane::of_thread().is_some_and(|lane| monitors::deregister(lane, id)) as i32,
    }
}

pub unsafe extern "C" fn monitor_options<F: Front>(
    library: Text<'_>,
    buffer: *mut u8,
    size: usize,
) -> usize {
    let all = Options::get()
        .and_then(|options| options.handed_on.value(Setting::Monitors.variable().as_bytes()));
    let Some(options) = all.and_then(|all| monitors::options_of(all, library.get())) else {
        return 0;
    };
    if size > 0 && !buffer.is_null() {
        let length = options.len().min(size - 1);
        // SAFETY: the interface's contract: there is room for `size` bytes. One is left for the
        // zero.
        unsafe {
            core::ptr::copy_nonoverlapping(options.as_ptr(), buffer, length);
            *buffer.add(length) = 0;
        }
    }
    options.len() + 1
}

pub extern "C" fn write<F: Front>(path: Text<'_>, format: Text<'_>) -> i32 {
    let target = Target::named(path.get());
    with_lane::<F, _>(|lane| output::write(lane, target, format.get())) as i32
}

pub extern "C" fn write_to<F: Front>(descriptor: i32, format: Text<'_>) -> i32 {
    let target = Target::Open(Fd(descriptor));
    with_lane::<F, _>(|lane| output::write(lane, target, format.get())) as i32
}

pub extern "C" fn separate_threads<F: Front>() {
    with_lane::<F, _>(|_| threads::keep_apart());
}

/// `struct heaptide_memory`.
#[derive(Default)]
#[repr(C)]
pub struct Memory {
    resident_bytes: u64,
    virtual_bytes: u64,
}

pub extern "C" fn process_memory<F: Front>(out: &mut MaybeUninit<Memory>) {
    let memory = with_lane::<F, _>(|_| {
        let (resident_bytes, virtual_bytes) = store().memory_of_process();
        Memory { resident_bytes, virtual_bytes }
    });
    out.write(memory);
}

pub extern "C" fn tally_scopes<F: Front>() {
    with_lane::<F, _>(|_| tallies::begin_all());
}

/// Also works if the thread is inside the recorder, in a signal handler: it only reads.
pub extern "C" fn write_tags<F: Front>(request: Option<&Request>) -> i64 {
    match request {
        Some(request) if recording::<F>() != 0 => {
            let written = own_stack::call(|| tag_report::write(request)).flatten();
            written.map_or(-1, |length| length as i64)
        }
        _ => -1,
    }
}

pub extern "C" fn replaced_libraries<F: Front>() -> u32 {
    with_lane::<F, _>(|_| Options::known().map_or(0, |options| options.replaced.bits()))
}

pub extern "C" fn omit_dump<F: Front>() {
    output::omit_dump();
}

/// Settings of the headers of other tools, which all modules of the process share: the recorder
/// neither reads nor writes them. Forked children inherit them.
static TOOL_SETTINGS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

pub extern "C" fn tool_settings<F: Front>() -> *const AtomicU64 {
    TOOL_SETTINGS.as_ptr()
}

/// Pauses or resumes recording of the process if the recorder replaces MaxMemoryPreload. Returns
/// whether it does.
pub fn pause_max_memory<F: Front>(is_paused: bool) -> bool {
    let acts = Options::known().is_some_and(|options| options.replaced.has(Replaced::MaxMemory));
    match (acts, is_paused) {
        (false, _) => {}
        (true, true) => pause::<F>(1),
        (true, false) => resume::<F>(1),
    }
    acts
}

pub extern "C" fn start<F: Front>() -> i32 {
    start_on_request::<F>(b"") as i32
}

pub extern "C" fn start_with<F: Front>(settings: Text<'_>) -> i32 {
    start_on_request::<F>(settings.get()) as i32
}
