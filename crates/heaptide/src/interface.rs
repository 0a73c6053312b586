//! The table of functions that libheaptide.so offers: found once, and made safe to call.
//!
//! All that the compiler cannot check of this crate is here, but for a future's pinned field in
//! `task.rs`: the calls through the table, the memory that the recorder is lent, and the attributes
//! of a plug-in's constructor. The layout is that of `struct heaptide_interface` in
//! `include/heaptide.h`.
//!
//! Every function here does nothing, and returns zero, in a process without the recorder.

use crate::figures::{Figures, Histograms, ProcessMemory};
use crate::registered::Registered;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::marker::PhantomPinned;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::pin::{Pin, pin};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What `resolve` fills in: `struct heaptide_block`.
#[repr(C)]
pub(crate) struct RawBlock {
    pub start: usize,
    pub bytes: usize,
    pub uid: u64,
    label: *const c_char,
    label_length: usize,
    pub element_bytes: usize,
    pub index: usize,
    pub dimension_count: usize,
    pub dimensions: [usize; 4],
    pub kind: u32,
    reserved: u32,
}

/// `struct heaptide_measurement`: the recorder's from begin to end, and pinned for as long.
#[repr(C)]
struct Measurement {
    opaque: [u64; 16],
    pinned: PhantomPinned,
}

/// `struct heaptide_monitor`.
#[repr(C)]
struct RawMonitor {
    version: u32,
    size: u32,
    name: *const c_char,
    context: *mut c_void,
    allocated: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize)>,
    freed: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize)>,
    destroy: Option<unsafe extern "C" fn(*mut c_void)>,
}

type Text = *const c_char;
type Address = *const c_void;

/// `struct heaptide_interface`. Later versions append to it.
#[repr(C)]
struct Table {
    version: u32,
    size: u32,
    recording: unsafe extern "C" fn() -> c_int,
    intern: unsafe extern "C" fn(Text, usize, Text, usize) -> u32,
    intern_int: unsafe extern "C" fn(Text, usize, i64) -> u32,
    scope_begin: unsafe extern "C" fn(u32),
    scope_end: unsafe extern "C" fn(u32),
    context: unsafe extern "C" fn() -> u64,
    set_context: unsafe extern "C" fn(u64) -> u64,
    label: unsafe extern "C" fn(Address, Text, usize, usize, *const usize, usize, usize) -> c_int,
    unlabel: unsafe extern "C" fn(Address) -> c_int,
    resolve: unsafe extern "C" fn(Address, *mut RawBlock) -> c_int,
    pool: unsafe extern "C" fn(Text, usize) -> u32,
    pool_add: unsafe extern "C" fn(u32, Address, usize) -> c_int,
    pool_remove: unsafe extern "C" fn(Address) -> c_int,
    pool_allocated: unsafe extern "C" fn(u32, Address, usize, usize) -> c_int,
    pool_freed: unsafe extern "C" fn(Address) -> c_int,
    pool_reallocated: unsafe extern "C" fn(Address, Address, usize, usize) -> c_int,
    window_begin: unsafe extern "C" fn(Text, usize) -> u32,
    window_end: unsafe extern "C" fn(u32, *mut Figures) -> c_int,
    window_figures: unsafe extern "C" fn(u32, *mut Figures) -> c_int,
    measure_begin: unsafe extern "C" fn(*mut Measurement),
    measure_end: unsafe extern "C" fn(*mut Measurement, *mut Figures) -> c_int,
    mark: unsafe extern "C" fn(Text, usize),
    snapshot: unsafe extern "C" fn(Text, usize) -> u32,
    turn: unsafe extern "C" fn(c_int),
    pause: unsafe extern "C" fn(c_int),
    resume: unsafe extern "C" fn(c_int),
    active: unsafe extern "C" fn(c_int) -> c_int,
    threshold: unsafe extern "C" fn(usize, c_int),
    reset: unsafe extern "C" fn() -> c_int,
    flush: unsafe extern "C" fn(),
    totals: unsafe extern "C" fn(*mut Figures),
    thread: unsafe extern "C" fn(*mut Figures),
    scope: unsafe extern "C" fn(u64, c_int, *mut Figures) -> c_int,
    histograms: unsafe extern "C" fn(*mut Histograms),
    monitor_register: unsafe extern "C" fn(*const RawMonitor) -> u64,
    monitor_deregister: unsafe extern "C" fn(u64) -> c_int,
    monitor_options: unsafe extern "C" fn(Text, usize, *mut c_char, usize) -> usize,
    scope_begin_named: unsafe extern "C" fn(Text, usize, Text, usize),
    scope_end_named: unsafe extern "C" fn(Text, usize, Text, usize),
    write: unsafe extern "C" fn(Text, usize, Text, usize) -> c_int,
    write_to: unsafe extern "C" fn(c_int, Text, usize) -> c_int,
    start: unsafe extern "C" fn() -> c_int,
    separate_threads: unsafe extern "C" fn(),
    process_memory: unsafe extern "C" fn(*mut ProcessMemory),
}

