//! Programs started by exec or spawn: they are recorded, too, regardless of the environment that
//! they receive, and those that cannot be recorded are counted.
//!
//! A program may clear its environment, or start another one with a new environment. The recorder's
//! settings were saved when it started ([`heaptide_recorder::sys::options`]) and are added to the
//! environment. If the recorder would break the new program (a sanitizer's runtime refuses to start
//! after it, or the loader reports a library that it cannot read), its settings are removed
//! instead. For a program that a command attached to, the settings come from that command, as long
//! as it is recorded.
//!
//! This does not allocate, also in a child of vfork, which shares the memory of its parent: after a
//! successful exec there, the parent's thread reuses the memory.

use crate::attachment;
use crate::exec_target::{self, Obstacle, Room};
use crate::insertion::{Request, Who};
use core::ffi::{CStr, c_char};
use heaptide_format::settings::PREFIX;
use heaptide_format::{UNRECORDED_PATH, UnrecordedChild};
use heaptide_recorder::event::process::{State, count_unrecorded, discount_unrecorded, process};
use heaptide_recorder::store::directory;
use heaptide_recorder::sys::confined;
use heaptide_recorder::sys::kernel::{self, Fd, Path};
use heaptide_recorder::sys::options::{HandedOn, Options, PATH_MAX, is_recorder, is_separator};
use heaptide_recorder::sys::text::{Text, file_of};
use heaptide_recorder::sys::tls::tls;

/// Strings, followed by null.
pub type Strings = *const *const c_char;

/// The file to execute.
pub enum Target<'a> {
    /// A path.
    Path(&'a CStr),
    /// A name to look up in `PATH`, unless it is a path.
    Name(&'a CStr, Option<&'a [u8]>),
    /// An open file.
    Open(Fd),
    /// Unknown.
    Unknown,
}

/// The most variables of the recorder to look for in an environment.
const VARIABLES_MAX: usize = 32;
/// The most words to add to an environment: these variables, two more, and the end.
const ADDED_MAX: usize = VARIABLES_MAX + 3;
/// Bytes of a program's path to store, and a zero byte.
const NAME_MAX: usize = UNRECORDED_PATH + 1;
/// The access mode of faccessat.
const MAY_READ: usize = 4;
const MAY_CREATE_IN: usize = 3;

/// The data for a program that is about to be started.
pub struct Plan {
    /// Its environment.
    pub environment: Strings,
    memory: Option<Memory>,
    unrecorded: Option<UnrecordedChild>,
    insertion: Option<Request>,
}

impl Plan {
    /// Plans the start of a program with this environment.
    ///
    /// # Safety
    /// `environment` is valid for execve.
    pub unsafe fn new(target: &Target<'_>, environment: Strings, who: Who) -> Plan {
        // SAFETY: the caller's contract.
        let plan = unsafe { Plan::made(target, environment, who) };
        plan.unwrap_or(Plan { environment, memory: None, unrecorded: None, insertion: None })
    }

    /// Returns `None` if nothing has to change.
    unsafe fn made(target: &Target<'_>, environment: Strings, who: Who) -> Option<Plan> {
        let options = Options::known().filter(|options| options.is_wanted())?;
        let handed_on = &options.handed_on;
        // Without a library to preload, programs started by an attached one are only counted.
        let is_of_concern = match attachment::is_wanted() {
            None => !handed_on.preload.is_empty(),
            Some(is_wanted) => is_wanted && process().state() != State::Off,
        };
        let is_whole = handed_on.preload.is_whole() && handed_on.variables.is_whole();
        if !is_of_concern || !is_whole || !confined::may_call() {
            return None;
        }
        // SAFETY: the caller's contract.
        let given = unsafe { Given::read(environment, options) };
        if given.is_settled {
            return None;
        }
        if Memory::is_within_other_call() {
            return None;
        }
        let mut memory = Memory::acquire(given.room_needed(handed_on))?;
        memory.head().starts_new = who == Who::New;
        let mut obstacle = obstacle(&mut memory, target, handed_on, &given);
        let program = obstacle.as_mut().and_then(|obstacle| obstacle.program.take());
        let insertion =
            program.and_then(|program| insertion(&mut memory, handed_on, &given, who, program.fd));
        let unrecorded = obstacle.filter(|_| insertion.is_none()).map(|obstacle| obstacle.why);
        if let Some(why) = unrecorded {
            let Head { room, program, .. } = memory.head();
            name(target, room, program);
            count_unrecorded(why, program.bytes());
        }
        // SAFETY: the caller's contract.
        let environment = unsafe { given.completed(&mut memory, unrecorded, handed_on) };
        Some(Plan { environment, memory: Some(memory), unrecorded, insertion })
    }

