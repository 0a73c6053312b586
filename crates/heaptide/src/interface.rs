//! Finds the function table of libheaptide.so, and wraps it in safe functions.
//!
//! All unsafe code of this crate is here, except for a future's pinned field in `task.rs`: calls
//! through the table, memory lent to the recorder, and attributes of a plug-in's constructor. The
//! layout is that of `struct heaptide_interface` in `include/heaptide.h`.
//!
//! In a process without the recorder, every function here does nothing and returns zero.

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

/// The output of `resolve`: `struct heaptide_block`.
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

/// `struct heaptide_measurement`: used by the recorder from begin to end, and pinned meanwhile.
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
    start_with: unsafe extern "C" fn(Text, usize) -> c_int,
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

/// The table has not been looked up yet.
const UNKNOWN: usize = 0;
/// This process has no recorder, and none can be loaded later.
const ABSENT: usize = 1;

/// The variable of the section `heaptide_link`, which the recorder finds in static programs, where
/// nothing can look up the recorder.
#[repr(C)]
struct Link {
    /// `UNKNOWN`, `ABSENT`, or the address of the table.
    state: AtomicUsize,
    /// Bytes of the table, which the recorder reads.
    needed: usize,
}

// SAFETY: nothing else is in this section, and the recorder writes only to `state`.
#[unsafe(link_section = "heaptide_link")]
static LINK: Link = Link { state: AtomicUsize::new(UNKNOWN), needed: size_of::<Table>() };

/// Returns the table if the recorder is loaded. After the first call this takes a load and a
/// branch.
#[inline]
fn table() -> Option<&'static Table> {
    let state = LINK.state.load(Ordering::Acquire);
    if state > ABSENT {
        // SAFETY: `find` stores no values above `ABSENT` except the address of a table.
        return Some(unsafe { &*ptr::with_exposed_provenance(state) });
    }
    if state == ABSENT { None } else { find() }
}

/// Looks up the table. Concurrent calls have the same result.
#[cold]
fn find() -> Option<&'static Table> {
    /// `RTLD_DEFAULT`: the program's own search order.
    const EVERYWHERE: *mut c_void = ptr::null_mut();
    // SAFETY: the name is zero-terminated.
    let elsewhere = || unsafe { dlsym(EVERYWHERE, c"heaptide_interface".as_ptr()) }.cast_const();
    #[cfg(feature = "recorder")]
    let found = heaptide_embedded::interface().unwrap_or_else(elsewhere);
    #[cfg(not(feature = "recorder"))]
    let found = elsewhere();
    let table = found.cast::<Table>();
    // SAFETY: an object of this name begins with version and size, and is never modified. A
    // reference to the whole table is created only if the size covers it.
    let fits = !table.is_null()
        && unsafe { (*table).version >= 1 && (*table).size as usize >= size_of::<Table>() };
    LINK.state.store(if fits { table.expose_provenance() } else { ABSENT }, Ordering::Release);
    // SAFETY: the object is at least as large as `Table`, constant, and its library is not
    // unloaded.
    fits.then(|| unsafe { &*table })
}

/// Converts a string to the recorder's form: pointer and length.
fn text(text: &str) -> (Text, usize) {
    (text.as_ptr().cast(), text.len())
}

