//! Builds guest programs, runs them bare and recorded, and compares the two.

use crate::expectations;
use crate::recording::{assert_consistent, list, number, stack_tree};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A guest that runs longer is considered hung; the slowest needs a minute on an idle machine.
const RUN_LIMIT: Duration = Duration::from_secs(300);

/// The status of a guest if a condition is false that holds in bare runs (`CHECK` in `guest.h`).
const CHECK_FAILED: i32 = 99;

/// How long a test waits for a state of a guest.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest pause between two looks at that state.
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// The interval at which a running guest is polled.
const POLL: Duration = Duration::from_millis(2);

/// Builds have no frame pointers, and the compiler must not remove a malloc.
pub const BUILD_FLAGS: [&str; 4] = ["-O2", "-g", "-fomit-frame-pointer", "-fno-builtin"];

/// The result of a program.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The exit status, or 128 plus the number of the signal.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Outcome {
    /// Returns the outcome without the known numbers in the output, which can differ between
    /// allocators.
    pub fn without_known(&self) -> (i32, String, &str) {
        let kept = self.stdout.lines().filter(|line| !line.starts_with("known "));
        (self.status, kept.collect::<Vec<_>>().join("\n"), &self.stderr)
    }
}

/// A guest program with its source, whose header contains the expectations.
pub struct Guest {
    source: PathBuf,
    text: String,
}

/// Returns the directory of the guest programs.
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs")
}

/// Returns flags for a static program, linked in one way, without symbols, and without the
/// allocator of a C library.
pub fn unknown_allocator(linked: &str) -> [String; 4] {
    let allocator = programs().join("own_allocator.h").display().to_string();
    [linked.to_owned(), "-s".to_owned(), "-include".to_owned(), allocator]
}

/// Returns the path of the command under test. Cargo puts test binaries into a directory beside it.
pub fn command_path() -> PathBuf {
    outputs().join("heaptide")
}

/// Returns the directory of the build's results.
fn outputs() -> PathBuf {
    let own = std::env::current_exe().expect("the path of the test");
    own.ancestors().nth(2).expect("two directories above a test").to_owned()
}

/// Returns cargo's directory for files of tests.
fn files_of_tests() -> PathBuf {
    outputs().with_file_name("tmp")
}

/// Returns a directory of this test run, created if it is missing.
pub fn directory(name: &str) -> PathBuf {
    let path = files_of_tests().join(name);
    fs::create_dir_all(&path).expect("a directory for the tests");
    path
}

/// Creates an empty directory for a test.
pub fn scratch(name: &str) -> PathBuf {
    let path = files_of_tests().join("scratch").join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a scratch directory");
    path
}

/// Returns the command under test, without the caller's settings.
pub fn heaptide() -> Command {
    clean(Command::new(command_path()))
}

/// Removes the caller's settings of Heaptide, the loader and debuginfod servers from a command.
pub fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars() {
        let is_ours = ["HEAPTIDE_", "LD_", "DEBUGINFOD_"].iter().any(|own| name.starts_with(own));
        if is_ours {
            command.env_remove(name);
        }
    }
    command
}

/// Returns `heaptide run --quiet -o RECORDING OPTIONS --`, to which the program is appended.
pub fn recorded(recording: &Path, options: &[&str]) -> Command {
    let mut command = heaptide();
    command.args(["run", "--quiet", "-o"]).arg(recording).args(options).arg("--");
    command
}

/// A clock of recordings that stands still until the test lets time pass.
pub struct Clock {
    file: PathBuf,
}

impl Clock {
    /// Creates a clock, with a file in a directory.
    pub fn new(place: &Path) -> Clock {
        let clock = Clock { file: place.join("clock") };
        clock.write(Duration::from_secs(1000));
        clock
    }

    /// Makes it the clock of a command and the programs that it runs.
    pub fn set(&self, command: &mut Command) {
        command.env("HEAPTIDE_CLOCK", &self.file);
    }

    /// Lets time pass. Nothing else may do that meanwhile.
    pub fn pass(&self, time: Duration) {
        let now = fs::read(&self.file).expect("the clock");
        let now = u64::from_ne_bytes(now.try_into().expect("eight bytes"));
        self.write(Duration::from_nanos(now) + time);
    }

