//! OpenMP: the threads of a parallel region run in the scope path of the thread that starts it, and
//! a task in that of the thread that creates it.
//!
//! The functions of the runtime libraries that start regions and create tasks are intercepted in
//! place ([`crate::intercept::openmp`]). For a thread outside of all scopes they continue
//! unchanged. Otherwise the library gets a function of this module in place of the program's, and a
//! [`Region`], [`Task`] or [`Microtask`] in place of its data.
//!
//! Functions with calls to the program or the library are in a section of their own ([`code`]): a
//! thread in one of these calls is not inside the recorder, although its stack contains frames of
//! this library.

use crate::Preload;
use crate::arch::{self, REGISTERS};
use crate::microtask::Microtask;
use core::mem::{MaybeUninit, offset_of, transmute};
use heaptide_recorder::api::inheritance::{Before, DEPTH_AT, enter, leave};
use heaptide_recorder::api::interface::context;
use heaptide_recorder::sys::range::Range;
use heaptide_recorder::sys::{confined, kernel};

/// The most arguments of an intercepted function.
const ARGUMENTS_MAX: usize = 11;

/// Arguments by position; those that a function does not have are 0.
type Arguments = [usize; ARGUMENTS_MAX];

/// A function with at most [`ARGUMENTS_MAX`] arguments; additional ones are ignored.
type Moved = extern "C" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> usize;

/// The body of an intercepted function, which gets the arguments in registers, those on the stack,
/// and the function.
pub type Body = extern "C" fn(&[usize; REGISTERS], *const usize, &Function) -> usize;

/// An intercepted function. The stub at its entry passes it to [`entry`].
#[repr(C)]
pub struct Function {
    body: Body,
    /// The moved function.
    moved: Moved,
}

/// The intercepted functions, with their bodies: those of GNU's library, and those of LLVM's and
/// Intel's, which also have the former.
pub static FUNCTIONS: [(&[u8], Body); 17] = [
    (b"GOMP_parallel\0", parallel),
    (b"GOMP_parallel_reductions\0", parallel_reductions),
    (b"GOMP_parallel_sections\0", parallel),
    (b"GOMP_parallel_loop_static\0", parallel),
    (b"GOMP_parallel_loop_dynamic\0", parallel),
    (b"GOMP_parallel_loop_guided\0", parallel),
    (b"GOMP_parallel_loop_runtime\0", parallel),
    (b"GOMP_parallel_loop_nonmonotonic_dynamic\0", parallel),
    (b"GOMP_parallel_loop_nonmonotonic_guided\0", parallel),
    (b"GOMP_parallel_loop_nonmonotonic_runtime\0", parallel),
    (b"GOMP_parallel_loop_maybe_nonmonotonic_runtime\0", parallel),
    (b"GOMP_task\0", task),
    (b"GOMP_taskloop\0", task_loop),
    (b"GOMP_taskloop_ull\0", task_loop),
    (b"__kmpc_fork_call\0", fork),
    (b"__kmpc_fork_teams\0", fork),
    (b"__kmpc_omp_task_alloc\0", allocate_task),
];

/// Returns the target of the stubs of all functions.
pub fn entry() -> u64 {
    arch::openmp_entry!(DEPTH_AT, offset_of!(Function, body), offset_of!(Function, moved))
}

/// Returns the code of this module that calls the program or its libraries.
pub fn code() -> Range {
    unsafe extern "C" {
        #[link_name = "__start_heaptide_openmp"]
        static START: u8;
        #[link_name = "__stop_heaptide_openmp"]
        static STOP: u8;
    }
    Range { low: &raw const START as u64, high: &raw const STOP as u64 }
}

impl Function {
    pub fn new(body: Body, moved: u64) -> Function {
        // SAFETY: the moved start of a function that takes such arguments.
        Function { body, moved: unsafe { transmute::<u64, Moved>(moved) } }
    }

    #[inline(always)]
    fn call(&self, arguments: &Arguments) -> usize {
        let [a, b, c, d, e, f, g, h, i, j, k] = *arguments;
        (self.moved)(a, b, c, d, e, f, g, h, i, j, k)
    }
}

