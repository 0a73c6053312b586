//! Takes a picture of a recorded program: its live blocks, the registers of its threads and a copy
//! of its memory, all of one moment.
//!
//! All threads are stopped, one of them forks by a system call that this command makes in it, and
//! all continue. The copy never runs: it is read, killed, and reaped by another call. Where a fork
//! is refused, the program is stopped until its memory was read.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use heaptide_format::attachment::Attachment;
use heaptide_format::live_blocks::{LEAF_WORDS, REGION_BITS, REGION_ENTRY_BYTES, leaf_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::call::Caller;
use crate::error::{Error, field};
use crate::machine;
use crate::memory::{Mapping, Memory};
use crate::pages::{self, Pages};
use crate::process::Process;
use crate::ptrace::{self, Event};
use crate::session::{Pause, apart};
use crate::threads::{Stopped, number_inside, stop_others, threads};

/// Attempts to find all threads outside of the recorder and the allocator.
const ATTEMPTS: usize = 50;
/// The time between them.
const BETWEEN: Duration = Duration::from_micros(300);
/// The innermost frames of a thread that show whether it is inside.
const FRAMES: usize = 8;
/// How long the end of a copy may take.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// A range of addresses.
pub type Range = std::ops::Range<u64>;

/// A stopped thread.
#[derive(Clone, Debug)]
pub struct ThreadState {
    /// Its thread id.
    pub tid: i32,
    /// Its general registers.
    pub registers: Vec<u64>,
    /// The stack pointer.
    pub sp: u64,
    /// The thread pointer.
    pub pointer: u64,
}

/// A program at one moment.
#[derive(Debug)]
pub struct Picture {
    /// Its threads.
    pub threads: Vec<ThreadState>,
    /// Its mappings, in order of address.
    pub mappings: Vec<Mapping>,
    /// The addresses of live blocks in ascending order, and the number of the site of each.
    pub live: Vec<(u64, u32)>,
    /// The usable sizes of blocks of which the allocator cannot be asked, likewise: numbers of
    /// [`heaptide_format::live_blocks::size_of_number`].
    pub sizes: Vec<(u64, u32)>,
    /// The recorder's own memory, except that of its library.
    pub own: Vec<Range>,
    /// The path of its library.
    pub recorder: String,
    /// Whether the memory is that of a copy, so that the program runs.
    pub is_copy: bool,
    /// Number of threads that were in the middle of an allocation or a free.
    pub busy: usize,
    memory: Memory,
    /// The memory of the program, if the other one is that of a copy.
    program: Option<Memory>,
    /// The pages of both.
    pages: Vec<Pages>,
}

impl Picture {
    /// Returns the parts of a range whose pages exist, in order: the others were never written, and
    /// must not be read. A copy does not inherit the pages of shared memory, so those of the
    /// program count, too.
    pub fn existing(&self, range: Range) -> Vec<Range> {
        pages::existing(&self.pages, range)
    }

    /// Reads memory: of the copy, or what that did not inherit, of the running program. Returns the
    /// number of bytes that could be read.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        let read = self.memory.read_some(address, bytes);
        match &self.program {
            Some(program) if read < bytes.len() => {
                read + program.read_some(address + read as u64, &mut bytes[read..])
            }
            _ => read,
        }
    }
}

/// The result of work on a picture.
#[derive(Debug)]
pub struct Taken<T> {
    /// The result.
    pub result: T,
    /// How long the threads of the program were stopped.
    pub pause: Pause,
}

/// Takes a picture of a process that is recorded, and calls `work` with it. `waiting` is a thread
/// that waits in the recorder for this, by the number that the program sees: the program is at its
/// end, and stays stopped, since other threads may not survive without what it has destroyed.
///
/// Errors: the process is not recorded by the library, may not be traced, or has ended.
pub fn take<T: Send + 'static>(
    pid: Pid,
    waiting: Option<u32>,
    work: impl FnOnce(&Picture) -> T + Send + 'static,
) -> Result<Taken<T>, Error> {
    apart(move || {
        let process = Process::look_at(pid)?;
        let Some(loaded) = process.loaded()? else {
            return Err(Error::new(format!(
                "process {pid} is not recorded by the recorder's library; start it with \
                 `heaptide run`"
            )));
        };
        process.modules.read_all();
        let mut pause = Pause::default();
        if waiting.is_none() && may_fork(pid) {
            let (stopped, copy) = by_fork(&process, &loaded.state, &mut pause)?;
            if let Some(copy) = copy {
                let held = Held { process: &process, copy, pause: &mut pause };
                let result = work(&stopped.with(&process, Some(copy))?);
                drop(held);
                return Ok(Taken { result, pause });
            }
        }
        let Outside { stopped, busy, since } = stop_outside(&process, waiting, &mut pause)?;
        let read = of_stopped(&process, &loaded.state, &stopped, busy)?;
        let result = work(&read.with(&process, None)?);
        drop(stopped);
        pause.add(since.elapsed());
        Ok(Taken { result, pause })
    })
}

