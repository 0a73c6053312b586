//! The settings in the environment. They are read once, from `/proc/self/environ` (libc's `environ`
//! may not be set yet), and kept in memory of the recorder: forked children find them there even if
//! the program changes its environment, and the hooks of exec pass them on to executed programs.

use crate::sys::kernel::{self, Path};
use crate::sys::memory::{self, InChild};
use crate::sys::own_stack;
use crate::sys::rank::Place;
use crate::sys::replaced::{self, Libraries, Replaced};
use crate::sys::text::{Text, file_of, number};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr};
use heaptide_format::caliper;
use heaptide_format::settings::{BELOW, OFF, ON, PREFIX, Setting};
use heaptide_format::{Mode, PROFILE_LIMIT_MIN, sample_mean};

/// Maximum length of the path of a profile.
pub const PATH_MAX: usize = 4096;
/// Maximum size of the environment that is read, in bytes.
const ENVIRONMENT_MAX: usize = 2 << 20;
/// Maximum size of `HEAPTIDE_REPORT`, in bytes.
const REPORT_MAX: usize = 8 << 10;
/// Maximum size of the variables that are passed on to executed programs, in bytes.
const HANDED_ON_MAX: usize = 16 << 10;

/// The recorder's options; most comments start with the environment variable.
pub struct Options {
    /// `HEAPTIDE_OUTPUT`: the recording directory; empty for `heaptide-PROGRAM-PID.heaptide` here.
    pub output: Text<PATH_MAX>,
    /// `HEAPTIDE_MODE`: `stacks`, `scopes`, `counters` or `sampled[=BYTES]`.
    pub mode: Mode,
    /// In mode sampled: average number of bytes allocated per sampled block.
    pub sample_mean_bytes: u64,
    /// `HEAPTIDE_SAMPLE_SEED=NUMBER`: the seed of the random numbers that select blocks.
    pub sample_seed: Option<u64>,
    /// `HEAPTIDE_CLOCK=FILE`: a file that begins with the time; empty for the system's clock.
    pub clock: Text<PATH_MAX>,
    /// `HEAPTIDE_FULL_BATCHES=on`: threads publish their live bytes in full batches only.
    pub full_batches: bool,
    /// `HEAPTIDE_MODE=off`: nothing is recorded.
    off: bool,
    /// `HEAPTIDE_FOLLOW=PID`: only this process is recorded.
    follow: Option<u64>,
    /// `HEAPTIDE_REUSE=off`: unwind each stack completely.
    pub reuse: bool,
    /// `HEAPTIDE_INTERCEPT=off`: do not change code of allocators that preloading does not reach.
    pub intercept: bool,
    /// `HEAPTIDE_PYTHON_MEMORY=arenas`: do not record objects of Python.
    pub python_arenas: bool,
    /// `HEAPTIDE_ACCOUNTS=off`: no accounts of resident memory.
    pub accounts: bool,
    /// `HEAPTIDE_RETAIN=on`: at its end, the process waits until a command has searched its memory.
    pub retain: bool,
    /// `HEAPTIDE_START=off`: recording starts disabled.
    pub start_off: bool,
    /// `HEAPTIDE_THRESHOLD=BYTES`: stacks only for requests of at least this many bytes; with `<`
    /// in front, only for smaller ones.
    pub threshold: Option<(u64, bool)>,
    /// `HEAPTIDE_MODE=trace`: mode stacks, with every event.
    pub trace: bool,
    /// `HEAPTIDE_FREE_STACKS=on`: record frees with their stacks.
    pub free_stacks: bool,
    /// `HEAPTIDE_MAX_SIZE=BYTES`: maximum size of the traces of the recording; 0 for no limit.
    pub max_size: u64,
    /// Record frees with site and size, since the oldest part of the trace may be dropped.
    pub trace_ends: bool,
    /// Maximum size of a profile in bytes; 0 for no limit.
    pub max_profile: u64,
    /// `HEAPTIDE_BY_SIZE=on`: distinguish sites by the size requested.
    pub by_size: bool,
    /// `HEAPTIDE_BY_CALL=on`: distinguish sites by the function called.
    pub by_call: bool,
    /// `HEAPTIDE_SNAPSHOT_EVERY=SECONDS`: in nanoseconds, 0 for never.
    pub snapshot_every_ns: u64,
    /// Number of these snapshots that are kept, the newest; 0 for all.
    pub keep_snapshots: u32,
    /// `HEAPTIDE_SNAPSHOT_SIGNAL=NUMBER`: the signal that takes a snapshot; 0 for none.
    pub snapshot_signal: u32,
    /// `HEAPTIDE_REPORT`: the output at exit; empty for none.
    pub report: Text<REPORT_MAX>,
    /// Set if only the name of the preloaded library requests that output.
    pub is_report_of_replaced: bool,
    /// The libraries of other tools whose names the recorder was preloaded with.
    pub replaced: Libraries,
    /// `TMPDIR`, absolute: the directory of temporary recordings.
    pub temporary: Text<PATH_MAX>,
    /// The process's place in a parallel job.
    pub place: Place,
    /// The settings for executed programs.
    pub handed_on: HandedOn,
}

