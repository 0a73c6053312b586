//! Programs that this one starts by exec or spawn: they are recorded like it, whatever has become
//! of the environment that it hands them, and those that cannot be are counted.
//!
//! A program may clear its environment, or start another one with an environment made anew. What
//! the recorder needs was kept when it started ([`heaptide_recorder::sys::options`]) and is added
//! to what is handed over. Where the recorder would do harm (a sanitizer's runtime refuses to start
//! behind it, the loader complains of a library that it cannot read) it is taken out instead. A
//! program that a command attached to has it from that command, as long as it is recorded.
//!
//! All of it is done without allocating, also in a child of vfork, which shares the memory of its
//! parent: what is built for an exec that succeeds there is used again by the parent's thread.

use crate::attachment;
use crate::exec_target::{self, Room};
use core::ffi::{CStr, c_char};
use heaptide_format::settings::PREFIX;
use heaptide_format::{UNRECORDED_PATH, UnrecordedChild};
use heaptide_recorder::event::process::{State, count_unrecorded, discount_unrecorded, process};
use heaptide_recorder::store::profile;
use heaptide_recorder::sys::confined;
use heaptide_recorder::sys::kernel::{self, Fd, Path};
use heaptide_recorder::sys::options::{
    HandedOn, Options, PATH_MAX, file_of, is_recorder, is_separator,
};
use heaptide_recorder::sys::text::Text;
use heaptide_recorder::sys::tls::tls;

/// Strings, of which the last is followed by null.
pub type Strings = *const *const c_char;

/// The file that is to be executed.
pub enum Target<'a> {
    /// A path.
    Path(&'a CStr),
    /// A name to be looked for in `PATH`, unless it is a path.
    Name(&'a CStr, Option<&'a [u8]>),
    /// An open file.
    Open(Fd),
    /// Not known here.
    Unknown,
}

/// Variables of the recorder that are looked for in an environment.
const VARIABLES_MAX: usize = 32;
/// Words that an environment may get longer by: these variables, two more, and the end.
const ADDED_MAX: usize = VARIABLES_MAX + 3;
/// Bytes of a program's path that are noted, and a zero byte.
const NAME_MAX: usize = UNRECORDED_PATH + 1;
/// Rights of faccessat.
const MAY_READ: usize = 4;
const MAY_CREATE_IN: usize = 3;

/// What is handed to a program that is about to be started.
pub struct Plan {
    /// Its environment.
    pub environment: Strings,
    memory: Option<Memory>,
    unrecorded: Option<UnrecordedChild>,
}

impl Plan {
    /// For a program with this environment.
    ///
    /// # Safety
    /// `environment` is one as execve takes it.
    pub unsafe fn new(target: &Target<'_>, environment: Strings) -> Plan {
        // SAFETY: as promised.
        let plan = unsafe { Plan::made(target, environment) };
        plan.unwrap_or(Plan { environment, memory: None, unrecorded: None })
    }

    /// None if the recorder has no say.
    unsafe fn made(target: &Target<'_>, environment: Strings) -> Option<Plan> {
        let options = Options::known().filter(|options| options.is_wanted())?;
        let handed_on = &options.handed_on;
        // Without a library to load, programs that an attached one starts are counted only.
        let is_of_concern = match attachment::is_wanted() {
            None => !handed_on.preload.is_empty(),
            Some(is_wanted) => is_wanted && process().state() != State::Off,
        };
        let is_whole = handed_on.preload.is_whole() && handed_on.variables.is_whole();
        if !is_of_concern || !is_whole || !confined::may_call() {
            return None;
        }
        // SAFETY: as the caller promises.
        let given = unsafe { Given::read(environment, options) };
        if given.is_settled {
            return None;
        }
        let mut memory = Memory::acquire(given.room_needed(handed_on))?;
        let unrecorded = obstacle(&mut memory, target, handed_on, &given);
        if let Some(why) = unrecorded {
            let Head { room, program, .. } = memory.head();
            name(target, room, program);
            count_unrecorded(why, program.bytes());
        }
        // SAFETY: as the caller promises.
        let environment = unsafe { given.completed(&mut memory, unrecorded, handed_on) };
        Some(Plan { environment, memory: Some(memory), unrecorded })
    }

    /// The program was not started.
    pub fn failed(mut self) {
        if let (Some(why), Some(memory)) = (self.unrecorded, &mut self.memory) {
            discount_unrecorded(why, memory.head().program.bytes());
        }
        self.ended();
    }

    /// The program was started, and this one goes on.
    pub fn ended(self) {
        if let Some(memory) = self.memory {
            memory.release();
        }
    }
}