    /// The program was not started.
    pub fn failed(mut self) {
        if let Some(insertion) = self.insertion.take() {
            insertion.cancel();
        }
        if let (Some(why), Some(memory)) = (self.unrecorded, &mut self.memory) {
            discount_unrecorded(why, memory.head().program.bytes());
        }
        self.ended();
    }

    /// The program was started, and this one continues.
    pub fn ended(self) {
        if let Some(insertion) = self.insertion {
            insertion.done();
        }
        if let Some(memory) = self.memory {
            memory.release();
        }
    }
}

/// Stores the path of a program, or the name with which it is looked up; only the end of a long
/// one.
fn name(target: &Target<'_>, room: &mut Room, program: &mut Text<NAME_MAX>) {
    let path = match target {
        Target::Path(file) => file.to_bytes(),
        Target::Name(name, _) => name.to_bytes(),
        Target::Open(fd) => exec_target::path_of(*fd, room),
        Target::Unknown => b"",
    };
    program.truncate(0);
    program.push(&path[path.len().saturating_sub(UNRECORDED_PATH)..]);
}

/// Returns why the program will not be recorded.
fn obstacle(
    memory: &mut Memory,
    target: &Target<'_>,
    handed_on: &HandedOn,
    given: &Given<'_>,
) -> Option<Obstacle> {
    let Head { room, path, .. } = memory.head();
    let in_file = match target {
        Target::Path(file) => exec_target::obstacle(Path::new(file.to_bytes_with_nul())?, room),
        Target::Name(name, search) => {
            find(name.to_bytes(), *search, path).and_then(|file| exec_target::obstacle(file, room))
        }
        Target::Open(fd) => exec_target::obstacle_in(*fd, room),
        Target::Unknown => None,
    };
    if in_file.is_some() {
        return in_file;
    }
    kernel::as_after_exec(|| obstacle_to_recording(path, handed_on, given)).map(Obstacle::from)
}

/// Asks the command to put the recorder into a static program that is open. `None` if it does not.
fn insertion(
    memory: &mut Memory,
    handed_on: &HandedOn,
    given: &Given<'_>,
    who: Who,
    program: Fd,
) -> Option<Request> {
    let path = &mut memory.head().path;
    let obstacle = kernel::as_after_exec(|| obstacle_to_recording(path, handed_on, given));
    if obstacle.is_some() { None } else { Request::make(who, program) }
}

/// Returns why the program cannot be recorded because of the recorder's own files.
fn obstacle_to_recording(
    path: &mut Text<PATH_MAX>,
    handed_on: &HandedOn,
    given: &Given<'_>,
) -> Option<UnrecordedChild> {
    let library = handed_on.preload.bytes().split(|&b| is_separator(b)).next()?;
    path.truncate(0);
    path.push(library);
    if path.path().is_some_and(|library| !kernel::may_access(library, MAY_READ)) {
        return Some(UnrecordedChild::LibraryUnreachable);
    }
    let directory = directory::known()?.path()?;
    let elsewhere = given.output.is_some() && !given.output_is_relative;
    (!elsewhere && !kernel::may_access(directory, MAY_CREATE_IN))
        .then_some(UnrecordedChild::NoRight)
}

/// Returns the file of a name, found like by execvp.
fn find<'a>(name: &[u8], search: Option<&[u8]>, path: &'a mut Text<PATH_MAX>) -> Option<Path<'a>> {
    const MAY_EXECUTE: usize = 1;
    const DEFAULT: &[u8] = b"/bin:/usr/bin";
    let places = if name.contains(&b'/') { b"".as_slice() } else { search.unwrap_or(DEFAULT) };
    let is_there = |path: &mut Text<PATH_MAX>, place: &[u8]| {
        path.truncate(0);
        path.push(place);
        path.push(if place.is_empty() { b"" } else { b"/" });
        path.push(name);
        path.path().is_some_and(|file| kernel::may_access(file, MAY_EXECUTE))
    };
    let found = places.split(|&b| b == b':').any(|place| is_there(path, place));
    if found { path.path() } else { None }
}