/// The settings with which programs started by exec are recorded like this one.
pub struct HandedOn {
    /// All variables of the recorder, `NAME=VALUE`, each ended by a zero byte.
    pub variables: Text<HANDED_ON_MAX>,
    /// The recorder's part of `LD_PRELOAD`: its library and monitors. Empty if the library was not
    /// preloaded.
    pub preload: Text<PATH_MAX>,
}

impl HandedOn {
    /// Returns the value of a variable; none if it was not set.
    pub fn value(&self, name: &[u8]) -> Option<&[u8]> {
        let mut entries = self.variables.bytes().split(|&b| b == 0);
        entries.find_map(|entry| entry.strip_prefix(name)?.strip_prefix(b"="))
    }
}

/// Set if the program itself has requested to be recorded.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Notes that the program requests to be recorded, with settings `NAME=VALUE`, separated by spaces,
/// which apply unless the environment has them. Nothing is recorded now, so nothing refers to the
/// options.
pub fn ask(settings: &[u8]) {
    // SAFETY: complete since it was stored; nothing refers to it, and no other thread exists.
    if let Some(options) = unsafe { OPTIONS.load(Acquire).as_mut() } {
        options.supplement(settings);
    }
    ASKED.store(true, Release);
}

/// The options of this process and of those from which it was forked; null until they are read.
static OPTIONS: AtomicPtr<Options> = AtomicPtr::new(core::ptr::null_mut());

impl Options {
    /// Applies the settings that the environment does not have.
    fn supplement(&mut self, settings: &[u8]) {
        for entry in settings.split(|&b| b == b' ') {
            let Some(equals) = entry.iter().position(|&b| b == b'=') else {
                continue;
            };
            let (name, value) = (&entry[..equals], &entry[equals + 1..]);
            let setting = name.strip_prefix(PREFIX.as_bytes()).and_then(Setting::from_suffix);
            if let Some(setting) = setting.filter(|_| self.handed_on.value(name).is_none()) {
                self.set(setting, value);
                self.handed_on.variables.push(entry);
                self.handed_on.variables.push(b"\0");
            }
        }
    }