    /// Writes without replacing the file, which is mapped.
    fn write(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).expect("a time").to_ne_bytes();
        let file = File::options().write(true).create(true).truncate(false).open(&self.file);
        file.and_then(|file| file.write_all_at(&nanoseconds, 0)).expect("the clock");
    }
}

/// Sets a new clock for a command whose program lets time pass itself (`clock.h`).
pub fn set_clock(command: &mut Command, place: &Path) {
    Clock::new(place).set(command);
}

/// Runs a command to its end, or fails the test after [`RUN_LIMIT`]. Output goes to files, so that
/// a child that outlives its parent does not keep a pipe open.
pub fn run(command: &mut Command, scratch: &Path) -> Outcome {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let out = scratch.join(format!("stdout-{number}"));
    let err = scratch.join(format!("stderr-{number}"));
    command.stdin(Stdio::null());
    command.stdout(File::create(&out).expect("a file for stdout"));
    command.stderr(File::create(&err).expect("a file for stderr"));
    let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait for a child") {
            break status;
        }
        if start.elapsed() > RUN_LIMIT {
            let _ = child.kill();
            panic!("still running after {RUN_LIMIT:?}: {command:?}");
        }
        std::thread::sleep(POLL);
    };
    let read = |path| {
        let text = String::from_utf8_lossy(&fs::read(&path).expect("output")).into_owned();
        fs::remove_file(path).expect("output");
        text
    };
    let status = status.code().unwrap_or_else(|| 128 + status.signal().expect("a signal"));
    Outcome { status, stdout: read(out), stderr: read(err) }
}

/// Returns the path that `heaptide library` prints.
pub fn library() -> PathBuf {
    let output = heaptide().arg("library").output().expect("heaptide library");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a path in UTF-8").trim_end().into()
}

/// Variables that an outer build sets for itself, not for the programs that tests build.
pub const OF_OUTER_BUILD: [&str; 7] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_BUILD_TARGET",
];

/// Returns a cargo command that builds programs of this workspace into a separate target directory.
pub fn cargo(target: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    OF_OUTER_BUILD.iter().for_each(|name| _ = cargo.env_remove(name));
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    cargo.args(["build", "--quiet", "--manifest-path"]).arg(manifest);
    cargo.arg("--target-dir").arg(target);
    cargo
}

/// Returns a command that runs a program with the recorder preloaded, without `heaptide run`.
pub fn preloaded(program: impl AsRef<OsStr>, recording: impl AsRef<OsStr>) -> Command {
    let mut command = clean(Command::new(program));
    command.env("LD_PRELOAD", library()).env("HEAPTIDE_OUTPUT", recording);
    command
}

/// Waits until a condition holds, or fails the test. The pauses grow: what is awaited needs the
/// processors, too.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    let mut pause = Duration::from_micros(50);
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// Returns the report of a recording, after checking that it is complete and consistent.
pub fn report(recording: &Path, scratch: &Path) -> Value {
    report_of_kind("heap", recording, scratch)
}

/// Returns the report of a kind of memory.
pub fn report_of_kind(kind: &str, recording: &Path, scratch: &Path) -> Value {
    let mut command = heaptide();
    command.args(["report", "--format", "json", "--kind", kind]);
    let outcome = run(command.arg(recording), scratch);
    assert_eq!(outcome.status, 0, "report of {recording:?} failed: {}", outcome.stderr);
    let report = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|e| panic!("report of {recording:?} is not JSON: {e}"));
    assert_consistent(&report);
    report
}

/// Returns the profiles in a recording.
pub fn profiles(recording: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(recording).map(|dir| dir.flatten().collect::<Vec<_>>());
    let paths = entries.unwrap_or_default().into_iter().map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|e| e == "profile")).collect()
}

/// The id of the unprivileged user on every Linux.
pub const NOBODY: u32 = 65534;

/// Runs a program bare and recorded, with and without verified reuse: output and status must be the
/// same, the known numbers met, and the stack trees identical.
pub fn check(name: &str) {
    check_with(name, name, &[], &[]);
}