/// `Dl_info` of the C library.
#[repr(C)]
struct ObjectOfAddress {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

// SAFETY: declared as in <dlfcn.h> and <fcntl.h>; glibc and musl have both, static or not.
unsafe extern "C" {
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
    fn dladdr(address: *const c_void, out: *mut ObjectOfAddress) -> c_int;
    fn fcntl(descriptor: c_int, command: c_int, ...) -> c_int;
}

/// Nobody has looked yet.
const UNKNOWN: usize = 0;
/// There is no recorder in this process, and none can come any more.
const ABSENT: usize = 1;
/// `UNKNOWN`, `ABSENT`, or where the table is.
static STATE: AtomicUsize = AtomicUsize::new(UNKNOWN);

/// The table, if the recorder is in this process: a load and a branch once that is known.
#[inline]
fn table() -> Option<&'static Table> {
    let state = STATE.load(Ordering::Acquire);
    if state > ABSENT {
        // SAFETY: only `find` stores more than `ABSENT`, and only a table's address.
        return Some(unsafe { &*ptr::with_exposed_provenance(state) });
    }
    if state == ABSENT { None } else { find() }
}

/// Looks the table up. Threads that do so together find the same.
#[cold]
fn find() -> Option<&'static Table> {
    /// `RTLD_DEFAULT`: the search order of the program itself.
    const EVERYWHERE: *mut c_void = ptr::null_mut();
    // SAFETY: the name ends with a zero.
    let elsewhere = || unsafe { dlsym(EVERYWHERE, c"heaptide_interface".as_ptr()) }.cast_const();
    #[cfg(feature = "recorder")]
    let found = heaptide_embedded::interface().unwrap_or_else(elsewhere);
    #[cfg(not(feature = "recorder"))]
    let found = elsewhere();
    let table = found.cast::<Table>();
    // SAFETY: an object of this name begins with version and size, and is never written to. No
    // reference to the whole is made before the size says that it is there.
    let fits = !table.is_null()
        && unsafe { (*table).version >= 1 && (*table).size as usize >= size_of::<Table>() };
    STATE.store(if fits { table.expose_provenance() } else { ABSENT }, Ordering::Release);
    // SAFETY: it is as long as `Table`, constant, and its library is not unloaded.
    fits.then(|| unsafe { &*table })
}

/// A string as the recorder takes it: pointer and length.
fn text(text: &str) -> (Text, usize) {
    (text.as_ptr().cast(), text.len())
}

/// Calls a function of the table; the second form says what holds without the recorder.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => { call!($name($($argument),*), Default::default()) };
    ($name:ident($($argument:expr),*), $absent:expr) => {
        match table() {
            // SAFETY: the recorder takes any value. Pointers that it reads or fills come from
            // references that live through the call; addresses of blocks are only looked up.
            Some(table) => unsafe { (table.$name)($($argument),*) },
            None => $absent,
        }
    };
}

#[inline]
pub(crate) fn loaded() -> bool {
    table().is_some()
}

pub(crate) fn recording() -> bool {
    call!(recording()) != 0
}

pub(crate) fn intern(attribute: &str, value: &str) -> u32 {
    let ((a, alen), (v, vlen)) = (text(attribute), text(value));
    call!(intern(a, alen, v, vlen))
}

pub(crate) fn intern_int(attribute: &str, value: i64) -> u32 {
    let (a, alen) = text(attribute);
    call!(intern_int(a, alen, value))
}

#[inline]
pub(crate) fn scope_begin(name: u32) {
    // 0 is the name that there was no room for.
    if name != 0 {
        call!(scope_begin(name));
    }
}

#[inline]
pub(crate) fn scope_end(name: u32) {
    call!(scope_end(name));
}

#[inline]
pub(crate) fn context() -> u64 {
    call!(context())
}

