//! Puts the recorder into a static program at its start: no loader gives it one.
//!
//! The program is stopped before its first instruction. The library is mapped and relocated from
//! outside. Its thread-local block becomes part of the program's own: the segment that the C
//! library of the program copies for each thread is extended at its start, so that the offsets of
//! the program's variables stay the same. A list like that of a loader ([`tables`]) has the
//! program, with its functions ([`symbols`]), and the library.
//!
//! Then the program runs up to its first allocation, its constructors or `main`, where the C
//! library has set up its first thread. There the library is initialised as a loader would do it,
//! and changes the entries of the allocating functions, as it does in any program whose allocator
//! it cannot interpose.

mod executable;
mod executor;
mod library;
mod recognised;
mod remote;
mod symbols;
mod tables;
mod thread_local;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use nix::libc;
use nix::unistd::Pid;

use crate::error::{Error, State};
use crate::memory::Memory;
use crate::ptrace::{self, Event};
use executable::{Executable, HEADER_BYTES};
pub use executor::Executor;
use library::{Library, Placed, Surroundings};
use remote::Remote;
pub use symbols::Symbols;
use tables::{Contents, Object};
use thread_local::{Extended, Segment};

/// The time limit for all of it, after the program was executed.
const WITHIN: Duration = Duration::from_secs(20);

/// A program that is about to be executed, and will get the recorder.
#[derive(Debug)]
pub struct Insertion {
    thread: JoinHandle<Result<(), Error>>,
    /// The executor, if it is traced, is to be released.
    is_over: Arc<AtomicBool>,
    program: Arc<OnceLock<PathBuf>>,
    /// The signals that were blocked before.
    blocked: Option<nix::sys::signal::SigSet>,
}

impl Insertion {
    /// Follows a thread that waits to execute a static program, or to make a process that will, and
    /// will put a library into the program. If this command dies after the program was executed and
    /// before it is done, the process is killed.
    ///
    /// Errors: the process may not be traced.
    pub fn begin(
        executor: Executor,
        library: &Path,
        symbols: &Arc<Symbols>,
    ) -> Result<Insertion, Error> {
        let blocked = ptrace::block_reports().ok();
        let (traced, is_traced) = mpsc::channel();
        let (library, symbols) = (library.to_owned(), symbols.clone());
        let is_over = Arc::new(AtomicBool::new(false));
        let program = Arc::new(OnceLock::new());
        let shared = (is_over.clone(), program.clone());
        let thread = thread::spawn(move || {
            let seized = match executor {
                Executor::Thread { thread, .. } => ptrace::seize_for_exec(thread),
                Executor::NewOf(thread) => ptrace::seize_for_spawn(thread),
            };
            seized.map_err(|error| refused(executor.thread(), &error))?;
            let _ = traced.send(()); // it is received, or nothing waits for it
            insert(executor, &library, &symbols, &shared.0, &shared.1)
        });
        let insertion = Insertion { thread, is_over, program, blocked };
        match is_traced.recv() {
            Ok(()) => Ok(insertion),
            Err(_) => insertion.finish().and(Err(Error::new("it ended before it was traced"))),
        }
    }

    /// Returns the place of the program's path, which is set once the program was executed.
    pub fn program(&self) -> Arc<OnceLock<PathBuf>> {
        self.program.clone()
    }

    /// Releases a thread that has not executed a program, or has made no process.
    pub fn cancel(self) {
        let _ = self.end(); // it may have ended
    }

    /// Like [`Insertion::finish`]; a thread that has made no process until now is released.
    ///
    /// Errors: as there.
    pub fn end(self) -> Result<(), Error> {
        self.is_over.store(true, Relaxed);
        self.finish()
    }

    /// Waits until the program has the recorder, and runs alone.
    ///
    /// Errors: why it runs without the recorder.
    pub fn finish(self) -> Result<(), Error> {
        let done = self.thread.join();
        if let Some(blocked) = self.blocked {
            let _ = blocked.thread_set_mask(); // it was set before
        }
        done.unwrap_or_else(|_| Err(Error::new("this is a bug in heaptide")))
    }
}