/// Calls a function of the table; the second form has the value to return without the recorder.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => { call!($name($($argument),*), Default::default()) };
    ($name:ident($($argument:expr),*), $absent:expr) => {
        match table() {
            // SAFETY: the recorder accepts any value. Pointers that it reads or writes come from
            // references that outlive the call; addresses of blocks are only looked up.
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
    // 0: the profile had no space for the name.
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

/// Labels the memory that starts at `address`; with `region_bytes`, it need not be a block.
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

/// Returns the block that contains an address, and the bytes of its label.
pub(crate) fn resolve(address: *const u8) -> Option<(RawBlock, Option<&'static [u8]>)> {
    let mut block = MaybeUninit::<RawBlock>::zeroed();
    if call!(resolve(address.cast(), block.as_mut_ptr())) == 0 {
        return None;
    }
    // SAFETY: all zeros are a valid `RawBlock`, and the recorder has filled it.
    let block = unsafe { block.assume_init() };
    // SAFETY: the bytes of a label are never freed.
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

/// Ends a measurement even if its closure panics, because the recorder must release its memory.
struct Measuring<'a>(Pin<&'a mut Measurement>);

impl Measuring<'_> {
    fn memory(&mut self) -> *mut Measurement {
        // SAFETY: nothing is moved out of it; the recorder writes in place.
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
        // The closure panicked, so the counters are discarded.
        call!(measure_end(self.memory(), ptr::null_mut()));
    }
}

/// Runs the closure between begin and end of a measurement. An inner closure returns before the
/// outer one, so measurements end in reverse order, on their thread.
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

pub(crate) fn start_with(settings: &str) -> bool {
    call!(start_with(settings.as_ptr().cast(), settings.len())) != 0
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

/// Whether a switch applies to the thread or the process.
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

/// Passes a monitor to the recorder, which owns it until it destroys it. Returns 0 if it was
/// rejected, and then drops it.
pub(crate) fn monitor_register(mut name: [u8; 32], monitor: Registered) -> u64 {
    // Ensure a zero at the end.
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
        // SAFETY: it was rejected, so nothing else refers to it.
        drop(unsafe { Box::from_raw(context) });
    }
    id
}

pub(crate) fn monitor_deregister(id: u64) -> bool {
    call!(monitor_deregister(id)) != 0
}

/// A panic in a monitor aborts, because it cannot unwind through `extern "C"`.
unsafe extern "C" fn allocated(
    context: *mut c_void,
    block: *mut c_void,
    requested: usize,
    usable: usize,
) {
    let monitor: *mut Registered = context.cast();
    // SAFETY: it was registered with a `Registered` as context, which lives until `destroy`; that
    // delays its end while a call of this thread is in it.
    unsafe { (*monitor).enter(|inner| inner.allocated(block.cast(), requested, usable)) };
    // SAFETY: as above; the reference into it has ended.
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
        // SAFETY: `destroy` left it to this call, and the recorder no longer refers to it.
        drop(unsafe { Box::from_raw(monitor) });
    }
}

unsafe extern "C" fn destroy(context: *mut c_void) {
    let monitor: *mut Registered = context.cast();
    if !Registered::condemn(monitor) {
        // SAFETY: the recorder calls this once, and no other function of this monitor at the same
        // time or later, except for a callback on this thread, which `condemn` has ruled out.
        drop(unsafe { Box::from_raw(monitor) });
    }
}

/// Returns the text after the colon for the library that contains this function, which is
/// instantiated by the plug-in macro; `None` if it was not named as a monitor.
pub(crate) fn monitor_options(own: fn()) -> Option<String> {
    let mut object = MaybeUninit::<ObjectOfAddress>::zeroed();
    // SAFETY: `dladdr` accepts any address, and fills the structure or leaves it zero.
    let object = unsafe {
        dladdr(own as *const c_void, object.as_mut_ptr());
        object.assume_init()
    };
    if object.file.is_null() {
        return None;
    }
    // SAFETY: the loader's name of a loaded library, which contains this code, is zero-terminated.
    let path = unsafe { CStr::from_ptr(object.file) }.to_bytes();
    // Monitors are identified by file name.
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

/// Duplicates standard error to a high descriptor, because programs may expect certain numbers.
pub(crate) fn copy_of_stderr() -> Option<File> {
    const DUPLICATE_CLOSED_ON_EXEC: c_int = 1030;
    const STDERR: c_int = 2;
    const FIRST: c_int = 200;
    // SAFETY: this command takes a number and creates a descriptor; it affects no other.
    let copy = unsafe { fcntl(STDERR, DUPLICATE_CLOSED_ON_EXEC, FIRST) };
    // SAFETY: the descriptor was just created, and nothing else uses it.
    (copy >= 0).then(|| unsafe { File::from_raw_fd(copy) })
}

/// Turns a shared library (`crate-type = ["cdylib"]`) into a plug-in for `heaptide run --monitor`.
///
/// The function takes the options (the text after the colon, or an empty string) and returns a
/// monitor, or an error that describes what is wrong with them. It runs when the library is loaded,
/// before the program starts. Errors are reported in one line, and the program continues.
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
            // SAFETY: the loader calls the functions in these sections once, with C's calling
            // convention: the constructor after the libraries that this one needs are initialized,
            // and the destructor before this one is unloaded.
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

/// Exports functions of a plug-in, without parameters or result, that the program can call by name:
/// a program in C declares them weak, and calls them if they are defined.
///
/// ```
/// heaptide::export! {
///     /// Starts counting.
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
        // SAFETY: the plug-in chooses the name. A program that defines it, too, calls its own
        // function, as with every library.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() $body
    )* };
}