/// Like [`check`], with more build flags and environment, as `variant`.
pub fn check_with(name: &str, variant: &str, flags: &[&str], environment: &[(&str, &str)]) {
    let trial = Trial::new(name, variant, flags, environment);
    let Some(first) = trial.recording(&[]) else { return };
    if !trial.guest.says("order: varies") {
        let (outcome, second) = trial.recorded(&[], "off", "anew.");
        let anew = outcome.without_known();
        assert_eq!(trial.bare.without_known(), anew, "{variant} unwound anew differs");
        let report = |recording| report(recording, &trial.scratch);
        assert_same_tree(&report(&first), &report(&second));
    }
}

/// Like [`check`] for several programs, with a variable of the recorder that changes no known
/// number.
pub fn check_all_with(names: &[&str], option: &str, variable: &str) {
    for name in names {
        check_with(name, &format!("{name}-{option}"), &[], &[(variable, "on")]);
    }
}

/// A program and the outcome of its bare run.
pub struct Trial<'a> {
    guest: Guest,
    program: PathBuf,
    variant: &'a str,
    /// The directory in which it runs.
    pub scratch: PathBuf,
    environment: &'a [(&'a str, &'a str)],
    bare: Outcome,
}

impl<'a> Trial<'a> {
    /// Builds a program as `variant` and runs it bare.
    pub fn new(
        name: &str,
        variant: &'a str,
        flags: &[&str],
        environment: &'a [(&'a str, &'a str)],
    ) -> Trial<'a> {
        let guest = Guest::read(name);
        let program = guest.build(variant, flags);
        let scratch = scratch(variant);
        let bare = Outcome { status: 0, stdout: String::new(), stderr: String::new() };
        let mut trial = Trial { guest, program, variant, scratch, environment, bare };
        trial.bare = trial.start(clean(Command::new(&trial.program)), "bare");
        let said = &trial.bare.stdout;
        assert_ne!(trial.bare.status, CHECK_FAILED, "{variant} fails bare: {said}");
        trial
    }

    /// Returns the output of its bare run.
    pub fn stdout(&self) -> &str {
        &self.bare.stdout
    }

    fn start(&self, mut command: Command, place: &str) -> Outcome {
        let place = self.scratch.join(place);
        fs::create_dir_all(&place).expect("a working directory");
        command.args(self.guest.arguments()).envs(self.environment.iter().copied());
        if self.guest.says("clock: set") {
            set_clock(&mut command, &place);
        }
        run(command.current_dir(&place), &self.scratch)
    }

    /// Records the program. The values of `reuse` have the same length, since a guest that copies
    /// its environment then allocates the same.
    fn recorded(&self, options: &[&str], reuse: &str, place: &str) -> (Outcome, PathBuf) {
        let recording = self.scratch.join(format!("{place}.heaptide"));
        let mut command = recorded(&recording, options);
        command.arg(&self.program).env("HEAPTIDE_REUSE", reuse);
        (self.start(command, place), recording)
    }

    /// Records with these options, checks that the program behaved as bare, and returns the losses
    /// of all processes by name.
    pub fn losses(&self, options: &[&str]) -> Vec<(String, i128)> {
        let (outcome, recording) = self.recorded(options, "yes", &options.concat());
        assert_eq!(self.bare, outcome, "bare and recorded {} differ", self.variant);
        let report = report(&recording, &self.scratch);
        let losses = list(&report, "processes").iter().flat_map(|p| list(p, "losses"));
        losses
            .map(|loss| (loss["name"].as_str().expect("a name").to_owned(), number(loss, "count")))
            .collect()
    }

    /// Returns whether the danger can lose events.
    pub fn may_lose(&self) -> bool {
        self.guest.says("losses: allowed")
    }

    /// Returns whether there can be more events than a trace has room for.
    pub fn may_outrun(&self) -> bool {
        self.guest.says("trace: may end")
    }

    /// Records with these options, and checks that the program behaved as bare and that its known
    /// numbers are met. None if the recorder cannot record it.
    pub fn recording(&self, options: &[&str]) -> Option<PathBuf> {
        let (bare, variant) = (&self.bare, self.variant);
        let (outcome, recording) = self.recorded(options, "yes", "reuse");
        if self.guest.says("not recorded") {
            assert_untouched(bare, &outcome, &recording);
            return None;
        }
        let (before, now) = (bare.without_known(), outcome.without_known());
        assert_eq!(before, now, "bare and recorded {variant} differ");
        let report = report(&recording, &self.scratch);
        assert_end(&report, bare.status);
        let mut known = expectations::parse(&self.guest.text, "// expect ");
        known.extend(expectations::parse(&outcome.stdout, "known "));
        assert!(!known.is_empty(), "{variant} knows no number");
        if !self.may_lose() {
            known.extend(expectations::parse("recording lost_events=0", ""));
        }
        expectations::assert_met(&report, &known);
        Some(recording)
    }
}