/// The environment for a program, and the recorder's settings in it.
struct Given<'a> {
    environment: Strings,
    count: usize,
    /// The program must not be changed: it is not to be recorded (`HEAPTIDE_MODE=off`), or a
    /// `heaptide run` inside of this one has created the environment.
    is_settled: bool,
    /// `LD_PRELOAD`: the index of the effective entry, and its value.
    preload: Option<(usize, &'a [u8])>,
    /// The index of `HEAPTIDE_OUTPUT`, and whether it is the relative path with which this program
    /// was started.
    output: Option<usize>,
    output_is_relative: bool,
    /// Which of the inherited variables exist, as bits in their order.
    variables: u32,
    /// The index of the entry that names the recorder as the tool of Kokkos.
    kokkos_tool: Option<usize>,
    /// Whether another tool is named by the former variable. Kokkos ends a program with both.
    has_other_kokkos_tool: bool,
}

impl<'a> Given<'a> {
    /// # Safety
    /// `environment` is valid for execve during the lifetime of the result.
    unsafe fn read(environment: Strings, options: &Options) -> Given<'a> {
        let mut given = Given {
            environment,
            count: 0,
            is_settled: false,
            preload: None,
            output: None,
            output_is_relative: false,
            variables: 0,
            kokkos_tool: None,
            has_other_kokkos_tool: false,
        };
        // SAFETY: the caller's contract.
        while let Some(entry) = unsafe { given.entry(given.count) } {
            given.note(entry, options);
            given.count += 1;
        }
        given
    }

    /// # Safety
    /// `index` is at most the number of entries.
    unsafe fn entry(&self, index: usize) -> Option<&'a [u8]> {
        if self.environment.is_null() {
            return None;
        }
        // SAFETY: the caller's contract; entries are strings.
        unsafe {
            let entry = *self.environment.add(index);
            (!entry.is_null()).then(|| CStr::from_ptr(entry).to_bytes())
        }
    }

    fn note(&mut self, entry: &'a [u8], options: &Options) {
        if let Some(value) = entry.strip_prefix(b"LD_PRELOAD=") {
            self.preload = Some((self.count, value)); // of several, the last one is effective
        }
        if entry.strip_prefix(KOKKOS_TOOL).is_some_and(is_recorder) {
            self.kokkos_tool = Some(self.count);
        }
        self.has_other_kokkos_tool |=
            entry.strip_prefix(FORMER_KOKKOS_TOOL).is_some_and(|value| !is_recorder(value));
        if !entry.starts_with(PREFIX.as_bytes()) {
            return;
        }
        let mut handed_on = options.handed_on.variables.bytes().split(|&b| b == 0);
        self.is_settled |= entry == b"HEAPTIDE_MODE=off"
            || entry.starts_with(RUN) && !handed_on.any(|known| known == entry);
        if let Some(value) = entry.strip_prefix(OUTPUT) {
            self.output = Some(self.count);
            self.output_is_relative =
                value == options.output.bytes() && value.first() != Some(&b'/');
        }
        let variables = options.handed_on.variables.bytes().split(|&b| b == 0);
        let name = name_of(entry);
        if let Some(at) = variables.take(VARIABLES_MAX).position(|known| name_of(known) == name) {
            self.variables |= 1 << at;
        }
    }

    /// Returns the bytes of a new environment: words and two strings.
    fn room_needed(&self, handed_on: &HandedOn) -> usize {
        let words = (self.count + ADDED_MAX) * size_of::<usize>();
        let preload = self.preload.map_or(0, |(_, value)| value.len());
        words + PRELOAD.len() + preload + handed_on.preload.bytes().len() + OUTPUT.len() + PATH_MAX
    }

    /// Returns the environment with the recorder's missing settings, or without its library.
    ///
    /// # Safety
    /// The environment has not changed since it was read.
    unsafe fn completed(
        &self,
        memory: &mut Memory,
        unrecorded: Option<UnrecordedChild>,
        handed_on: &HandedOn,
    ) -> Strings {
        use UnrecordedChild::{SetUserId, Static};
        let loads = self
            .preload
            .is_some_and(|(_, value)| value.split(|&b| is_separator(b)).any(is_recorder));
        let mut new = Words::new(memory, self.count + ADDED_MAX);
        match unrecorded {
            // These neither load the library nor report an error about it.
            Some(Static | SetUserId) => return self.environment,
            Some(_) if !loads => return self.environment,
            Some(_) => {
                let rest = |entry: &&[u8]| !is_ours(entry, handed_on);
                let value = self.preload.map_or(&b""[..], |(_, value)| value);
                new.preload(b"", value.split(|&b| is_separator(b)).filter(rest));
                // SAFETY: the caller's contract.
                unsafe { self.copy_to(&mut new) };
            }
            None => {
                let output = self.output.is_none() || self.output_is_relative;
                let is_kept = self.dropped().is_none();
                if loads && !output && is_kept && self.missing(handed_on).next().is_none() {
                    return self.environment;
                }
                if !loads {
                    let value = self.preload.map_or(&b""[..], |(_, value)| value);
                    let entries = value.split(|&b| is_separator(b));
                    new.preload(handed_on.preload.bytes(), entries);
                }
                if output && let Some(directory) = directory::known() {
                    new.output(directory.bytes());
                }
                // SAFETY: the caller's contract.
                unsafe { self.copy_to(&mut new) };
                self.missing(handed_on).for_each(|variable| new.push(variable.as_ptr()));
            }
        }
        new.finish()
    }

    /// Returns missing inherited variables, except `HEAPTIDE_OUTPUT`; each is followed by a zero
    /// byte.
    fn missing<'v>(&self, handed_on: &'v HandedOn) -> impl Iterator<Item = &'v [u8]> {
        let there = self.variables;
        let variables = handed_on.variables.bytes().split(|&b| b == 0).take(VARIABLES_MAX);
        let missing = variables.enumerate().filter(move |(at, _)| there & 1 << at == 0);
        missing.map(|(_, variable)| variable).filter(|v| !v.is_empty() && !v.starts_with(OUTPUT))
    }

    /// Returns the index of an entry that the program must not get.
    fn dropped(&self) -> Option<usize> {
        self.kokkos_tool.filter(|_| self.has_other_kokkos_tool)
    }

    /// # Safety
    /// The environment has not changed since it was read.
    unsafe fn copy_to(&self, new: &mut Words) {
        for index in 0..self.count {
            let is_preload = self.preload.is_some_and(|(at, _)| at == index);
            let replaced =
                is_preload && new.has_preload || new.has_output && self.output == Some(index);
            if !replaced && self.dropped() != Some(index) {
                // SAFETY: the caller's contract.
                new.push(unsafe { *self.environment.add(index) as *const u8 });
            }
        }
    }
}

