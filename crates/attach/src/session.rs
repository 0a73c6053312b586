//! Attaching and detaching, step by step.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use heaptide_format::attachment::{
    ATTACH_SYMBOL, Attachment, Change, GATE_OPEN, IMPORTS_MAX, LINK_ATTACHED, LINK_IDLE,
    LINK_PRELOADED, OUTCOME_NO_PROFILE, OUTCOME_PREPARED, PROGRESS_AWAITED, PROGRESS_DONE,
    PROGRESS_SEEN, RELEASE_SYMBOL, Rebinding, STATE_ACTIVE, STATE_OFF,
};
use heaptide_format::settings::Setting;
use heaptide_format::{End, FileHeader};
use nix::unistd::Pid;
use zerocopy::FromBytes;

use crate::call::Caller;
use crate::clock;
use crate::error::Error;
use crate::frames::Frame;
use crate::machine::{self, JUMP_BYTES, Places};
use crate::process::{Loaded, Process};
use crate::ptrace;
use crate::seccomp;
use crate::threads::{Stopped, stop_others, threads};
use crate::view;

/// Time between attempts.
const PAUSE: Duration = Duration::from_millis(2);
/// The time limit for loading the library.
const LOADS_WITHIN: Duration = Duration::from_secs(30);
/// The time limit for preparing a recording.
const PREPARES_WITHIN: Duration = Duration::from_secs(30);
/// How long threads inside of the recorder or the loader may run on, while the others are stopped,
/// until another one leaves it. A thread that waits for a lock held by a stopped thread does not
/// leave.
const COMES_OUT_WITHIN: Duration = Duration::from_millis(20);
/// The interval at which they are polled.
const LOOK_AFTER: Duration = Duration::from_micros(100);

/// The settings of a recording.
#[derive(Debug)]
pub struct Request {
    /// The library.
    pub recorder: PathBuf,
    /// Settings as environment variables, each zero-terminated, except the recording.
    pub settings: Vec<u8>,
    /// Additional variables, in the same form, for programs that the process starts by exec. They
    /// are recorded if the process sees the same files as this command; otherwise they are counted.
    pub handed_on: Vec<u8>,
    /// The directory of the recording.
    pub recording: PathBuf,
    /// The same, open: its owner could replace it by a link.
    pub directory: File,
    /// How long to wait for a safe moment.
    pub patience: Duration,
}

/// How long all threads of a process were stopped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pause {
    /// In total, including failed attempts.
    pub total: Duration,
    /// The longest single stop.
    pub longest: Duration,
}

impl Pause {
    pub(crate) fn add(&mut self, time: Duration) {
        self.total += time;
        self.longest = self.longest.max(time);
    }
}

/// Starts a recording in a process.
///
/// Errors: the reason why it failed. The process continues unchanged.
pub fn attach(pid: Pid, request: Request) -> Result<Pause, Error> {
    apart(move || {
        let mut session = Session::new(pid, request.patience)?;
        session.attach(&request)?;
        Ok(session.pause)
    })
}

/// A recording that has ended.
#[derive(Clone, Debug)]
pub struct Detached {
    /// The path of the profile, as seen by the process.
    pub profile: PathBuf,
    /// How long the threads were stopped.
    pub pause: Pause,
}

/// Ends the recording of a process that a command attached to.
///
/// Errors: the reason why it failed. The process is still recorded.
pub fn detach(pid: Pid, patience: Duration) -> Result<Detached, Error> {
    apart(move || {
        let mut session = Session::new(pid, patience)?;
        let profile = PathBuf::from(session.detach()?);
        Ok(Detached { profile, pause: session.pause })
    })
}

/// Runs `work` in a new thread: when that ends, the kernel releases all threads that it traces.
pub(crate) fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let blocked = ptrace::block_reports();
    let done = thread::spawn(work).join();
    if let Ok(blocked) = blocked {
        let _ = blocked.thread_set_mask(); // it was set before
    }
    done.unwrap_or_else(|_| Err(Error::new("attaching failed; this is a bug in heaptide")))
}

struct Session {
    process: Process,
    pid: Pid,
    patience: Duration,
    until: Instant,
    pause: Pause,
    /// Whether a thread may make a call of an unknown number, by which it returns an address.
    may_ask: bool,
    /// Whether threads may make calls at all.
    may_call: bool,
    /// Found before threads are stopped.
    places: Option<Places>,
}