/// Returns whether a thread of a process may be made to fork: a filter of system calls could end
/// the process, and a shadow stack prevents injected calls.
fn may_fork(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let has_filter = field(&status, "Seccomp").is_none_or(|mode| mode != "0");
    let has_shadow = field(&status, "x86_Thread_features").is_some_and(|f| f.contains("shstk"));
    !has_filter && !has_shadow
}

/// A forked copy of a process.
#[derive(Clone, Copy, Debug)]
struct Copy {
    pid: Pid,
    /// Its process id in the program.
    number: u64,
}

/// Reads what a copy does not have, and makes a copy; none if the program cannot fork.
fn by_fork(
    process: &Process,
    state: &Attachment,
    pause: &mut Pause,
) -> Result<(Read, Option<Copy>), Error> {
    let Outside { mut stopped, busy, since } = stop_outside(process, None, pause)?;
    let read = of_stopped(process, state, &stopped, busy)?;
    let copy = fork(process, &mut stopped);
    drop(stopped);
    pause.add(since.elapsed());
    Ok((read, copy))
}

/// What is read while the threads of a program are stopped.
struct Read {
    threads: Vec<ThreadState>,
    mappings: Vec<Mapping>,
    live: Vec<LeafPart>,
    sizes: Vec<LeafPart>,
    own: Vec<Range>,
    busy: usize,
}

impl Read {
    /// Returns the picture with the memory of a copy, or that of the program.
    fn with(self, process: &Process, copy: Option<Copy>) -> Result<Picture, Error> {
        let open = |pid| Memory::open(pid).map_err(|error| Error::refused(pid, &error));
        let program = open(process.pid)?;
        let both = copy.map(|copy| copy.pid).into_iter().chain([process.pid]);
        let pages: io::Result<Vec<Pages>> = both.map(Pages::open).collect();
        let (memory, program) = match copy {
            Some(copy) => (open(copy.pid)?, Some(program)),
            None => (program, None),
        };
        Ok(Picture {
            threads: self.threads,
            mappings: self.mappings,
            live: numbers(&self.live),
            sizes: numbers(&self.sizes),
            own: self.own,
            recorder: process.recorder().map_or_else(String::new, |module| module.path.clone()),
            is_copy: copy.is_some(),
            busy: self.busy,
            memory,
            program,
            pages: pages.unwrap_or_default(), // then all pages count as existing
        })
    }
}

/// Has a stopped thread fork, and lets that thread continue.
fn fork(process: &Process, stopped: &mut Vec<Stopped>) -> Option<Copy> {
    let places = process.modules.places()?;
    let able = stopped.iter().enumerate().filter(|(_, thread)| process.is_on_own_stack(thread));
    // Of two, the one that does not wait with a timeout.
    let (at, _) = able.min_by_key(|(_, thread)| machine::is_timed(&thread.registers))?;
    let mut caller = Caller::new(&process.memory, stopped.swap_remove(at), places).ok()?;
    let (pid, number) = caller.fork().ok()?;
    Some(Copy { pid, number })
}

/// A copy that ends when this is dropped, also if the work on it fails.
struct Held<'a> {
    process: &'a Process,
    copy: Copy,
    pause: &'a mut Pause,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        end(self.process, self.copy, self.pause);
    }
}

/// Kills a copy, and has the program, whose child it is, reap it.
fn end(process: &Process, copy: Copy, pause: &mut Pause) {
    let _ = kill(copy.pid, Signal::SIGKILL); // it may have been killed
    let until = Instant::now() + ENDS_WITHIN;
    while !matches!(ptrace::event(copy.pid), Ok(Event::Gone) | Err(_)) && Instant::now() < until {
        ptrace::await_event();
    }
    let Some(places) = process.modules.places() else { return };
    for tid in threads(process.pid).unwrap_or_default() {
        let start = Instant::now();
        let Ok(Some(thread)) = Stopped::new(tid) else { continue };
        if !process.is_on_own_stack(&thread) {
            continue;
        }
        let reaped = Caller::new(&process.memory, thread, places)
            .and_then(|mut caller| caller.reap(copy.number));
        pause.add(start.elapsed());
        if reaped.is_ok() {
            return;
        }
    }
}

/// Stopped threads.
struct Outside {
    stopped: Vec<Stopped>,
    /// How many are inside the recorder or the allocator that it calls.
    busy: usize,
    /// When they were stopped.
    since: Instant,
}

