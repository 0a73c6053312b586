//! Stacks of the recorder for rare work that needs much stack: the program's stack may have a few
//! KiB left. Code that runs on the program's stack uses at most 2 KiB, which `cargo xtask tidy`
//! checks.
//!
//! Meanwhile the thread's signals are blocked. A handler would run on this stack: it may need more
//! of it than there is, and that of a garbage collector would treat the stack pointer as the
//! program's.

use crate::sys::{arch, confined, front, kernel, memory};

/// Size of a stack that is mapped for one call. It holds paths and buffers.
const BYTES: usize = 128 << 10;

/// Calls `work` on a stack that is mapped for it. Returns none if there is no memory.
#[cold]
#[inline(never)]
pub fn call<R>(work: impl FnOnce() -> R) -> Option<R> {
    if front::is_under_valgrind() {
        return Some(work()); // valgrind treats memory of another stack as never written
    }
    let memory = memory::map_briefly(BYTES);
    if memory.is_null() {
        return None;
    }
    // SAFETY: the end of fresh memory, which is used for nothing else.
    let result = unsafe { call_at(memory.wrapping_add(BYTES), work) };
    // SAFETY: the work is done, and nothing refers to its stack.
    unsafe { kernel::unmap(memory, BYTES) };
    result
}

/// Calls `work` on the stack that ends at `top`. If the program has forbidden itself system calls,
/// its signals cannot be blocked: then `work` runs on the program's stack.
///
/// # Safety
/// `top` is 16-aligned, and there is enough memory below it that nothing else uses.
#[cold]
#[inline(never)]
pub unsafe fn call_at<R>(top: *mut u8, work: impl FnOnce() -> R) -> Option<R> {
    if !confined::may_call() {
        return Some(work());
    }
    let mut job = Job { work: Some(work), result: None };
    let run = run_of(&job);
    let before = kernel::block_signals();
    arch::switch_stack(top, run, &raw mut job as *mut u8);
    kernel::restore_signals(before);
    job.result
}

/// The work, and its result.
struct Job<F, R> {
    work: Option<F>,
    result: Option<R>,
}

fn run_of<F: FnOnce() -> R, R>(_: &Job<F, R>) -> extern "C" fn(*mut u8) {
    run::<F, R>
}

extern "C" fn run<F: FnOnce() -> R, R>(job: *mut u8) {
    // SAFETY: `call_at` passes a job of this type, and waits.
    let job = unsafe { &mut *(job as *mut Job<F, R>) };
    job.result = job.work.take().map(|work| work());
}