    /// Returns the options with which the program was started; none if there is no memory for them.
    pub fn get() -> Option<&'static Options> {
        if OPTIONS.load(Acquire).is_null() {
            own_stack::call(read);
        }
        Options::known()
    }

    /// Returns the options, if they were read.
    pub fn known() -> Option<&'static Options> {
        // SAFETY: complete when it was stored; never changed or released, except by `replace`.
        unsafe { OPTIONS.load(Acquire).as_ref() }
    }

    /// Returns whether this process is to be recorded.
    pub fn is_wanted(&self) -> bool {
        !self.off && self.follow.is_none_or(|pid| pid == kernel::getpid() as u64)
    }

    /// Returns whether the environment requests a recording of a program that contains the
    /// recorder.
    pub fn is_asked_for(&self) -> bool {
        let asks = [Setting::Output, Setting::Mode, Setting::Report];
        let value = |setting: &Setting| self.handed_on.value(setting.variable().as_bytes());
        asks.iter().filter_map(value).any(|value| !value.is_empty())
    }

    /// Returns whether anything requests a recording: a variable, the preloaded library, or the
    /// program itself.
    pub fn is_asked_for_or_preloaded(&self) -> bool {
        self.is_asked_for() || !self.handed_on.preload.is_empty() || ASKED.load(Acquire)
    }

    /// Returns whether the recording only serves the output that is written from it, and is removed
    /// with the process.
    pub fn is_temporary(&self) -> bool {
        let is_for_output = !self.report.is_empty() || !self.replaced.is_empty();
        self.output.is_empty() && (is_for_output || ASKED.load(Acquire))
    }

    fn new() -> Options {
        Options {
            output: Text::new(),
            mode: Mode::Stacks,
            sample_mean_bytes: 0,
            sample_seed: None,
            clock: Text::new(),
            full_batches: false,
            off: false,
            follow: None,
            reuse: true,
            intercept: true,
            python_arenas: false,
            accounts: true,
            retain: false,
            start_off: false,
            threshold: None,
            trace: false,
            free_stacks: false,
            max_size: 0,
            trace_ends: false,
            max_profile: 0,
            by_size: false,
            by_call: false,
            snapshot_every_ns: 0,
            keep_snapshots: 0,
            snapshot_signal: 0,
            report: Text::new(),
            is_report_of_replaced: false,
            replaced: Libraries::default(),
            temporary: Text::new(),
            place: Place::new(),
            handed_on: HandedOn { variables: Text::new(), preload: Text::new() },
        }
    }

    fn set(&mut self, setting: Setting, value: &[u8]) {
        let (is_on, is_off) = (value == ON.as_bytes(), value == OFF.as_bytes());
        match setting {
            Setting::Output => self.output.push(value),
            Setting::Mode => match value {
                b"counters" => self.mode = Mode::Counters,
                b"scopes" => self.mode = Mode::Scopes,
                b"trace" => self.trace = true,
                _ => {
                    self.off |= is_off;
                    if let Some(bytes) = sample_mean(value) {
                        (self.mode, self.sample_mean_bytes) = (Mode::Sampled, bytes);
                    }
                }
            },
            Setting::SampleSeed => self.sample_seed = number(value),
            Setting::Clock => self.clock.push(value),
            Setting::FullBatches => self.full_batches |= is_on,
            Setting::FreeStacks => self.free_stacks |= is_on,
            Setting::MaxSize => self.max_size = number(value).unwrap_or(0),
            Setting::KeepTrace => self.trace_ends |= is_on,
            Setting::MaxProfile => {
                let bytes = number(value).unwrap_or(0);
                self.max_profile = if bytes == 0 { 0 } else { bytes.max(PROFILE_LIMIT_MIN) };
            }
            Setting::Reuse => self.reuse &= !is_off,
            Setting::Intercept => self.intercept &= !is_off,
            Setting::PythonMemory => self.python_arenas |= value == b"arenas",
            Setting::Accounts => self.accounts &= !is_off,
            Setting::Retain => self.retain |= is_on,
            Setting::Start => self.start_off |= is_off,
            Setting::Threshold => {
                let below = value.strip_prefix(BELOW.as_bytes());
                let bytes = number(below.unwrap_or(value));
                self.threshold = bytes.map(|bytes| (bytes, below.is_some()));
            }
            Setting::BySize => self.by_size |= is_on,
            Setting::ByCall => self.by_call |= is_on,
            Setting::SnapshotEvery => self.snapshot_every_ns = nanoseconds(value),
            Setting::KeepSnapshots => self.keep_snapshots = number(value).unwrap_or(0) as u32,
            Setting::SnapshotSignal => self.snapshot_signal = number(value).unwrap_or(0) as u32,
            Setting::Report => self.report.push(value),
            Setting::Follow => self.follow = Some(number(value).unwrap_or(0)),
            // Ranks are noted together with those of launchers; the others are for the command.
            Setting::Rank
            | Setting::Ranks
            | Setting::Job
            | Setting::Monitors
            | Setting::Run
            | Setting::Library
            | Setting::Command
            | Setting::Pager
            | Setting::ClusterToken => {}
        }
    }
}