#[inline]
pub(crate) fn set_context(context: u64) -> u64 {
    call!(set_context(context))
}

/// Names what starts at `address`; with `region_bytes` also what is no block.
pub(crate) fn label(
    address: *const u8,
    label: &str,
    element_bytes: usize,
    dimensions: &[usize],
    region_bytes: usize,
) -> bool {
    let (l, llen) = text(label);
    let (d, count) = (dimensions.as_ptr(), dimensions.len());
    call!(label(address.cast(), l, llen, element_bytes, d, count, region_bytes)) != 0
}

pub(crate) fn unlabel(address: *const u8) -> bool {
    call!(unlabel(address.cast())) != 0
}

/// The block that holds an address, with the bytes of its label.
pub(crate) fn resolve(address: *const u8) -> Option<(RawBlock, Option<&'static [u8]>)> {
    let mut block = MaybeUninit::<RawBlock>::zeroed();
    if call!(resolve(address.cast(), block.as_mut_ptr())) == 0 {
        return None;
    }
    // SAFETY: all zero bytes are a `RawBlock`, and the recorder wrote one over them.
    let block = unsafe { block.assume_init() };
    // SAFETY: a label's bytes are kept as long as the process lives.
    let label = (!block.label.is_null())
        .then(|| unsafe { std::slice::from_raw_parts(block.label.cast(), block.label_length) });
    Some((block, label))
}

pub(crate) fn pool(name: &str) -> u32 {
    let (n, length) = text(name);
    call!(pool(n, length))
}

pub(crate) fn pool_add(pool: u32, chunk: *const u8, bytes: usize) -> bool {
    call!(pool_add(pool, chunk.cast(), bytes)) != 0
}

pub(crate) fn pool_remove(chunk: *const u8) -> bool {
    call!(pool_remove(chunk.cast())) != 0
}

pub(crate) fn pool_allocated(pool: u32, block: *const u8, requested: usize, usable: usize) -> bool {
    call!(pool_allocated(pool, block.cast(), requested, usable)) != 0
}

pub(crate) fn pool_freed(block: *const u8) -> bool {
    call!(pool_freed(block.cast())) != 0
}

pub(crate) fn pool_reallocated(
    old: *const u8,
    block: *const u8,
    requested: usize,
    usable: usize,
) -> bool {
    call!(pool_reallocated(old.cast(), block.cast(), requested, usable)) != 0
}

pub(crate) fn window_begin(name: &str) -> u32 {
    let (n, length) = text(name);
    call!(window_begin(n, length))
}

pub(crate) fn window_end(window: u32) -> Option<Figures> {
    let mut figures = Figures::default();
    (call!(window_end(window, &mut figures)) != 0).then_some(figures)
}

pub(crate) fn window_figures(window: u32) -> Option<Figures> {
    let mut figures = Figures::default();
    (call!(window_figures(window, &mut figures)) != 0).then_some(figures)
}

/// Ends a measurement in whichever way its closure ends: the recorder must let go of its memory.
struct Measuring<'a>(Pin<&'a mut Measurement>);

impl Measuring<'_> {
    fn memory(&mut self) -> *mut Measurement {
        // SAFETY: nothing is moved out of it; the recorder writes where it lies.
        unsafe { self.0.as_mut().get_unchecked_mut() }
    }

    fn end(mut self) -> Figures {
        let mut figures = Figures::default();
        call!(measure_end(self.memory(), &mut figures));
        std::mem::forget(self);
        figures
    }
}

impl Drop for Measuring<'_> {
    fn drop(&mut self) {
        // A panic passes: the figures interest nobody.
        call!(measure_end(self.memory(), ptr::null_mut()));
    }
}

/// Runs the closure between begin and end of a measurement. A closure returns before the one round
/// it does, so that they end in the reverse order, on their thread.
pub(crate) fn measure<R>(work: impl FnOnce() -> R) -> (R, Figures) {
    let memory = pin!(Measurement { opaque: [0; 16], pinned: PhantomPinned });
    let mut measuring = Measuring(memory);
    call!(measure_begin(measuring.memory()));
    let result = work();
    (result, measuring.end())
}

pub(crate) fn mark(name: &str) {
    let (n, length) = text(name);
    call!(mark(n, length));
}

pub(crate) fn snapshot(name: &str) -> u32 {
    let (n, length) = text(name);
    call!(snapshot(n, length))
}