/// Stops all threads, if possible while none is inside the recorder or the allocator that it calls,
/// because the table of blocks is incomplete then. Adds the pauses of other attempts.
fn stop_outside(
    process: &Process,
    waiting: Option<u32>,
    pause: &mut Pause,
) -> Result<Outside, Error> {
    let refused = |error| Error::refused(process.pid, &error);
    let code = process.recorder().map(|module| module.low..module.high).unwrap_or_default();
    let mut attempt = 0;
    loop {
        let since = Instant::now();
        let stopped = stop_others(process.pid, &[]).map_err(refused)?;
        let is_inside = |thread: &&Stopped| {
            if waiting.is_some() && number_inside(thread.tid) == waiting {
                return false;
            }
            let frames = thread.frames(&process.memory, &process.modules);
            frames.iter().take(FRAMES).any(|frame| code.contains(&frame.pc))
        };
        let busy = stopped.iter().filter(is_inside).count();
        attempt += 1;
        if busy == 0 || attempt == ATTEMPTS {
            return Ok(Outside { stopped, busy, since });
        }
        drop(stopped);
        pause.add(since.elapsed());
        thread::sleep(BETWEEN);
    }
}

/// Reads all that a copy does not have: registers, mappings, and the tables of the recorder, which
/// children do not inherit.
fn of_stopped(
    process: &Process,
    state: &Attachment,
    stopped: &[Stopped],
    busy: usize,
) -> Result<Read, Error> {
    let refused = |error| Error::refused(process.pid, &error);
    let mappings = crate::memory::mappings(process.pid).map_err(refused)?;
    let memory = &process.memory;
    let live = read_table(memory, state.blocks_at, &mappings);
    let sizes = read_table(memory, state.sizes_at, &mappings);
    let word = |at: u64| memory.word(at).unwrap_or(0);
    let own = state.arenas_at.iter().map(|&at| word(at)..word(at) + word(at + 8));
    let threads = stopped.iter().map(|thread| {
        let values = machine::known(&thread.registers).values;
        ThreadState {
            tid: thread.tid.as_raw(),
            registers: values.to_vec(),
            sp: values[machine::SP],
            pointer: machine::thread_pointer(&thread.registers),
        }
    });
    Ok(Read {
        threads: threads.collect(),
        mappings,
        live,
        sizes,
        own: own.filter(|range| !range.is_empty()).collect(),
        busy,
    })
}

/// A part of a leaf: the address of its first cell, and its numbers.
#[derive(Debug)]
struct LeafPart {
    start: u64,
    words: Vec<u8>,
}

/// Reads the parts of a table for all memory in which blocks can be.
fn read_table(memory: &Memory, table: u64, mappings: &[Mapping]) -> Vec<LeafPart> {
    let word = |at: u64| memory.word(at).unwrap_or(0);
    let (root, mask) = (word(table), word(table + 8));
    let mut parts = Vec::new();
    if table == 0 || root == 0 {
        return parts;
    }
    for mapping in mappings.iter().filter(|mapping| mapping.is_written) {
        for region in mapping.low >> REGION_BITS..=(mapping.high - 1) >> REGION_BITS {
            let mut entries = [0; REGION_ENTRY_BYTES as usize];
            if memory.read(root + (region & mask) * REGION_ENTRY_BYTES, &mut entries).is_err() {
                continue;
            }
            let (even, odd) = entries.split_at(8);
            for (entry, offset) in [(even, 0), (odd, 8)] {
                let entry = entry.try_into().map_or(0, u64::from_ne_bytes);
                let Some(leaf) = leaf_of(entry, region, machine::USER_ADDRESS_BITS) else {
                    continue;
                };
                let base = region << REGION_BITS;
                let low = mapping.low.max(base) - base;
                let high = mapping.high.min(base + ((LEAF_WORDS as u64) << 4)) - base;
                let mut words = vec![0; (high - low) as usize / 4];
                if memory.read(leaf + low / 4, &mut words).is_ok() {
                    parts.push(LeafPart { start: base + low + offset, words });
                }
            }
        }
    }
    parts
}

/// Returns the addresses that have a number, in ascending order.
fn numbers(parts: &[LeafPart]) -> Vec<(u64, u32)> {
    let of_part = |part: &LeafPart| {
        let (words, _) = part.words.as_chunks::<4>();
        let start = part.start;
        let numbers = words.iter().map(|word| u32::from_ne_bytes(*word)).zip(0u64..);
        let used = numbers.filter(|(number, _)| *number != 0);
        used.map(|(number, index)| (start + index * 16, number)).collect::<Vec<_>>()
    };
    let mut all: Vec<(u64, u32)> = parts.iter().flat_map(of_part).collect();
    if !all.is_sorted() {
        all.sort_unstable();
    }
    all
}