/// Returns the first `count` arguments.
#[inline(always)]
fn arguments(registers: &[usize; REGISTERS], stack: *const usize, count: usize) -> Arguments {
    let mut all = [0; ARGUMENTS_MAX];
    for (index, argument) in all.iter_mut().enumerate().take(count) {
        *argument = match registers.get(index) {
            Some(&register) => register,
            // SAFETY: a word of the caller's frame, or of a frame further out.
            None => unsafe { *stack.add(index - REGISTERS) },
        };
    }
    all
}

#[inline(always)]
fn finish(before: Option<Before>) {
    if let Some(before) = before {
        leave::<Preload>(&before);
    }
}

/// A parallel region of GNU's library: the data of its threads. On the stack of the thread that
/// starts it, which waits for the end of the region.
#[repr(C)]
struct Region {
    /// The first word of the program's data, which the library reads if the region has reductions.
    head: usize,
    function: extern "C" fn(usize),
    data: usize,
    context: u64,
}

/// `(function, data, threads, …)`
#[unsafe(link_section = "heaptide_openmp")]
extern "C" fn parallel(
    registers: &[usize; REGISTERS],
    stack: *const usize,
    function: &Function,
) -> usize {
    let mut arguments = arguments(registers, stack, 8);
    let region = region_of(&arguments, 0);
    (arguments[0], arguments[1]) = (in_region as *const () as usize, address(&region));
    function.call(&arguments)
}

/// The same, with data that begins with a pointer to the reductions.
#[unsafe(link_section = "heaptide_openmp")]
extern "C" fn parallel_reductions(
    registers: &[usize; REGISTERS],
    stack: *const usize,
    function: &Function,
) -> usize {
    let mut arguments = arguments(registers, stack, 4);
    // SAFETY: the library reads this word, too.
    let head = unsafe { *(arguments[1] as *const usize) };
    let region = region_of(&arguments, head);
    (arguments[0], arguments[1]) = (in_region as *const () as usize, address(&region));
    function.call(&arguments)
}

fn region_of(&[function, data, ..]: &Arguments, head: usize) -> Region {
    // SAFETY: the program's function for the region.
    let function = unsafe { transmute::<usize, extern "C" fn(usize)>(function) };
    Region { head, function, data, context: context::<Preload>() }
}

fn address<T>(value: &T) -> usize {
    core::ptr::from_ref(value) as usize
}

#[unsafe(link_section = "heaptide_openmp")]
extern "C" fn in_region(region: &Region) {
    let before = enter::<Preload>(region.context);
    (region.function)(region.data);
    finish(before);
}

/// Words at the beginning of a task's data that the library may access: the event of a detachable
/// task; the bounds of a loop and its reductions.
const WORDS: usize = 3;

/// A task of GNU's library: what precedes the program's data in the data of the task.
#[derive(Clone, Copy)]
#[repr(C)]
struct Task {
    /// The first words of the program's data as the library sees them.
    words: [usize; WORDS],
    /// How many of these the library writes.
    written: usize,
    function: extern "C" fn(usize),
    /// The program's function that copies its data; none if the bytes are copied.
    copy: Option<extern "C" fn(usize, usize)>,
    context: u64,
    /// The address of the program's data, for [`copy_task`].
    data: usize,
    bytes: usize,
    /// The distance of the program's data from the beginning of a copy.
    offset: usize,
}

/// `(function, data, copy, bytes, alignment, if, flags, …)`
#[unsafe(link_section = "heaptide_openmp")]
extern "C" fn task(
    registers: &[usize; REGISTERS],
    stack: *const usize,
    function: &Function,
) -> usize {
    /// The flag of a detachable task, to whose data the library writes the event.
    const DETACHABLE: usize = 1 << 13;
    let arguments = arguments(registers, stack, 10);
    let task = task_of(&arguments, usize::from(arguments[6] & DETACHABLE != 0));
    create(function, &arguments, task)
}