/// Replaces the options by the settings of a command that attached: `NAME=VALUE`, each ended by a
/// zero byte, as in the environment. From the environment itself, only the description of a job is
/// read. Nothing is recorded now, so nothing refers to the options. Returns false without memory.
pub fn replace(settings: &[u8]) -> bool {
    let known = OPTIONS.load(Acquire);
    let memory = if known.is_null() {
        memory::take(size_of::<Options>(), InChild::Copy) as *mut Options
    } else {
        known
    };
    if memory.is_null() {
        return false;
    }
    // SAFETY: memory of that size, to which nothing refers.
    let options = unsafe {
        memory.write(Options::new());
        &mut *memory
    };
    let note = |environment: &[u8]| {
        for entry in environment.split(|&b| b == 0) {
            if let Some(equals) = entry.iter().position(|&b| b == b'=') {
                options.place.note(&entry[..equals], &entry[equals + 1..]);
            }
        }
    };
    let _ = with_environment(note); // without memory for it there is no job
    parse(settings, options);
    // Lanes alone would count frees of blocks that were allocated before.
    match options.mode {
        Mode::Counters => options.mode = Mode::Scopes,
        Mode::Sampled => options.mode = Mode::Stacks,
        Mode::Scopes | Mode::Stacks => {}
    }
    OPTIONS.store(memory, Release);
    true
}

/// Reads the environment into memory that children inherit. Returns none without memory.
fn read() -> Option<()> {
    let memory = memory::take(size_of::<Options>(), InChild::Copy) as *mut Options;
    if memory.is_null() {
        return None;
    }
    with_environment(|environment| {
        // SAFETY: fresh memory of that size, to which nothing else refers.
        let options = unsafe {
            memory.write(Options::new());
            &mut *memory
        };
        parse(environment, options);
        // Its user could have files written, and programs run, with the privileges of the program.
        options.off |= kernel::has_gained_rights();
    })?;
    // Another thread may have been faster; it read the same.
    let _ = OPTIONS.compare_exchange(core::ptr::null_mut(), memory, AcqRel, Acquire);
    Some(())
}

/// Calls `use_it` with the environment with which the process was started: `NAME=VALUE`, each ended
/// by a zero byte. Returns none without memory.
pub fn with_environment<R>(use_it: impl FnOnce(&[u8]) -> R) -> Option<R> {
    let memory = kernel::map_private(ENVIRONMENT_MAX);
    if memory.is_null() {
        return None;
    }
    // SAFETY: fresh zeroed memory of this length, released below and not used after.
    let buffer = unsafe { core::slice::from_raw_parts_mut(memory, ENVIRONMENT_MAX) };
    let environment =
        Path::new(b"/proc/self/environ\0").map(|path| kernel::read_file(path, buffer));
    let result = match environment {
        Some(Ok(environment)) => use_it(environment),
        _ => use_it(b""),
    };
    // SAFETY: the result does not borrow from it.
    unsafe { kernel::unmap(memory, ENVIRONMENT_MAX) };
    Some(result)
}

fn parse(environment: &[u8], options: &mut Options) {
    let (mut preload, mut monitors): (&[u8], &[u8]) = (b"", b"");
    let mut services = caliper::Services::default();
    for entry in environment.split(|&b| b == 0) {
        let Some(equals) = entry.iter().position(|&b| b == b'=') else {
            continue;
        };
        let (name, value) = (&entry[..equals], &entry[equals + 1..]);
        options.place.note(name, value);
        if name == b"LD_PRELOAD" {
            preload = value;
        }
        if name == b"TMPDIR" && value.first() == Some(&b'/') {
            options.temporary.truncate(0);
            options.temporary.push(value);
        }
        if name == caliper::VARIABLE.as_bytes() {
            services = services.and(caliper::Services::read(value));
        }
        if name == caliper::CONFIG.as_bytes() {
            services = services.and(caliper::Services::of_config(value));
        }
        let Some(suffix) = name.strip_prefix(PREFIX.as_bytes()) else {
            continue;
        };
        match Setting::from_suffix(suffix) {
            Some(Setting::Monitors) => monitors = value,
            Some(setting) => options.set(setting, value),
            None => {}
        }
        options.handed_on.variables.push(entry);
        options.handed_on.variables.push(b"\0");
    }
    let mode = options.handed_on.value(Setting::Mode.variable().as_bytes());
    options.trace |= services.trace && mode.is_none_or(<[u8]>::is_empty);
    options.by_size |= services.allocations;
    options.by_call |= services.calls;
    note_preload(&mut options.handed_on.preload, preload, monitors);
    options.replaced = Libraries::of(preload.split(|&b| is_separator(b)));
    act_as_replaced(options);
}