pub(crate) fn process_memory() -> ProcessMemory {
    let mut memory = ProcessMemory::default();
    call!(process_memory(&mut memory));
    memory
}

pub(crate) fn separate_threads() {
    call!(separate_threads());
}

pub(crate) fn start() -> bool {
    call!(start()) != 0
}

/// Writes to a path, or to `stdout` or `stderr`.
pub(crate) fn write(path: &[u8], format: &str) -> bool {
    let (f, length) = text(format);
    call!(write(path.as_ptr().cast(), path.len(), f, length)) != 0
}

/// Writes to an open file.
pub(crate) fn write_to(file: BorrowedFd<'_>, format: &str) -> bool {
    let (f, length) = text(format);
    call!(write_to(file.as_raw_fd(), f, length)) != 0
}

/// Whom a switch is for.
#[derive(Clone, Copy)]
pub(crate) enum Of {
    Thread,
    Process,
}

pub(crate) fn turn(on: bool) {
    call!(turn(on.into()));
}

pub(crate) fn pause(of: Of) {
    call!(pause(of as c_int));
}

pub(crate) fn resume(of: Of) {
    call!(resume(of as c_int));
}

pub(crate) fn active(of: Of) -> bool {
    call!(active(of as c_int)) != 0
}

pub(crate) fn threshold(bytes: usize, below: bool) {
    call!(threshold(bytes, below.into()));
}

pub(crate) fn reset() -> bool {
    call!(reset()) != 0
}

pub(crate) fn flush() {
    call!(flush());
}

pub(crate) fn totals() -> Figures {
    let mut figures = Figures::default();
    call!(totals(&mut figures));
    figures
}

pub(crate) fn thread() -> Figures {
    let mut figures = Figures::default();
    call!(thread(&mut figures));
    figures
}

pub(crate) fn scope(context: u64, inclusive: bool) -> Option<Figures> {
    let mut figures = Figures::default();
    (call!(scope(context, inclusive.into(), &mut figures)) != 0).then_some(figures)
}

pub(crate) fn histograms() -> Histograms {
    let mut histograms = Histograms::default();
    call!(histograms(&mut histograms));
    histograms
}

/// Hands a monitor over: the recorder owns it until it destroys it. 0: refused, and dropped here.
pub(crate) fn monitor_register(mut name: [u8; 32], monitor: Registered) -> u64 {
    // It has to end with a zero, whatever it is.
    name[31] = 0;
    let context = Box::into_raw(Box::new(monitor));
    let raw = RawMonitor {
        version: 1,
        size: size_of::<RawMonitor>() as u32,
        name: name.as_ptr().cast(),
        context: context.cast(),
        allocated: Some(allocated),
        freed: Some(freed),
        destroy: Some(destroy),
    };
    let id = call!(monitor_register(&raw));
    if id == 0 {
        // SAFETY: refused, so that nobody else has it.
        drop(unsafe { Box::from_raw(context) });
    }
    id
}

pub(crate) fn monitor_deregister(id: u64) -> bool {
    call!(monitor_deregister(id)) != 0
}

/// A panic in a monitor aborts: that is what `extern "C"` does with one that reaches it.
unsafe extern "C" fn allocated(
    context: *mut c_void,
    block: *mut c_void,
    requested: usize,
    usable: usize,
) {
    let monitor: *mut Registered = context.cast();
    // SAFETY: registered with a `Registered` as context, which lives until `destroy`, and that
    // puts the end off while a call of this thread is in it.
    unsafe { (*monitor).enter(|inner| inner.allocated(block.cast(), requested, usable)) };
    // SAFETY: as above; the reference into it ended.
    unsafe { leave(monitor) }
}

unsafe extern "C" fn freed(context: *mut c_void, block: *mut c_void, usable: usize) {
    let monitor: *mut Registered = context.cast();
    // SAFETY: as in `allocated`.
    unsafe { (*monitor).enter(|inner| inner.freed(block.cast(), usable)) };
    // SAFETY: as in `allocated`.
    unsafe { leave(monitor) }
}

/// Drops a monitor that its own callback deregistered.
///
/// # Safety
/// The monitor is registered or condemned, and this thread holds no reference to it.
#[inline]
unsafe fn leave(monitor: *mut Registered) {
    if Registered::condemned(monitor) {
        // SAFETY: the recorder gave it up in `destroy`, which left it for here.
        drop(unsafe { Box::from_raw(monitor) });
    }
}