/// `(function, data, copy, bytes, alignment, flags, tasks, priority, start, end, step)`
#[unsafe(link_section = "heaptide_openmp")]
extern "C" fn task_loop(
    registers: &[usize; REGISTERS],
    stack: *const usize,
    function: &Function,
) -> usize {
    let arguments = arguments(registers, stack, 11);
    let task = task_of(&arguments, 2);
    create(function, &arguments, task)
}

fn task_of(&[function, data, copy, bytes, alignment, ..]: &Arguments, written: usize) -> Task {
    let mut words = [0; WORDS];
    let known = words.iter_mut().take(bytes / size_of::<usize>()).enumerate();
    for (index, word) in known {
        // SAFETY: within the program's data, of this many bytes; they may have any alignment.
        *word = unsafe { (data as *const usize).add(index).read_unaligned() };
    }
    // SAFETY: functions of these types, by the library's interface.
    let (function, copy) = unsafe {
        (
            transmute::<usize, extern "C" fn(usize)>(function),
            transmute::<usize, Option<extern "C" fn(usize, usize)>>(copy),
        )
    };
    let offset = size_of::<Task>().next_multiple_of(aligned(alignment));
    let context = context::<Preload>();
    Task { words, written, function, copy, context, data, bytes, offset }
}

fn aligned(alignment: usize) -> usize {
    alignment.max(align_of::<Task>())
}

/// The largest data of a task that is copied to the stack: threads can have small ones.
const ON_STACK_MAX: usize = 512;
/// The alignment of that copy.
const ON_STACK_ALIGNMENT: usize = 64;

#[repr(align(64))]
struct Copy(MaybeUninit<[u8; ON_STACK_MAX]>);

/// Creates a task, or those of a loop. Without a function that copies its data the task must not
/// get one: the library runs such tasks even if they were cancelled, and puts the data of all tasks
/// of a loop on the stack.
#[unsafe(link_section = "heaptide_openmp")]
fn create(function: &Function, arguments: &Arguments, task: Task) -> usize {
    let alignment = aligned(arguments[4]);
    let bytes = task.offset + task.bytes;
    let mut replaced = *arguments;
    replaced[0] = in_task as *const () as usize;
    (replaced[3], replaced[4]) = (bytes, alignment);
    if task.copy.is_some() {
        (replaced[1], replaced[2]) = (address(&task), copy_task as *const () as usize);
        return function.call(&replaced);
    }
    if bytes <= ON_STACK_MAX && alignment <= ON_STACK_ALIGNMENT {
        return create_on_stack(function, &mut replaced, &task);
    }
    let is_aligned = alignment <= kernel::page_bytes() as usize;
    let may_map = is_aligned && confined::may_map();
    let copy = if may_map { kernel::map_private(bytes) } else { core::ptr::null_mut() };
    if copy.is_null() {
        return function.call(arguments); // the task does not inherit its path
    }
    // SAFETY: a mapping of this size, to which nothing refers after the call.
    unsafe {
        task.write(copy);
        replaced[1] = copy as usize;
        let result = function.call(&replaced);
        kernel::unmap(copy, bytes);
        result
    }
}

#[inline(never)]
#[unsafe(link_section = "heaptide_openmp")]
fn create_on_stack(function: &Function, replaced: &mut Arguments, task: &Task) -> usize {
    let mut copy = Copy(MaybeUninit::uninit());
    let start = copy.0.as_mut_ptr().cast::<u8>();
    // SAFETY: the caller has checked that both fit.
    unsafe { task.write(start) };
    replaced[1] = start as usize;
    function.call(replaced)
}

impl Task {
    /// Writes the task and the program's data behind it.
    ///
    /// # Safety
    /// There is space for both, with the alignment of both.
    #[inline(always)]
    unsafe fn write(&self, to: *mut u8) {
        // SAFETY: the caller's contract; the data are those that the program passed.
        unsafe {
            to.cast::<Task>().write(*self);
            to.add(self.offset).copy_from_nonoverlapping(self.data as *const u8, self.bytes);
        }
    }
}