/// Why a thread cannot be traced.
fn refused(thread: Pid, error: &io::Error) -> Error {
    if let Some(why) = State::of(thread).why_not(thread) {
        return Error::new(why);
    }
    Error::new(format!(
        "{error}; to record static programs, this command needs permission to trace its children \
         (ptrace)"
    ))
}

/// Follows a traced thread, or the process that it makes, through exec, and puts the library into
/// the program.
fn insert(
    executor: Executor,
    library: &Path,
    symbols: &Symbols,
    is_over: &AtomicBool,
    program: &OnceLock<PathBuf>,
) -> Result<(), Error> {
    let executed = match executor {
        Executor::Thread { process, thread } => await_exec(process, thread, is_over),
        Executor::NewOf(thread) => await_new(thread, is_over).and_then(|new| match new {
            // If it executes nothing, it ends.
            Some(new) => await_exec(new, new, &AtomicBool::new(false)),
            None => Ok(None),
        }),
    };
    let Some(pid) = executed.map_err(uncontrollable)? else {
        return Ok(()); // it could not be executed, which another message states
    };
    let _ = program.set(fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default());
    let until = Instant::now() + WITHIN;
    let done = insert_at_start(pid, library, symbols, until);
    // After an error, the program runs without the recorder.
    ptrace::detach(pid).map_err(uncontrollable).and(done)
}

/// Waits until a thread of a process executes a program, and returns the process. Returns `None` if
/// it ends, or is released.
fn await_exec(process: Pid, thread: Pid, is_over: &AtomicBool) -> io::Result<Option<Pid>> {
    let executed = match run_to_event(thread, is_over) {
        // The kernel gives the thread the number of the process, and then reports the event.
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) && thread != process => {
            run_to_event(process, is_over)?
        }
        other => other?,
    };
    Ok(executed.then_some(process))
}

/// Waits until a traced thread makes a process, which is traced then, unlike the thread. Returns
/// `None` if the thread ends, or is released.
fn await_new(thread: Pid, is_over: &AtomicBool) -> io::Result<Option<Pid>> {
    if !run_to_event(thread, is_over)? {
        return Ok(None);
    }
    let new = ptrace::made(thread)?;
    ptrace::detach(thread)?;
    loop {
        match ptrace::event_of_child(new)? {
            Event::Stopped => break,
            Event::Gone => return Ok(None),
            Event::Nothing => ptrace::await_event(),
            _ => ptrace::resume(new, 0)?,
        }
    }
    ptrace::trace_exec(new)?;
    ptrace::resume(new, 0)?;
    Ok(Some(new))
}

/// Lets a traced thread run until it executes a program or makes a process. Returns false if it
/// ends. Once it is over, the thread is released.
fn run_to_event(thread: Pid, is_over: &AtomicBool) -> io::Result<bool> {
    let mut is_interrupted = false;
    loop {
        if is_over.load(Relaxed) && !is_interrupted {
            nix::sys::ptrace::interrupt(thread)?;
            is_interrupted = true;
        }
        match ptrace::event_of_child(thread)? {
            Event::Executed | Event::Forked => return Ok(true),
            Event::Gone => return Ok(false),
            Event::Stopped if is_interrupted => {
                ptrace::detach(thread)?;
                return Ok(false);
            }
            Event::Nothing => ptrace::await_event(),
            Event::Signal(signal) => ptrace::resume(thread, signal)?,
            Event::Stopped | Event::Call => ptrace::resume(thread, 0)?,
        }
    }
}

fn insert_at_start(pid: Pid, path: &Path, symbols: &Symbols, until: Instant) -> Result<(), Error> {
    let library = Library::read(path)?;
    let memory = Memory::open(pid).map_err(uncontrollable)?;
    let mut remote = Remote::start(pid, &memory, until).map_err(uncontrollable)?;
    let executable = Executable::of(pid, &memory, remote.stack_pointer(), symbols);
    let prepared = executable.and_then(|executable| {
        let placed = place(&mut remote, &library, path, &executable).map_err(uncontrollable)?;
        remote.run_to_one_of(&executable.stops())?;
        remote.call_each(&placed.initialisers).map_err(uncontrollable)
    });
    remote.restore().map_err(uncontrollable)?;
    prepared
}