const PRELOAD: &[u8] = b"LD_PRELOAD=\0";
const OUTPUT: &[u8] = b"HEAPTIDE_OUTPUT=";
const KOKKOS_TOOL: &[u8] = b"KOKKOS_TOOLS_LIBS=";
const FORMER_KOKKOS_TOOL: &[u8] = b"KOKKOS_PROFILE_LIBRARY=";
/// The changes of a `heaptide run` to the environment, in its own format.
const RUN: &[u8] = b"HEAPTIDE_RUN=";

fn name_of(entry: &[u8]) -> &[u8] {
    entry.split(|&b| b == b'=').next().unwrap_or(entry)
}

/// Returns whether an entry of `LD_PRELOAD` is the recorder's, or that of one of its monitors.
fn is_ours(entry: &[u8], handed_on: &HandedOn) -> bool {
    let mut ours = handed_on.preload.bytes().split(|&b| is_separator(b));
    is_recorder(entry) || ours.any(|own| file_of(own) == file_of(entry))
}

/// An environment under construction: words at the start, strings after them.
struct Words {
    start: *mut *const u8,
    count: usize,
    text: *mut u8,
    has_preload: bool,
    has_output: bool,
}

impl Words {
    /// Creates it in memory with space for everything ([`Given::room_needed`]).
    fn new(memory: &mut Memory, most: usize) -> Words {
        let start = memory.rest() as *mut *const u8;
        let text = start.wrapping_add(most) as *mut u8;
        Words { start, count: 0, text, has_preload: false, has_output: false }
    }

    fn push(&mut self, entry: *const u8) {
        // SAFETY: there is space for the maximal number of words.
        unsafe { *self.start.add(self.count) = entry };
        self.count += 1;
    }