/// Notes the path of a program, or the name by which it is looked for: the end of it, if it is
/// long.
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

/// Why the program will not be recorded.
fn obstacle(
    memory: &mut Memory,
    target: &Target<'_>,
    handed_on: &HandedOn,
    given: &Given<'_>,
) -> Option<UnrecordedChild> {
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
    kernel::as_after_exec(|| obstacle_to_recording(path, handed_on, given))
}

/// The same of the recorder's own files.
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
    let directory = profile::known_directory()?.path()?;
    let elsewhere = given.output.is_some() && !given.output_is_relative;
    (!elsewhere && !kernel::may_access(directory, MAY_CREATE_IN))
        .then_some(UnrecordedChild::NoRight)
}

/// The file of a name, found as execvp does.
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

/// An environment that a program is given, and what of the recorder's is in it.
struct Given<'a> {
    environment: Strings,
    count: usize,
    /// The program is not to be recorded (`HEAPTIDE_MODE=off`), or a `heaptide run` inside this one
    /// has made the environment.
    is_settled: bool,
    /// `LD_PRELOAD`: the place of the entry that counts, and its value.
    preload: Option<(usize, &'a [u8])>,
    /// The place of `HEAPTIDE_OUTPUT`, and whether it is the relative path that this program was
    /// started with.
    output: Option<usize>,
    output_is_relative: bool,
    /// Which of the variables that are handed on are there, by their order.
    variables: u32,
}

impl<'a> Given<'a> {
    /// # Safety
    /// `environment` is one as execve takes it, for as long as this lives.
    unsafe fn read(environment: Strings, options: &Options) -> Given<'a> {
        let mut given = Given {
            environment,
            count: 0,
            is_settled: false,
            preload: None,
            output: None,
            output_is_relative: false,
            variables: 0,
        };
        // SAFETY: as the caller promises.
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
        // SAFETY: as the caller promises; entries are strings.
        unsafe {
            let entry = *self.environment.add(index);
            (!entry.is_null()).then(|| CStr::from_ptr(entry).to_bytes())
        }
    }

    fn note(&mut self, entry: &'a [u8], options: &Options) {
        if let Some(value) = entry.strip_prefix(b"LD_PRELOAD=") {
            self.preload = Some((self.count, value)); // of several the last one counts
        }
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

    /// Bytes for a new environment: words and two strings.
    fn room_needed(&self, handed_on: &HandedOn) -> usize {
        let words = (self.count + ADDED_MAX) * size_of::<usize>();
        let preload = self.preload.map_or(0, |(_, value)| value.len());
        words + PRELOAD.len() + preload + handed_on.preload.bytes().len() + OUTPUT.len() + PATH_MAX
    }

    /// The environment with what is missing for the recorder, or without its library.
    ///
    /// # Safety
    /// The environment that was read is as it was.
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
            // Neither loads the library, nor complains of it.
            Some(Static | SetUserId) => return self.environment,
            Some(_) if !loads => return self.environment,
            Some(_) => {
                let rest = |entry: &&[u8]| !is_ours(entry, handed_on);
                let value = self.preload.map_or(&b""[..], |(_, value)| value);
                new.preload(b"", value.split(|&b| is_separator(b)).filter(rest));
                // SAFETY: as promised.
                unsafe { self.copy_to(&mut new) };
            }
            None => {
                let output = self.output.is_none() || self.output_is_relative;
                if loads && !output && self.missing(handed_on).next().is_none() {
                    return self.environment;
                }
                if !loads {
                    let value = self.preload.map_or(&b""[..], |(_, value)| value);
                    let entries = value.split(|&b| is_separator(b));
                    new.preload(handed_on.preload.bytes(), entries);
                }
                if output && let Some(directory) = profile::known_directory() {
                    new.output(directory.bytes());
                }
                // SAFETY: as promised.
                unsafe { self.copy_to(&mut new) };
                self.missing(handed_on).for_each(|variable| new.push(variable.as_ptr()));
            }
        }
        new.finish()
    }

    /// Variables that are handed on and not there, `HEAPTIDE_OUTPUT` apart; each is followed by a
    /// zero byte.
    fn missing<'v>(&self, handed_on: &'v HandedOn) -> impl Iterator<Item = &'v [u8]> {
        let there = self.variables;
        let variables = handed_on.variables.bytes().split(|&b| b == 0).take(VARIABLES_MAX);
        let missing = variables.enumerate().filter(move |(at, _)| there & 1 << at == 0);
        missing.map(|(_, variable)| variable).filter(|v| !v.is_empty() && !v.starts_with(OUTPUT))
    }

    /// # Safety
    /// The environment that was read is as it was.
    unsafe fn copy_to(&self, new: &mut Words) {
        for index in 0..self.count {
            let is_preload = self.preload.is_some_and(|(at, _)| at == index);
            let replaced =
                is_preload && new.has_preload || new.has_output && self.output == Some(index);
            if !replaced {
                // SAFETY: as the caller promises.
                new.push(unsafe { *self.environment.add(index) as *const u8 });
            }
        }
    }
}