/// Sets what no variable sets as the replaced libraries have it.
fn act_as_replaced(options: &mut Options) {
    /// MallocProfiler records no stacks of smaller requests.
    const PROFILER_THRESHOLD: u64 = 128;
    /// The limit of each process: the directory of such recordings may be in memory, and a process
    /// that is killed leaves its trace there.
    const PROFILER_TRACE_MAX: u64 = 256 << 20;
    let is_unset = |options: &Options, setting: Setting| {
        options.handed_on.value(setting.variable().as_bytes()).is_none_or(<[u8]>::is_empty)
    };
    if options.replaced.is_empty() {
        return;
    }
    if !options.replaced.profile_malloc() {
        if is_unset(options, Setting::Mode) {
            options.mode = Mode::Counters;
        }
        return;
    }
    if is_unset(options, Setting::Report) {
        options.report.push(b"malloc-profiler --malloc-profiler remangled:stdout");
        options.is_report_of_replaced = true;
    }
    if is_unset(options, Setting::Threshold) {
        options.threshold = Some((PROFILER_THRESHOLD, false));
    }
    // Its dumps have the highest live bytes of each stack, which need every event.
    options.trace |= is_unset(options, Setting::Mode);
    if is_unset(options, Setting::MaxSize) {
        options.max_size = PROFILER_TRACE_MAX;
    }
    if is_unset(options, Setting::Start) {
        options.start_off = options.replaced.has(Replaced::MallocProfilerOff);
    }
}

/// Stores the recorder's part of `LD_PRELOAD`: the library, followed by the monitors that
/// `HEAPTIDE_MONITORS` names (`NAME[:OPTIONS]`, separated by semicolons).
fn note_preload(part: &mut Text<PATH_MAX>, preload: &[u8], monitors: &[u8]) {
    let is_monitor = |file: &[u8]| {
        let mut names = monitors.split(|&b| b == b';');
        names.any(|named| named.split(|&b| b == b':').next() == Some(file))
    };
    for entry in preload.split(|&b| is_separator(b)) {
        let ours = if part.is_empty() { is_recorder(entry) } else { is_monitor(file_of(entry)) };
        if ours {
            part.push(if part.is_empty() { b"" } else { b":" });
            part.push(entry);
        } else if !part.is_empty() {
            return;
        }
    }
}

/// Returns whether a byte separates entries of `LD_PRELOAD`.
pub fn is_separator(byte: u8) -> bool {
    matches!(byte, b':' | b' ')
}

/// Returns whether an entry of `LD_PRELOAD` is the recorder's library, of any version.
pub fn is_recorder(entry: &[u8]) -> bool {
    let file = file_of(entry);
    file.starts_with(b"libheaptide") && file.ends_with(b".so") || replaced::is_own(entry)
}