/// Checks that a program that cannot be recorded ran as bare, and that one line reports it.
fn assert_untouched(bare: &Outcome, outcome: &Outcome, recording: &Path) {
    assert!(profiles(recording).is_empty(), "{recording:?} has a profile");
    assert_eq!((bare.status, &bare.stdout), (outcome.status, &outcome.stdout));
    assert!(outcome.stderr.contains("not recorded"), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
}

/// Checks that the last image of the first process ended like the bare program.
fn assert_end(report: &Value, status: i32) {
    let processes = list(report, "processes");
    let root = processes.first().expect("a process in the recording");
    let images = processes.iter().filter(|p| p["pid"] == root["pid"]);
    let last = images.max_by_key(|p| number(p, "image")).expect("an image");
    let end = &last["end"];
    let found = match end["kind"].as_str() {
        Some("exited") => number(end, "code"),
        Some("signaled") => 128 + number(end, "code"),
        _ => panic!("the end is not known: {end}"),
    };
    assert_eq!(found, status.into(), "status in the report");
}

/// Checks that verified reuse does not change the stacks.
pub fn assert_same_tree(with_reuse: &Value, without: &Value) {
    let (with_reuse, without) = (stack_tree(with_reuse), stack_tree(without));
    for (path, row) in &with_reuse {
        assert_eq!(Some(row), without.get(path), "only with verified reuse: {path}");
    }
    for (path, row) in &without {
        assert_eq!(with_reuse.get(path), Some(row), "only without verified reuse: {path}");
    }
}

impl Guest {
    /// Reads a program of `tests/programs`.
    pub fn read(name: &str) -> Guest {
        let source = programs().join(name);
        let text = fs::read_to_string(&source).unwrap_or_else(|e| panic!("{source:?}: {e}"));
        Guest { source, text }
    }

    /// Returns the source.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Builds the libraries that the header lists, and returns their directory.
    pub fn build_plugins(&self) -> PathBuf {
        let place = directory("built");
        for line in self.values("plugin: ") {
            let mut words = line.split_whitespace();
            let target = place.join(words.next().expect("a file"));
            let source = programs().join(words.next().expect("a source"));
            let mut flags: Vec<&str> = words.collect();
            flags.extend(["-shared", "-fPIC"]);
            compile(&source, &target, compiler_of(&source), &flags);
        }
        place
    }

    /// Builds the program as `variant`.
    pub fn build(&self, variant: &str, flags: &[&str]) -> PathBuf {
        let place = self.build_plugins();
        let program = place.join(variant.replace('.', "-"));
        let place = place.to_str().expect("a path in UTF-8");
        let own: Vec<String> = self
            .values("build: ")
            .flat_map(|line| line.split_whitespace())
            .map(|flag| flag.replace('%', place))
            .collect();
        let all: Vec<&str> = own.iter().map(String::as_str).chain(flags.iter().copied()).collect();
        let compiler = self.values("compiler: ").next();
        compile(&self.source, &program, compiler.unwrap_or(compiler_of(&self.source)), &all);
        program
    }

    /// Returns whether the header has this line.
    pub fn says(&self, what: &str) -> bool {
        self.values(what).next().is_some()
    }

    /// Returns the program's arguments; plugins are replaced by their paths.
    pub fn arguments(&self) -> Vec<String> {
        let words = self.values("args: ").flat_map(|line| line.split_whitespace());
        let place = directory("built");
        let place = place.to_str().expect("a path in UTF-8");
        words.map(|word| word.replace('%', place)).collect()
    }

    /// Returns the rest of each header line that begins with `key`.
    pub fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.text.lines().filter_map(move |line| line.strip_prefix("// ")?.strip_prefix(key))
    }
}