impl Session {
    fn new(pid: Pid, patience: Duration) -> Result<Session, Error> {
        let process = Process::open(pid)?;
        let places = process.modules.places();
        let until = Instant::now() + patience;
        let pause = Pause::default();
        Ok(Session { process, pid, patience, until, pause, may_ask: true, may_call: true, places })
    }

    fn attach(&mut self, request: &Request) -> Result<(), Error> {
        self.may_ask = !seccomp::check(self.pid)?;
        match self.process.loaded()? {
            Some(loaded) => self.check(&loaded.state)?,
            None => self.load(&request.recorder)?,
        }
        self.prepare(request)?;
        self.begin()
    }

    /// Checks whether a recording can start.
    fn check(&self, state: &Attachment) -> Result<(), Error> {
        if state.link == LINK_PRELOADED {
            return Err(Error::new(format!(
                "process {} was started with the recorder; control it with `heaptide ctl`",
                self.pid
            )));
        }
        if state.is_used != 0 && self.state_word(state)? == STATE_ACTIVE {
            return Err(Error::new(format!(
                "process {0} is being recorded into {1}; end that with `heaptide detach {0}`",
                self.pid,
                self.recording(state)
            )));
        }
        Ok(())
    }

    fn state_word(&self, state: &Attachment) -> Result<u32, Error> {
        let mut bytes = [0; 4];
        self.read(state.state_at, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// Returns the profile, as seen by the process.
    fn recording(&self, state: &Attachment) -> String {
        let path = self.process.file_at(state.header_at);
        path.map_or_else(String::new, |path| path.display().to_string())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let refused = |error| Error::refused(self.pid, &error);
        self.process.memory.read(address, bytes).map_err(refused)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let refused = |error| Error::refused(self.pid, &error);
        self.process.memory.write(address, bytes).map_err(refused)
    }

    /// Tries until it succeeds or the time is up; `work` returns `None` for "not now".
    fn patiently<T>(
        &mut self,
        why: &str,
        mut work: impl FnMut(&mut Session) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        loop {
            if let Some(done) = work(self)? {
                return Ok(done);
            }
            if Instant::now() > self.until {
                return Err(Error::new(format!(
                    "gave up on process {} after {:?}: {why}; try again, or use a longer --patience",
                    self.pid, self.patience
                )));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Like `patiently`, for work that stops all threads while it runs.
    fn patiently_stopped<T>(
        &mut self,
        why: &str,
        mut work: impl FnMut(&mut Session) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        self.patiently(why, |session| {
            let start = Instant::now();
            let done = work(session);
            session.pause.add(start.elapsed());
            done
        })
    }

    /// Loads the library in a thread at a safe point.
    fn load(&mut self, library: &Path) -> Result<(), Error> {
        let places = self.places()?;
        let open = self.function_that_loads()?;
        let why = "no thread was outside the allocator, the loader and signal handlers";
        let done = self.patiently(why, |session| session.try_to_load(library, places, open))?;
        self.process.look_again()?;
        if self.process.loaded()?.is_some() {
            return Ok(());
        }
        let shown = library.display();
        Err(Error::new(format!("process {} could not load {shown}: {done}", self.pid)))
    }

    fn places(&self) -> Result<Places, Error> {
        self.places
            .ok_or_else(|| Error::new(format!("the C library of process {} is unknown", self.pid)))
    }

    /// Returns the address of `dlopen`.
    fn function_that_loads(&self) -> Result<u64, Error> {
        let modules = &self.process.modules;
        let in_libc = |name: &str| modules.libc().and_then(|libc| libc.symbol(name));
        let apart = || {
            let module = modules.iter().find(|module| module.file_name().starts_with("libdl"));
            module.and_then(|module| module.symbol("dlopen"))
        };
        in_libc("dlopen").or_else(apart).or_else(|| in_libc("__libc_dlopen_mode")).ok_or_else(
            || Error::new(format!("the C library of process {} has no dlopen", self.pid)),
        )
    }

    /// Returns the result of the loader; `None` if no thread is at a safe point.
    fn try_to_load(
        &mut self,
        library: &Path,
        places: Places,
        open: u64,
    ) -> Result<Option<String>, Error> {
        const RTLD_NOW: u64 = 2;
        let refused = |error| Error::refused(self.pid, &error);
        self.process.look_again()?;
        let all = threads(self.pid).map_err(refused)?;
        // Threads that wait with a timeout come last.
        let both = all.iter().map(|&tid| (tid, false)).chain(all.iter().map(|&tid| (tid, true)));
        for (tid, is_last) in both {
            let Some(stopped) = not_in_time(Stopped::new(tid)).map_err(refused)?.flatten() else {
                continue;
            };
            if machine::is_timed(&stopped.registers) && !is_last {
                continue;
            }
            if !self.process.may_load(&stopped) {
                continue;
            }
            let Ok(mut caller) = Caller::new(&self.process.memory, stopped, places) else {
                continue;
            };
            let failed = |error: io::Error| match error.kind() {
                io::ErrorKind::TimedOut => Error::new(format!(
                    "process {} does not load the library; its loader is busy",
                    self.pid
                )),
                _ => Error::refused(self.pid, &error),
            };
            let (path, descriptor) = if view::is_shared(self.pid, library) {
                (library.as_os_str().as_bytes().to_vec(), None)
            } else {
                let file = File::open(library).map_err(failed)?;
                let given = caller.give(self.pid, &[file.as_fd()]).map_err(failed)?;
                let number = given.first().copied().unwrap_or_default();
                (format!("/proc/self/fd/{number}").into_bytes(), Some(number))
            };
            caller.put(&[&path[..], b"\0"].concat()).map_err(failed)?;
            caller.call(open, [caller.arguments(), RTLD_NOW], LOADS_WITHIN).map_err(failed)?;
            if let Some(number) = descriptor {
                caller.close(number).map_err(failed)?;
            }
            let is_loaded = Process::has_recorder(self.pid);
            let answer = if is_loaded { String::new() } else { self.answer(&mut caller) };
            return Ok(Some(answer));
        }
        Ok(None)
    }

    /// Returns the error message of the loader.
    fn answer(&self, caller: &mut Caller<'_>) -> String {
        if !self.may_ask {
            return "a seccomp filter may have prevented it".to_owned();
        }
        let modules = &self.process.modules;
        let report = modules.iter().find_map(|module| {
            let may = module.is_libc() || module.file_name().starts_with("libdl");
            may.then(|| module.symbol("dlerror"))?
        });
        let text = report.and_then(|report| caller.call_for_address(report, LOADS_WITHIN).ok());
        let text = text.map(|at| self.process.memory.text(at)).unwrap_or_default();
        if text.is_empty() { "the loader reported no reason".to_owned() } else { text }
    }

    /// Stops all threads outside of the loader, the recorder and the code to be patched. Threads
    /// inside run until they leave it; `None` if one does not.
    fn stop_outside(&mut self) -> Result<Option<(Vec<Stopped>, Loaded)>, Error> {
        let refused = |error| Error::refused(self.pid, &error);
        let mut until = Instant::now() + COMES_OUT_WITHIN;
        let mut outside: Vec<Stopped> = Vec::new();
        loop {
            let known: Vec<Pid> = outside.iter().map(|thread| thread.tid).collect();
            let Some(stopped) = not_in_time(stop_others(self.pid, &known)).map_err(refused)? else {
                return Ok(None);
            };
            self.process.look_again()?;
            let Some(loaded) = self.process.loaded()? else {
                return Err(Error::new(format!("process {} is not recorded", self.pid)));
            };
            let all = known.len() + stopped.len();
            for thread in stopped {
                let frames = thread.frames(&self.process.memory, &self.process.modules);
                let is_inside = self.process.is_in_loader(&frames)
                    || self.is_in_recorder(&loaded, &thread, &frames)
                    || is_in_changes(&loaded.state, &frames);
                if !is_inside {
                    outside.push(thread);
                }
            }
            if outside.len() == all {
                return Ok(Some((outside, loaded)));
            }
            if outside.len() > known.len() {
                until = Instant::now() + COMES_OUT_WITHIN;
            } else if Instant::now() > until {
                return Ok(None);
            }
            thread::sleep(LOOK_AFTER);
        }
    }

    /// Returns whether a stopped thread is in the recorder: in its code, or in a function that it
    /// called.
    fn is_in_recorder(&self, loaded: &Loaded, thread: &Stopped, frames: &[Frame]) -> bool {
        let state = &loaded.state;
        let module = self.process.recorder();
        let is_ours = |frame: &Frame| {
            module.is_some_and(|module| (module.low..module.high).contains(&frame.pc))
        };
        let callers = &state.callers;
        let calls = |frame: &Frame| frame.pc.wrapping_sub(callers.address) < callers.bytes;
        let mut around = frames.iter().skip(1);
        if frames.first().is_some_and(is_ours) || around.any(|it| is_ours(it) && !calls(it)) {
            return true;
        }
        if state.is_used == 0 {
            return false;
        }
        let block = self.block_of(state, thread);
        let mut bytes = vec![0u8; state.thread_bytes as usize];
        if self.process.memory.read(block, &mut bytes).is_err() {
            return false; // a thread that is starting or ending
        }
        let number = |at: usize| {
            bytes
                .get(at..at + 4)
                .and_then(|word| word.try_into().ok())
                .map_or(0, u32::from_ne_bytes)
        };
        let lane = u64::from(number(0)) | u64::from(number(4)) << 32;
        let (busy, locks) = (number(8), number(state.thread_locks as usize));
        let mut gate = [0; 8];
        let is_inside = lane != 0
            && self.process.memory.read(lane + state.lane_gate, &mut gate).is_ok()
            && u64::from_ne_bytes(gate) > GATE_OPEN;
        busy != 0 || locks != 0 || is_inside
    }

    fn block_of(&self, state: &Attachment, thread: &Stopped) -> u64 {
        machine::thread_pointer(&thread.registers).wrapping_add(state.thread_offset)
    }

    /// Prepares a recording in the library, while all threads except the preparing one are stopped.
    fn prepare(&mut self, request: &Request) -> Result<(), Error> {
        let why = "at each attempt, a thread was in the loader, the recorder or the allocator";
        let (outcome, errno) =
            self.patiently_stopped(why, |session| session.try_to_prepare(request))?;
        match outcome {
            OUTCOME_PREPARED => Ok(()),
            OUTCOME_NO_PROFILE => Err(Error::no_profile(self.pid, errno)),
            _ => Err(Error::new(format!(
                "process {} cannot be recorded: there is no memory for the recorder's tables, or \
                 its allocator does not report the size of blocks",
                self.pid
            ))),
        }
    }

    /// Returns the outcome and an error number.
    fn try_to_prepare(&mut self, request: &Request) -> Result<Option<(u32, u64)>, Error> {
        let places = self.places()?;
        let Some((mut all, loaded)) = self.stop_outside()? else { return Ok(None) };
        self.check(&loaded.state)?;
        if loaded.state.is_used != 0 {
            self.wipe(&loaded, &all)?;
        }
        let entry = self.function(ATTACH_SYMBOL)?;
        let release = self.function(RELEASE_SYMBOL)?;
        let Some(mut caller) = self.caller(&mut all, places) else { return Ok(None) };
        let failed = |error| Error::refused(self.pid, &error);
        caller.call(release, [0, 0], PREPARES_WITHIN).map_err(failed)?;
        let mut output = request.recording.as_os_str().as_bytes().to_vec();
        if !view::is_same(self.pid) {
            let given = caller.give(self.pid, &[request.directory.as_fd()]).map_err(failed)?;
            let number = caller.move_up(given.first().copied().unwrap_or_default());
            output = format!("/proc/self/fd/{}", number.map_err(failed)?).into_bytes();
        }
        let variable = Setting::Output.variable().as_bytes();
        let mut settings = [&request.settings, variable, b"=", &output, b"\0"].concat();
        if view::is_shared(self.pid, &request.recorder) {
            settings.extend_from_slice(&request.handed_on);
        }
        caller.put(&settings).map_err(failed)?;
        let arguments = [caller.arguments(), settings.len() as u64];
        let progress = loaded.at + std::mem::offset_of!(Attachment, progress) as u64;
        let memory = &self.process.memory;
        let set = |value: u32| memory.write(progress, &value.to_ne_bytes());
        let is_done = || {
            let mut word = [0; 4];
            memory.read(progress, &mut word)?;
            Ok(u32::from_ne_bytes(word) == PROGRESS_DONE)
        };
        set(PROGRESS_AWAITED).map_err(failed)?;
        let go_on = || set(PROGRESS_SEEN);
        let called = caller.call_long(entry, arguments, PREPARES_WITHIN, (is_done, go_on));
        called.map_err(failed)?;
        let Some(prepared) = self.process.loaded()? else { return Ok(None) };
        self.rebind(&prepared, &mut caller)?;
        drop(caller);
        Ok(Some((prepared.state.outcome, prepared.state.errno)))
    }

    /// Rebinds imports of the process, and frees their list.
    fn rebind(&self, loaded: &Loaded, caller: &mut Caller<'_>) -> Result<(), Error> {
        let Attachment { imports_at, imports_count, .. } = loaded.state;
        if imports_at == 0 {
            return Ok(());
        }
        let count = IMPORTS_MAX.min(imports_count as usize);
        let mut bytes = vec![0; count * size_of::<Rebinding>()];
        self.read(imports_at, &mut bytes)?;
        for entry in bytes.chunks_exact(size_of::<Rebinding>()) {
            let Ok(Rebinding { slot, hook }) = Rebinding::read_from_bytes(entry) else { continue };
            // The calls of a module whose imports cannot be written are not recorded.
            let _ = self.process.memory.write(slot, &hook.to_ne_bytes());
        }
        let field = loaded.at + std::mem::offset_of!(Attachment, imports_at) as u64;
        self.write(field, &0u64.to_ne_bytes())?; // first, because this command may be killed
        let all = (IMPORTS_MAX * size_of::<Rebinding>()) as u64;
        caller.unmap(imports_at, all).map_err(|error| Error::refused(self.pid, &error))
    }

    /// Returns a thread that can make calls: one that runs on its own stack.
    fn caller(&self, all: &mut Vec<Stopped>, places: Places) -> Option<Caller<'_>> {
        let may_call = |thread: &Stopped| self.process.is_on_own_stack(thread);
        let is_best = |thread: &Stopped| may_call(thread) && !machine::is_timed(&thread.registers);
        while let Some(at) = all.iter().position(is_best).or_else(|| all.iter().position(may_call))
        {
            let thread = all.swap_remove(at);
            if let Ok(caller) = Caller::new(&self.process.memory, thread, places) {
                return Some(caller);
            }
        }
        None
    }

    fn function(&self, name: &str) -> Result<u64, Error> {
        let found = self.process.recorder().and_then(|module| module.symbol(name));
        found.ok_or_else(|| {
            Error::new(format!("the recorder in process {} has no {name}", self.pid))
        })
    }

    /// Patches the code of allocators and starts the recording, while all threads are stopped.
    fn begin(&mut self) -> Result<(), Error> {
        let why = "at each attempt, a thread was at the beginning of a function of the allocator";
        let begun = self.patiently_stopped(why, Session::try_to_begin);
        if begun.is_err() {
            let _ = self.forget(); // it may have ended
        }
        begun
    }

    fn try_to_begin(&mut self) -> Result<Option<()>, Error> {
        let Some((_all, loaded)) = self.stop_outside()? else { return Ok(None) };
        for change in changes(&loaded.state) {
            self.change(change)?;
        }
        self.write(loaded.state.state_at, &STATE_ACTIVE.to_ne_bytes())?;
        Ok(Some(()))
    }

    /// If a program is prepared but not recorded, makes it start other programs without the
    /// recorder.
    fn forget(&mut self) -> Result<(), Error> {
        let Some(loaded) = self.process.loaded()? else { return Ok(()) };
        self.write_link(&loaded, LINK_IDLE)
    }

    fn write_link(&self, loaded: &Loaded, link: u32) -> Result<(), Error> {
        let at = loaded.at + std::mem::offset_of!(Attachment, link) as u64;
        self.write(at, &link.to_ne_bytes())
    }

    fn change(&self, change: &Change) -> Result<(), Error> {
        let mut found = [0; JUMP_BYTES];
        self.read(change.address, &mut found)?;
        if found == change.after[..JUMP_BYTES] {
            return Ok(()); // prepared by an earlier attachment
        }
        if found != change.before[..JUMP_BYTES] {
            return Err(Error::new(format!(
                "another tool has changed the allocator's code in process {} (a debugger's \
                 breakpoint, perhaps)",
                self.pid
            )));
        }
        self.write(change.address, &change.after[..JUMP_BYTES])
    }

    /// Clears the state of a recording. All threads must be stopped outside of the recorder.
    fn wipe(&self, loaded: &Loaded, all: &[Stopped]) -> Result<(), Error> {
        let state = &loaded.state;
        self.write_link(loaded, LINK_IDLE)?;
        self.write(state.state_at, &STATE_OFF.to_ne_bytes())?;
        for thread in all {
            let block = self.block_of(state, thread);
            // A thread that is starting may not have a block yet.
            let _ = self.process.memory.write(block, &vec![0; state.thread_bytes as usize]);
        }
        for range in state.wiped.iter().take(state.wiped_count as usize) {
            let mut zeros = vec![0u8; range.bytes as usize];
            let at = state.state_at.wrapping_sub(range.address) as usize;
            if let Some(word) = zeros.get_mut(at..at.saturating_add(4)) {
                word.copy_from_slice(&STATE_OFF.to_ne_bytes());
            }
            self.write(range.address, &zeros)?;
        }
        let is_used = loaded.at + std::mem::offset_of!(Attachment, is_used) as u64;
        self.write(is_used, &0u32.to_ne_bytes())
    }

    fn detach(&mut self) -> Result<String, Error> {
        let pid = self.pid;
        let not_attached =
            || Error::new(format!("process {pid} is not recorded by `heaptide attach`"));
        let loaded = self.process.loaded()?.ok_or_else(not_attached)?;
        if loaded.state.link == LINK_PRELOADED {
            return Err(Error::new(format!(
                "process {pid} was started with the recorder, or has executed another program since \
                 it was attached to; control it with `heaptide ctl {pid}`"
            )));
        }
        let is_attached = loaded.state.link == LINK_ATTACHED && loaded.state.is_used != 0;
        if !is_attached || self.state_word(&loaded.state)? != STATE_ACTIVE {
            return Err(not_attached());
        }
        let recording = self.recording(&loaded.state);
        self.may_call = seccomp::check(pid).is_ok();
        let why = "at each attempt, a thread was in the recorder";
        self.patiently_stopped(why, Session::try_to_detach)?;
        Ok(recording)
    }

    fn try_to_detach(&mut self) -> Result<Option<()>, Error> {
        let places = self.places()?;
        let Some((mut all, loaded)) = self.stop_outside()? else { return Ok(None) };
        let recording = self.recording(&loaded.state);
        self.note_end(&loaded.state)?;
        self.wipe(&loaded, &all)?;
        let release = self.function(RELEASE_SYMBOL)?;
        // If no thread can free the memory, the next attachment does.
        let caller = if self.may_call { self.caller(&mut all, places) } else { None };
        if let Some(mut caller) = caller {
            let _ = caller.call(release, [0, 0], PREPARES_WITHIN);
            for number in self.directories(&recording) {
                let _ = caller.close(number);
            }
        }
        Ok(Some(()))
    }

    /// Returns the descriptors of a recording's directory that the process received.
    fn directories(&self, profile: &str) -> Vec<u64> {
        let directory = Path::new(profile).parent();
        let Some(directory) = directory.filter(|_| !view::is_same(self.pid)) else {
            return Vec::new();
        };
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid));
        let of_directory = |entry: fs::DirEntry| {
            let is_it = fs::read_link(entry.path()).is_ok_and(|path| path == directory);
            entry.file_name().to_str().filter(|_| is_it)?.parse().ok()
        };
        open.into_iter().flatten().flatten().filter_map(of_directory).collect()
    }

    /// Records the end in the profile.
    fn note_end(&self, state: &Attachment) -> Result<(), Error> {
        let field = |offset: usize| state.header_at + offset as u64;
        let mut start = [0; 8];
        self.read(field(std::mem::offset_of!(FileHeader, start_monotonic_ns)), &mut start)?;
        let since = clock::now_ns(self.pid).saturating_sub(u64::from_ne_bytes(start));
        for offset in [
            std::mem::offset_of!(FileHeader, end_time_ns),
            std::mem::offset_of!(FileHeader, last_seen_ns),
        ] {
            self.write(field(offset), &since.to_ne_bytes())?;
        }
        let kind = (End::Detached as u32).to_ne_bytes();
        self.write(field(std::mem::offset_of!(FileHeader, end_kind)), &kind)
    }
}

/// Returns the code changes that the library requests.
fn changes(state: &Attachment) -> &[Change] {
    state.changes.get(..state.changes_count as usize).unwrap_or_default()
}

/// Returns whether a stack has a frame between two of the instructions that a change replaces.
fn is_in_changes(state: &Attachment, frames: &[Frame]) -> bool {
    let is_within = |frame: &Frame, change: &Change| {
        let from = change.address + 1;
        (from..change.address + JUMP_BYTES as u64).contains(&frame.pc)
    };
    frames.iter().any(|frame| changes(state).iter().any(|change| is_within(frame, change)))
}

/// Converts a timeout to `None`.
fn not_in_time<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(error),
    }
}