unsafe extern "C" fn destroy(context: *mut c_void) {
    let monitor: *mut Registered = context.cast();
    if !Registered::condemn(monitor) {
        // SAFETY: the recorder calls this once, and nothing else of this monitor after or at the
        // same time, but for a callback on this thread, which `condemn` has just ruled out.
        drop(unsafe { Box::from_raw(monitor) });
    }
}

/// The text behind the colon for the library that holds this function, as the plug-in macro
/// instantiates it; none if it was not named as a monitor.
pub(crate) fn monitor_options(own: fn()) -> Option<String> {
    let mut object = MaybeUninit::<ObjectOfAddress>::zeroed();
    // SAFETY: `dladdr` takes any address, and fills the structure or leaves its zeros.
    let object = unsafe {
        dladdr(own as *const c_void, object.as_mut_ptr());
        object.assume_init()
    };
    if object.file.is_null() {
        return None;
    }
    // SAFETY: the loader's name of a loaded library, that of this code, ends with a zero.
    let path = unsafe { CStr::from_ptr(object.file) }.to_bytes();
    // Monitors are known by their file names.
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let ask = |buffer: &mut [u8]| {
        let (start, size) = (buffer.as_mut_ptr().cast(), buffer.len());
        call!(monitor_options(file.as_ptr().cast(), file.len(), start, size))
    };
    let length = ask(&mut [0; 1]).checked_sub(1)?;
    let mut buffer = vec![0; length + 1];
    ask(&mut buffer);
    buffer.truncate(length);
    Some(String::from_utf8_lossy(&buffer).into_owned())
}

/// A copy of the standard error output, out of the way of the numbers that programs count on.
pub(crate) fn copy_of_stderr() -> Option<File> {
    const DUPLICATE_CLOSED_ON_EXEC: c_int = 1030;
    const STDERR: c_int = 2;
    const FIRST: c_int = 200;
    // SAFETY: this command takes a number and makes a descriptor; none is there to be harmed.
    let copy = unsafe { fcntl(STDERR, DUPLICATE_CLOSED_ON_EXEC, FIRST) };
    // SAFETY: it was just made, and nobody else has it.
    (copy >= 0).then(|| unsafe { File::from_raw_fd(copy) })
}

/// Makes a shared library (`crate-type = ["cdylib"]`) a plug-in for `heaptide run --monitor`.
///
/// The function takes the options (the text behind the colon, empty if there is none) and returns
/// a monitor, or says in a sentence what is wrong with them. It runs when the library is loaded:
/// the program has not begun yet. What goes wrong is said in one line, and the program goes on.
///
/// ```
/// use heaptide::{Monitor, OptionsError};
///
/// struct Nothing;
/// impl Monitor for Nothing {}
///
/// fn create(options: &str) -> Result<Nothing, OptionsError> {
///     match options {
///         "" => Ok(Nothing),
///         other => Err(OptionsError::new(format!("`{other}` is not understood"))),
///     }
/// }
///
/// heaptide::plugin!(create);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! plugin {
    ($create:expr) => {
        const _: () = {
            static PLUGIN: $crate::monitor::Plugin = $crate::monitor::Plugin::new();
            extern "C" fn constructor() {
                fn own() {}
                PLUGIN.start(own, module_path!(), $create);
            }
            extern "C" fn destructor() {
                PLUGIN.end();
            }
            // SAFETY: the loader calls what stands in these sections once, with C's calling
            // convention: after the libraries that this one needs are ready, and before this one
            // is unloaded.
            #[used]
            #[unsafe(link_section = ".init_array")]
            static CONSTRUCTOR: extern "C" fn() = constructor;
            // SAFETY: as above.
            #[used]
            #[unsafe(link_section = ".fini_array")]
            static DESTRUCTOR: extern "C" fn() = destructor;
        };
    };
}

/// Defines functions that the program can call by their names in a plug-in, with nothing to take
/// and to give: a program in C declares them weak, and calls them if they are there.
///
/// ```
/// heaptide::export! {
///     /// Begins what the monitor is to see.
///     fn my_monitor_begin() {
///         println!("begun");
///     }
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export {
    ($($(#[$attribute:meta])* fn $name:ident() $body:block)*) => { $(
        $(#[$attribute])*
        // SAFETY: the name is the plug-in's own to choose; a program that defines it too gets its
        // own, as with every library.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() $body
    )* };
}