/// The kernel refused a request.
fn uncontrollable(error: io::Error) -> Error {
    Error::new(format!("it cannot be controlled: {error}"))
}

/// Maps the library and the tables, and extends the thread-local segment.
fn place(
    remote: &mut Remote<'_>,
    library: &Library,
    path: &Path,
    executable: &Executable,
) -> io::Result<Placed> {
    let memory = remote.memory();
    let own = executable.headers.thread_local();
    let block = library.thread_local;
    let Extended { added, segment } =
        own.unwrap_or(thread_local::NONE).extended(block.memory_bytes, block.alignment);
    let mut objects =
        vec![Object { bias: 0, name: path.as_os_str().as_bytes().to_vec(), dynamic: 0 }];
    objects.splice(0..0, executable.vdso.and_then(|base| vdso(memory, base)));
    let tables = |objects: &[Object], start: u64| {
        let (bias, symbols) = (executable.bias, executable.symbols.as_slice());
        Contents { bias, symbols, objects }.at(start)
    };
    // The initial values first, since they have an alignment; then the headers, the path, and the
    // tables.
    let headers_at = segment.file_bytes.next_multiple_of(ALIGNMENT);
    let headers_bytes = (executable.headers.bytes.len() + HEADER_BYTES) as u64;
    let path_at = headers_at + headers_bytes;
    let path_bytes = path.as_os_str().len() as u64 + 1;
    let tables_at = (path_at + path_bytes).next_multiple_of(ALIGNMENT);
    let bytes = tables_at + tables(&objects, 0).len() as u64;
    let start = remote.map(bytes + segment.alignment)?.next_multiple_of(segment.alignment);
    remote.protect_as_data(start, bytes)?;
    memory.write(start + path_at, path.as_os_str().as_bytes())?;
    let placed = library.place(remote, start + path_at, |placed| {
        if let Some(object) = objects.last_mut() {
            (object.bias, object.dynamic) = (placed.bias, placed.dynamic);
        }
        memory.write(start + tables_at, &tables(&objects, start + tables_at))?;
        let below_thread_pointer = segment.memory_bytes;
        Ok(Surroundings { debug: start + tables_at, below_thread_pointer })
    })?;
    memory.write(start + added, &executable.values)?;
    let segment = Segment { address: start.wrapping_sub(executable.bias), ..segment };
    let headers = &executable.headers;
    let new = headers.with_thread_local(&segment, start + headers_at, executable.bias);
    if new.len() == headers.bytes.len() {
        memory.write(headers.address, &new)?;
    } else {
        memory.write(start + headers_at, &new)?;
        let count = (new.len() / HEADER_BYTES) as u64;
        let (address_at, count_at) = headers.named_at;
        memory.write(address_at, &(start + headers_at).to_ne_bytes())?;
        memory.write(count_at, &count.to_ne_bytes())?;
    }
    Ok(placed)
}

/// The alignment of tables.
const ALIGNMENT: u64 = 16;

/// Returns the kernel's library, as a loader lists it; `None` if it has no dynamic section.
fn vdso(memory: &Memory, base: u64) -> Option<Object> {
    const LOADED: u32 = 1;
    const DYNAMIC: u32 = 2;
    let table = base + memory.word(base + 32).ok()?;
    let count = memory.word(base + 56).ok()? & 0xffff;
    let headers = (0..count).map(|index| table + HEADER_BYTES as u64 * index);
    let address_of = |kind: u32| {
        let mut of_kind = headers.clone();
        let at = of_kind.find(|&at| memory.word(at).is_ok_and(|word| word as u32 == kind))?;
        memory.word(at + 16).ok()
    };
    let bias = base.wrapping_sub(address_of(LOADED)?);
    let dynamic = bias.wrapping_add(address_of(DYNAMIC)?);
    Some(Object { bias, name: b"linux-vdso.so.1".to_vec(), dynamic })
}