    /// Adds `LD_PRELOAD` with `first` and `rest`; adds nothing if there is nothing to load.
    fn preload<'e>(&mut self, first: &[u8], rest: impl Iterator<Item = &'e [u8]>) {
        let entry = self.text;
        self.append(&PRELOAD[..PRELOAD.len() - 1]);
        self.append(first);
        let mut is_empty = first.is_empty();
        for one in rest.filter(|one| !one.is_empty()) {
            self.append(if is_empty { b"" } else { b":" });
            self.append(one);
            is_empty = false;
        }
        self.append(b"\0");
        self.has_preload = true;
        if !is_empty {
            self.push(entry);
        }
    }

    fn output(&mut self, directory: &[u8]) {
        let entry = self.text;
        self.append(OUTPUT);
        self.append(directory);
        self.append(b"\0");
        self.has_output = true;
        self.push(entry);
    }

    fn append(&mut self, bytes: &[u8]) {
        // SAFETY: there is space for both strings.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.text, bytes.len());
            self.text = self.text.add(bytes.len());
        }
    }

    fn finish(mut self) -> Strings {
        self.push(core::ptr::null());
        self.start as Strings
    }
}

/// A thread's memory for this. It is kept for reuse, because after a successful exec in a child of
/// vfork nothing could free it.
struct Memory {
    start: *mut Head,
    is_kept: bool,
}

/// The header before the words.
struct Head {
    bytes: usize,
    /// The thread that uses it, or 0.
    user: u32,
    /// It is in use for the start of a process.
    starts_new: bool,
    room: Room,
    path: Text<PATH_MAX>,
    /// The program to start, if it will not be recorded.
    program: Text<NAME_MAX>,
}

impl Memory {
    /// Returns whether another call that is hooked makes this one, which happens in a static
    /// program: `execvp` calls `execve`, and so does the process that `posix_spawn` makes, which
    /// has the thread-local variables of its parent.
    fn is_within_other_call() -> bool {
        let kept = tls().exec_memory.get() as *const Head;
        // SAFETY: null, or the thread's own memory.
        let head = unsafe { kept.as_ref() };
        attachment::is_inserted()
            && head.is_some_and(|head| head.starts_new || head.user == kernel::gettid())
    }

    /// Returns memory with `bytes` bytes after its header; `None` if out of memory.
    fn acquire(bytes: usize) -> Option<Memory> {
        let bytes = size_of::<Head>() + bytes;
        let me = kernel::gettid();
        let kept = tls().exec_memory.get() as *mut Head;
        // SAFETY: null, or the thread's own memory.
        let head = unsafe { kept.as_ref() };
        let is_kept = match head {
            // An exec in a signal handler that interrupted another one.
            Some(head) if head.user == me => false,
            Some(head) if head.bytes >= bytes => {
                // SAFETY: as above.
                unsafe { (*kept).user = me };
                return Some(Memory { start: kept, is_kept: true });
            }
            Some(head) => {
                // SAFETY: it is unused.
                unsafe { kernel::unmap(kept as *mut u8, head.bytes) };
                true
            }
            None => true,
        };
        let start = kernel::map_private(bytes) as *mut Head;
        if is_kept {
            tls().exec_memory.set(start as *mut u8);
        }
        if start.is_null() {
            return None;
        }
        // SAFETY: new zeroed memory, for which zeros are valid.
        unsafe { ((*start).bytes, (*start).user) = (bytes, me) };
        Some(Memory { start, is_kept })
    }

    fn head(&mut self) -> &mut Head {
        // SAFETY: mapped, and owned by this thread.
        unsafe { &mut *self.start }
    }

    /// Returns the memory after the header, aligned for words.
    fn rest(&mut self) -> *mut u8 {
        self.start.wrapping_add(1) as *mut u8
    }

    fn release(mut self) {
        if self.is_kept {
            (self.head().user, self.head().starts_new) = (0, false);
        } else {
            let bytes = self.head().bytes;
            // SAFETY: a mapping that is used only here.
            unsafe { kernel::unmap(self.start as *mut u8, bytes) };
        }
    }
}

/// Frees the thread's memory when it ends.
pub fn give_back() {
    // SAFETY: the thread's own block, and its memory, which is no longer used.
    unsafe {
        let kept = tls().exec_memory.replace(core::ptr::null_mut());
        let kept = kept as *mut Head;
        if !kept.is_null() {
            kernel::unmap(kept as *mut u8, (*kept).bytes);
        }
    }
}