/// Copies a task's data, from those of [`create`] or from another copy.
#[unsafe(link_section = "heaptide_openmp")]
extern "C" fn copy_task(to: *mut Task, from: *const Task) {
    // SAFETY: both are a task's, and the space for the copy has the size and alignment that the
    // library got.
    unsafe {
        let task = *from;
        let data = to as usize + task.offset;
        if task.written == 1 {
            *(task.data as *mut usize) = task.words[0];
        }
        to.write(Task { data, ..task });
        match task.copy {
            Some(copy) => copy(data, task.data),
            None => (data as *mut u8).copy_from_nonoverlapping(task.data as *const u8, task.bytes),
        }
    }
}

#[unsafe(link_section = "heaptide_openmp")]
extern "C" fn in_task(task: &Task) {
    let data = address(task) + task.offset;
    for (index, word) in task.words.iter().enumerate().take(task.written) {
        // SAFETY: the library would have written them here.
        unsafe { *(data as *mut usize).add(index) = *word };
    }
    let before = enter::<Preload>(task.context);
    (task.function)(data);
    finish(before);
}

/// `(location, count, function, word…)`
#[unsafe(link_section = "heaptide_openmp")]
extern "C" fn fork(
    registers: &[usize; REGISTERS],
    stack: *const usize,
    function: &Function,
) -> usize {
    let &[location, count, called, ref first @ ..] = registers;
    let microtask = Microtask {
        function: called,
        count: count as u32 as usize,
        first: first.as_ptr(),
        rest: stack,
        context: context::<Preload>(),
    };
    let mut arguments = [0; ARGUMENTS_MAX];
    let replaced = in_microtask as *const () as usize;
    arguments[..4].copy_from_slice(&[location, 1, replaced, address(&microtask)]);
    function.call(&arguments)
}

#[unsafe(link_section = "heaptide_openmp")]
extern "C" fn in_microtask(global: *const i32, bound: *const i32, microtask: &Microtask) {
    let before = enter::<Preload>(microtask.context);
    // SAFETY: the program's function, with its arguments.
    unsafe { arch::call_microtask(microtask, global, bound) };
    finish(before);
}

/// A task of LLVM's library begins with these two words. The library keeps the task's function with
/// it, and copies both if it splits a loop.
#[repr(C)]
struct AllocatedTask {
    /// The data that it shares, behind the task and the bytes that were requested for it.
    shared: usize,
    function: usize,
}

/// The function of a task of LLVM's library, which gets the thread's number.
type TaskFunction = extern "C" fn(i32, &AllocatedTask) -> i32;

/// What follows a task of LLVM's library, directly below the data that it shares.
#[repr(C)]
struct Extension {
    function: TaskFunction,
    context: u64,
}

/// `(location, thread, flags, bytes, bytes of shared data, function)`
#[unsafe(link_section = "heaptide_openmp")]
extern "C" fn allocate_task(
    registers: &[usize; REGISTERS],
    stack: *const usize,
    function: &Function,
) -> usize {
    let mut arguments = arguments(registers, stack, 7);
    let [_, _, _, bytes, shared, called, ..] = arguments;
    arguments[3] = bytes.next_multiple_of(align_of::<Extension>()) + size_of::<Extension>();
    arguments[4] = shared.max(align_of::<Extension>());
    let allocated = function.call(&arguments);
    // SAFETY: the library's result.
    let Some(task) = (unsafe { (allocated as *mut AllocatedTask).as_mut() }) else {
        return allocated;
    };
    let end = (allocated + bytes).next_multiple_of(align_of::<Extension>());
    let extension = end as *mut Extension;
    // Another version of the library could place the data elsewhere.
    if task.function == called && task.shared == end + size_of::<Extension>() {
        // SAFETY: a function of this type; the space was requested above.
        unsafe {
            extension.write(Extension {
                function: transmute::<usize, TaskFunction>(called),
                context: context::<Preload>(),
            })
        };
        task.function = in_allocated_task as *const () as usize;
    }
    allocated
}

#[unsafe(link_section = "heaptide_openmp")]
extern "C" fn in_allocated_task(thread: i32, task: &AllocatedTask) -> i32 {
    // SAFETY: written when the task was allocated.
    let extension = unsafe { &*(task.shared as *const Extension).sub(1) };
    let before = enter::<Preload>(extension.context);
    let result = (extension.function)(thread, task);
    finish(before);
    result
}