/// Parses decimal seconds, with or without a fraction, to nanoseconds; 0 if it is not a number.
fn nanoseconds(seconds: &[u8]) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    let point = seconds.iter().position(|&b| b == b'.').unwrap_or(seconds.len());
    let whole = number(&seconds[..point]).unwrap_or(0);
    let digits = seconds.get(point + 1..).unwrap_or(b"");
    let places = digits.len().min(9);
    let part = number(&digits[..places]).unwrap_or(0) * 10u64.pow(9 - places as u32);
    whole.saturating_mul(SECOND).saturating_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(environment: &[u8]) -> Options {
        let mut options = Options::new();
        parse(environment, &mut options);
        options
    }

    #[test]
    fn options_of_the_environment() {
        let options = parsed(
            b"PATH=/bin\0HEAPTIDE_MODE=scopes\0HEAPTIDE_THRESHOLD=<100\0HEAPTIDE_REUSE=off\0\
              HEAPTIDE_OUTPUT=/tmp/a b\0HEAPTIDE_SNAPSHOT_EVERY=0.25\0HEAPTIDE_MAX_SIZE=12\0\
              HEAPTIDE_MAX_PROFILE=4194304\0HEAPTIDE_KEEP_SNAPSHOTS=60\0",
        );
        assert!(options.mode == Mode::Scopes && !options.reuse && options.is_wanted());
        assert_eq!((options.threshold, options.max_size), (Some((100, true)), 12));
        assert_eq!((options.max_profile, options.keep_snapshots), (4 << 20, 60));
        let limit = |environment| parsed(environment).max_profile;
        assert_eq!(limit(b"HEAPTIDE_MAX_PROFILE=12\0"), PROFILE_LIMIT_MIN, "room for threads");
        assert_eq!(
            [limit(b"HEAPTIDE_MAX_PROFILE=0\0"), limit(b"HEAPTIDE_MAX_PROFILE=1G\0")],
            [0; 2]
        );
        assert_eq!(
            (options.output.bytes(), options.snapshot_every_ns),
            (&b"/tmp/a b"[..], 250_000_000)
        );
        assert_eq!(options.handed_on.value(b"HEAPTIDE_MODE"), Some(&b"scopes"[..]));
        assert_eq!(options.handed_on.value(b"PATH"), None);
        assert!(!parsed(b"HEAPTIDE_MODE=off\0").is_wanted());
        let caliper = |environment| {
            let options = parsed(environment);
            (options.trace, options.by_size)
        };
        assert_eq!(caliper(b"CALI_CONFIG=runtime-report,alloc.stats\0"), (true, false));
        assert_eq!(caliper(b"CALI_SERVICES_ENABLE=alloc,sysalloc,trace\0"), (true, true));
        assert_eq!(caliper(b"CALI_SERVICES_ENABLE=alloc,report\0"), (false, true));
        let named = b"CALI_SERVICES_ENABLE=alloc,trace\0HEAPTIDE_MODE=scopes\0";
        assert_eq!(caliper(named), (false, true));
        assert!(!parsed(b"HEAPTIDE_FOLLOW=0\0").is_wanted());
    }

    #[test]
    fn settings_of_the_program_apply_unless_the_environment_has_them() {
        let supplemented = |environment| {
            let mut options = parsed(environment);
            options.supplement(b"HEAPTIDE_MODE=trace HEAPTIDE_BY_CALL=on OTHER_NAME=1 PATH=x");
            (options.trace, options.by_call)
        };
        assert_eq!(supplemented(b"PATH=/bin\0"), (true, true));
        assert_eq!(supplemented(b"HEAPTIDE_MODE=scopes\0"), (false, true));
    }

    #[test]
    fn a_sampled_process_has_a_mean_and_perhaps_a_seed() {
        let sampled = |environment| {
            let options = parsed(environment);
            (options.mode == Mode::Sampled, options.sample_mean_bytes, options.sample_seed)
        };
        assert_eq!(sampled(b"HEAPTIDE_MODE=sampled\0"), (true, 512 << 10, None));
        let seeded = b"HEAPTIDE_MODE=sampled=64K\0HEAPTIDE_SAMPLE_SEED=7\0";
        assert_eq!(sampled(seeded), (true, 64 << 10, Some(7)));
        assert_eq!(sampled(b"HEAPTIDE_MODE=sampled=no\0"), (false, 0, None));
    }

    #[test]
    fn values_that_are_no_numbers_set_nothing() {
        let options = parsed(b"HEAPTIDE_THRESHOLD=1k\0HEAPTIDE_MAX_SIZE=-1\0HEAPTIDE_START\0");
        assert_eq!((options.threshold, options.max_size, options.start_off), (None, 0, false));
    }

    #[test]
    fn the_part_of_ld_preload_that_is_handed_on() {
        let preload = |environment: &[u8]| parsed(environment).handed_on.preload.bytes().to_vec();
        let ours = b"LD_PRELOAD=/x/libheaptide.so:/m/libmine.so:/y/libother.so\0\
                     HEAPTIDE_MONITORS=libmine.so:a=1;libno.so\0";
        assert_eq!(preload(ours), b"/x/libheaptide.so:/m/libmine.so");
        assert_eq!(
            preload(b"LD_PRELOAD=/a/libfirst.so libheaptide.0.1.so\0"),
            b"libheaptide.0.1.so"
        );
        assert_eq!(preload(b"LD_PRELOAD=/a/libfirst.so\0"), b"");
    }

    #[test]
    fn decimal_numbers() {
        let largest = b"18446744073709551615";
        assert_eq!(number(largest), Some(u64::MAX));
        assert_eq!([number(b"18446744073709551616"), number(b"1x")], [None, None]);
        let seconds: [&[u8]; 4] = [b"2", b"1.5", b"0.0000000019", b"."];
        assert_eq!(seconds.map(nanoseconds), [2_000_000_000, 1_500_000_000, 1, 0]);
    }
}