const PRELOAD: &[u8] = b"LD_PRELOAD=\0";
const OUTPUT: &[u8] = b"HEAPTIDE_OUTPUT=";
/// What a `heaptide run` changed of the environment, in its own words.
const RUN: &[u8] = b"HEAPTIDE_RUN=";

fn name_of(entry: &[u8]) -> &[u8] {
    entry.split(|&b| b == b'=').next().unwrap_or(entry)
}

/// Whether an entry of `LD_PRELOAD` is the recorder's, or one of its monitors'.
fn is_ours(entry: &[u8], handed_on: &HandedOn) -> bool {
    let mut ours = handed_on.preload.bytes().split(|&b| is_separator(b));
    is_recorder(entry) || ours.any(|own| file_of(own) == file_of(entry))
}

/// An environment that is being made: words from the front, strings behind them.
struct Words {
    start: *mut *const u8,
    count: usize,
    text: *mut u8,
    has_preload: bool,
    has_output: bool,
}

impl Words {
    /// In memory that has room for all that is to come ([`Given::room_needed`]).
    fn new(memory: &mut Memory, most: usize) -> Words {
        let start = memory.rest() as *mut *const u8;
        let text = start.wrapping_add(most) as *mut u8;
        Words { start, count: 0, text, has_preload: false, has_output: false }
    }

    fn push(&mut self, entry: *const u8) {
        // SAFETY: there is room for as many words as there may be.
        unsafe { *self.start.add(self.count) = entry };
        self.count += 1;
    }

    /// Adds `LD_PRELOAD` of `first` and `rest`; none if there is nothing to load.
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
        // SAFETY: there is room for both strings.
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

/// A thread's memory for this. It is kept for the next time: of an exec that succeeds in a child of
/// vfork nobody could give it back.
struct Memory {
    start: *mut Head,
    is_kept: bool,
}

/// What lies in front of the words.
struct Head {
    bytes: usize,
    /// The thread that uses it, or 0.
    user: u32,
    room: Room,
    path: Text<PATH_MAX>,
    /// The program that is started, if it will not be recorded.
    program: Text<NAME_MAX>,
}

impl Memory {
    /// Memory with so many bytes behind its head; none if there is none.
    fn acquire(bytes: usize) -> Option<Memory> {
        let bytes = size_of::<Head>() + bytes;
        let me = kernel::gettid();
        let kept = tls().exec_memory.get() as *mut Head;
        // SAFETY: null, or the thread's own memory.
        let head = unsafe { kept.as_ref() };
        let is_kept = match head {
            // An exec of a signal handler, in the middle of another.
            Some(head) if head.user == me => false,
            Some(head) if head.bytes >= bytes => {
                // SAFETY: as above.
                unsafe { (*kept).user = me };
                return Some(Memory { start: kept, is_kept: true });
            }
            Some(head) => {
                // SAFETY: nobody uses it.
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
        // SAFETY: fresh zeroed memory, of which zeros are valid.
        unsafe { ((*start).bytes, (*start).user) = (bytes, me) };
        Some(Memory { start, is_kept })
    }

    fn head(&mut self) -> &mut Head {
        // SAFETY: mapped, and this thread's.
        unsafe { &mut *self.start }
    }

    /// What is behind the head, aligned for words.
    fn rest(&mut self) -> *mut u8 {
        self.start.wrapping_add(1) as *mut u8
    }

    fn release(mut self) {
        if self.is_kept {
            self.head().user = 0;
        } else {
            let bytes = self.head().bytes;
            // SAFETY: a mapping of this alone.
            unsafe { kernel::unmap(self.start as *mut u8, bytes) };
        }
    }
}

/// Gives the thread's memory back when it ends.
pub fn give_back() {
    // SAFETY: the thread's own block, and its memory, which nothing uses any more.
    unsafe {
        let kept = tls().exec_memory.replace(core::ptr::null_mut());
        let kept = kept as *mut Head;
        if !kept.is_null() {
            kernel::unmap(kept as *mut u8, (*kept).bytes);
        }
    }
}