fn compiler_of(source: &Path) -> &'static str {
    match source.extension().and_then(|e| e.to_str()) {
        Some("c") => "cc",
        Some("cpp") => "c++",
        Some("rs") => "rustc",
        Some("f90") => "gfortran",
        _ => panic!("no compiler for {source:?}"),
    }
}

/// Compiles a program, unless it was compiled from the same sources by the same compiler with the
/// same flags. Tests that need the same program at the same time wait for the one that compiles it:
/// a program that is replaced while it runs has no file.
fn compile(source: &Path, target: &Path, compiler: &str, flags: &[&str]) {
    let wanted = key(source, compiler, flags);
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    let mut of_target = options.open(beside(target, "key")).expect("the key of a program");
    of_target.lock().expect("a lock of a program");
    let mut found = String::new();
    of_target.read_to_string(&mut found).expect("the key of a program");
    if found == wanted && target.exists() {
        return;
    }
    let mut command = Command::new(compiler);
    match compiler {
        "rustc" => command.args(["--edition=2024", "-Copt-level=2", "-g"]),
        // It writes module files into the directory of the program.
        "gfortran" => command.args(["-O1", "-g", "-J"]).arg(target.parent().expect("a directory")),
        _ => command.args(BUILD_FLAGS),
    };
    let fresh = beside(target, "new");
    command.arg(source).arg("-o").arg(&fresh).args(flags);
    let output = command.output().unwrap_or_else(|e| panic!("cannot start {compiler}: {e}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&fresh, target).expect("rename a program");
    of_target.set_len(0).expect("the key of a program");
    of_target.write_all_at(wanted.as_bytes(), 0).expect("the key of a program");
}

/// Returns the path of a file beside another, with this at the end of its name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let name = path.file_name().and_then(OsStr::to_str).expect("a name in UTF-8");
    path.with_file_name(format!("{name}.{end}"))
}

/// Returns a number for all that a program is compiled from.
fn key(source: &Path, compiler: &str, flags: &[&str]) -> String {
    let include = programs().join("../../include");
    let headers = ["heaptide.h", "heaptide.hpp", "heaptide_test.h"].map(|name| include.join(name));
    let of_guests = ["guest.h", "api_guest.h"].map(|name| programs().join(name));
    let mut hasher = DefaultHasher::new();
    fs::canonicalize(source).expect("a source").hash(&mut hasher); // debug information has it
    for path in [source].into_iter().chain(headers.iter().chain(&of_guests).map(PathBuf::as_path)) {
        fs::read(path).unwrap_or_else(|e| panic!("{path:?}: {e}")).hash(&mut hasher);
    }
    let places = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&places).map(|place| place.join(compiler));
    let found = found.filter_map(|path| fs::metadata(path).ok()).next();
    let changed = found.map(|found| (found.len(), found.modified().ok()));
    (compiler, changed, BUILD_FLAGS, flags).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// `looping.c` with the library preloaded. It allocates and frees until it is dropped.
pub struct Looping(Child);

impl Looping {
    /// Starts the program, and waits until it has allocated. It shares a file in `place` with the
    /// test.
    pub fn start(recording: &Path, place: &Path) -> Looping {
        let program = Guest::read("looping.c").build("looping.c", &[]);
        let page = place.join("page");
        fs::write(&page, [0; 4096]).expect("the shared page");
        let child = preloaded(program, recording).arg(&page).spawn().expect("the looping program");
        until("allocations", || fs::read(&page).expect("the page")[2] > 0);
        Looping(child)
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Looping {
    fn drop(&mut self) {
        let _ = self.0.kill(); // may have ended
        let _ = self.0.wait();
    }
}
