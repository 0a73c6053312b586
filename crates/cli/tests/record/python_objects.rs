//! Objects of Python are blocks, whatever starts the interpreter: the numbers are those in the
//! headers of `python_objects.py` and `python_again.c`.

use crate::attaching::Target;
use crate::harness::{Guest, Outcome, directory, heaptide, programs, recorded, run, scratch};
use crate::programs::python;
use crate::python_frames::{library_of, pythons};
use crate::recording::{assert_consistent, list, number};
use heaptide_fixtures::skips::skip;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The interpreters of a test.
#[derive(Clone, Copy)]
enum Versions {
    OldestAndNewest,
    Every,
}

impl Versions {
    /// Returns these versions of a list that is sorted by version.
    fn of<T>(self, mut all: Vec<T>) -> Vec<T> {
        if matches!(self, Versions::OldestAndNewest) && all.len() > 2 {
            all.drain(1..all.len() - 1);
        }
        all
    }

    fn pythons(self) -> Vec<PathBuf> {
        self.of(pythons())
    }

    /// Returns the interpreters that are libraries, and their installation directories.
    fn libraries(self) -> Vec<(PathBuf, String)> {
        self.of(pythons().iter().filter_map(|python| library_of(python)).collect())
    }

    /// Returns the name of a directory that the tests of other versions do not use.
    fn place(self, name: &str) -> String {
        let versions = match self {
            Versions::OldestAndNewest => "two",
            Versions::Every => "every",
        };
        format!("{name}-{versions}")
    }

    fn scratch(self, name: &str) -> PathBuf {
        scratch(&self.place(name))
    }
}

/// Declares tests that run with two versions of Python in the fast tier, and with all versions in
/// the second tier.
macro_rules! versions {
    ($($name:ident)*) => {
        mod oldest_and_newest {
            $(#[test]
            fn $name() {
                super::$name(super::Versions::OldestAndNewest);
            })*
        }
        mod every_version {
            $(#[test]
            fn $name() {
                super::$name(super::Versions::Every);
            })*
        }
    };
}

versions! {
    a_large_list_that_grows_is_in_the_peak_once
    a_running_interpreter_has_its_objects_between_attach_and_detach
    an_interpreter_that_is_initialised_again_has_its_objects
    debug_hooks_that_are_installed_again
    leaks_of_an_interpreter_that_ends_several_times
    leaks_of_python_are_what_it_held_before_it_ended
    objects_and_environment
    subinterpreters
    the_numbers_are_those_of_pythons_malloc
    tracemalloc_threads_and_forks
    what_forked_children_held_and_a_copy_that_cannot_be_written
}

/// Sizes of the blocks of `build` and `large`, and their numbers.
const BUILT: (i128, i128) = (120, 20_000);
const LARGE: (i128, i128) = (5033, 100);

/// Runs a command with the recorder and `--by-size`, and returns what it printed and the report
/// with Python frames.
fn record(place: &Path, options: &[&str], command: &mut Command) -> (Outcome, Value) {
    let recording = place.join("x.heaptide");
    let _ = fs::remove_dir_all(&recording);
    let mut outer = recorded(&recording, &[&["--by-size"], options].concat());
    outer.arg(command.get_program()).args(command.get_args());
    outer.env_remove("PYTHONMALLOC");
    for (name, value) in command.get_envs() {
        outer.env(name, value.expect("a value"));
    }
    let outcome = run(&mut outer, place);
    let mut report = heaptide();
    report.args(["report", "--python", "only", "--format", "json"]).arg(&recording);
    let output = report.output().expect("heaptide runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_consistent(&report);
    (outcome, report)
}

/// Returns a command that runs `python_objects.py`.
fn objects(python: impl AsRef<Path>, options: &[&str], what: &str) -> Command {
    let mut command = Command::new(python.as_ref());
    command.args(options).arg(programs().join("python_objects.py")).arg(what);
    command
}

/// Returns how many blocks of a size a function of Python allocated, and how many of these are
/// freed, in all processes.
fn blocks(report: &Value, size: i128, function: &str) -> (i128, i128) {
    let mut counts = (0, 0);
    for process in list(report, "processes") {
        let frames = list(process, "frames");
        for site in list(process, "sites") {
            let mut names = list(site, "stack").iter().map(|index| {
                frames[index.as_u64().expect("an index") as usize]["function"].as_str()
            });
            let is_of = |name: &str| name.split('.').next() == Some(function);
            if site["size"].as_i64().map(i128::from) == Some(size)
                && names.any(|name| name.is_some_and(is_of))
            {
                counts.0 += number(site, "allocations");
                counts.1 += number(site, "frees");
            }
        }
    }
    counts
}

/// Asserts that the program allocated and freed its blocks this many times.
fn assert_times(report: &Value, times: i128, shown: &str) {
    for ((size, count), function) in [(BUILT, "build"), (LARGE, "large")] {
        let expected = (count * times, count * times);
        assert_eq!(blocks(report, size, function), expected, "{shown}: {function}");
    }
    for process in list(report, "processes") {
        assert_eq!(list(process, "losses").len(), 0, "{shown}");
    }
}

fn assert_all_frees_are_known(report: &Value, shown: &str) {
    for process in list(report, "processes") {
        assert_eq!(number(process, "unmatched_frees"), 0, "{shown}");
    }
}

fn objects_and_environment(versions: Versions) {
    let pythons = versions.pythons();
    if pythons.is_empty() {
        return skip("python3");
    }
    let place = versions.scratch("python-objects");
    for python in &pythons {
        let shown = python.display().to_string();
        let (outcome, report) = record(&place, &[], &mut objects(python, &[], "plain"));
        assert_eq!((outcome.status, &*outcome.stdout), (0, "None\n"), "{shown}");
        assert_times(&report, 1, &shown);
        assert_all_frees_are_known(&report, &shown);
    }
}

fn executable(file: &Path, text: &str) {
    fs::write(file, text).expect("a script");
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("its mode");
}

#[test]
fn every_launcher_leads_to_objects() {
    let Some(python) = python() else { return skip("python3") };
    let (place, files) = (scratch("python-launched"), directory("python-launched"));
    let script = programs().join("python_objects.py").display().to_string();
    let (makefile, shim) = (files.join("Makefile"), files.join("shim"));
    fs::write(&makefile, format!("all:\n\t@{python} {script} plain\n")).expect("a makefile");
    executable(&shim, &format!("#!/bin/sh\nexec {python} \"$@\"\n"));
    let (makefile, shim) = (makefile.display().to_string(), shim.display().to_string());
    let line = format!("{python} {script} plain; true");
    let launchers: [&[&str]; 4] = [
        &["sh", "-c", &line],
        &["make", "-f", &makefile],
        &["env", "-i", "PATH=/usr/bin:/bin", &python, &script, "plain"],
        &[&shim, &script, "plain"],
    ];
    for words in launchers {
        let mut command = Command::new(words[0]);
        let (outcome, report) = record(&place, &[], command.args(&words[1..]));
        assert_eq!((outcome.status, &*outcome.stdout), (0, "None\n"), "{words:?}");
        assert_times(&report, 1, words[0]);
    }
}

#[test]
fn options_and_variables_of_python_change_no_number() {
    let Some(python) = python() else { return skip("python3") };
    let place = scratch("python-options");
    let cases: [(&[&str], Option<&str>); 8] = [
        (&["-I"], None),
        (&["-E"], None),
        (&["-I"], Some("malloc")),
        (&["-X", "tracemalloc"], None),
        (&["-X", "dev"], None),
        (&[], Some("debug")),
        (&[], Some("pymalloc")),
        (&[], Some("malloc")),
    ];
    for (options, variable) in cases {
        let shown = format!("{options:?} {variable:?}");
        let mut command = objects(&python, options, "plain");
        if let Some(value) = variable {
            command.env("PYTHONMALLOC", value);
        }
        let (outcome, report) = record(&place, &[], &mut command);
        let printed = format!("{}\n", variable.unwrap_or("None"));
        assert_eq!((outcome.status, &*outcome.stdout), (0, &*printed), "{shown}");
        assert_times(&report, 1, &shown);
        // A table of tracemalloc that is replaced while a block is freed is unknown.
        if !options.contains(&"tracemalloc") {
            assert_all_frees_are_known(&report, &shown);
        }
    }
}

fn tracemalloc_threads_and_forks(versions: Versions) {
    let place = versions.scratch("python-objects-kinds");
    for python in &versions.pythons() {
        for (what, times) in [("tracemalloc", 3), ("threads", 12), ("fork", 2)] {
            let shown = format!("{} {what}", python.display());
            let (outcome, report) = record(&place, &[], &mut objects(python, &[], what));
            assert_eq!(outcome.status, 0, "{shown}: {}", outcome.stderr);
            assert_times(&report, times, &shown);
        }
    }
}

/// Before 3.12, code of a subinterpreter is attributed to the function that called it.
fn subinterpreters(versions: Versions) {
    let place = versions.scratch("python-objects-nested");
    for python in &versions.pythons() {
        let shown = python.display().to_string();
        let (outcome, report) = record(&place, &[], &mut objects(python, &[], "nested"));
        assert_eq!(outcome.status, 0, "{shown}: {}", outcome.stderr);
        let process = &list(&report, "processes")[0];
        let of_size = list(process, "sites").iter();
        let of_size = of_size.filter(|site| site["size"].as_i64() == Some(LARGE.0 as i64));
        let count: i128 = of_size.map(|site| number(site, "allocations")).sum();
        assert!((2 * LARGE.1..2 * LARGE.1 + 20).contains(&count), "{shown}: {count}");
        assert_all_frees_are_known(&report, &shown);
    }
}

/// A block is counted as in a run in which Python takes all objects from malloc, whose hooks then
/// record them. The script uses no address (`id`), whose objects differ in size.
fn the_numbers_are_those_of_pythons_malloc(versions: Versions) {
    const SCRIPT: &str = "import json\n\
        text = '{\"a\": [1, 2.5, null], \"b\": \"c\"}'\n\
        kept = [(json.loads(text), str(i), [i] * (i % 300)) for i in range(2000)]\n\
        del kept\n";
    let place = versions.scratch("python-equal");
    for python in &versions.pythons() {
        let counts = |variable: &str| {
            let mut command = Command::new(python);
            // Names of the same length, since the environment is in objects, too.
            command.args(["-c", SCRIPT]).env(variable, "malloc").env("PYTHONHASHSEED", "0");
            let (_, report) = record(&place, &[], &mut command);
            let totals = &list(&report, "processes")[0]["totals"];
            ["allocations", "frees", "reallocations", "requested_bytes"]
                .map(|name| number(totals, name))
        };
        // Texts of addresses and process ids have different lengths in two runs.
        let is_near = |one: &[i128; 4], other: &[i128; 4]| (one[3] - other[3]).abs() <= 64;
        // Python reads directories and files that other programs change meanwhile: then two runs of
        // the same command differ, too, and say nothing.
        let runs = ["PYTHONMALLOX", "PYTHONMALLOC", "PYTHONMALLOX"];
        let [own, forced, _] = (0..5)
            .map(|_| runs.map(counts))
            .find(|[own, _, again]| own[..3] == again[..3] && is_near(own, again))
            .expect("two runs of the same command that count the same");
        assert!(own[0] > 30_000, "{}: {own:?}", python.display());
        assert_eq!(own[..3], forced[..3], "{}", python.display());
        assert!(is_near(&own, &forced), "{own:?} {forced:?} {}", python.display());
    }
}

/// glibc moves the pages of the list: the old and the new one never exist at once.
fn a_large_list_that_grows_is_in_the_peak_once(versions: Versions) {
    const SCRIPT: &str = "kept = [None] * 10_000_000\nkept.append(1)\n";
    let place = versions.scratch("python-grows");
    for python in &versions.pythons() {
        let (_, report) = record(&place, &[], Command::new(python).args(["-c", SCRIPT]));
        let peak = number(&list(&report, "processes")[0]["totals"], "peak_bytes");
        // Eight bytes for each element and for an eighth more; the rest is Python's own.
        assert!((90_000_000..100_000_000).contains(&peak), "{}: {peak}", python.display());
    }
}

#[test]
fn arenas_are_mappings_and_objects_none_if_the_user_wants_that() {
    let Some(python) = python() else { return skip("python3") };
    let place = scratch("python-arenas");
    let options = ["--python-memory", "arenas"];
    let (outcome, report) = record(&place, &options, &mut objects(&python, &[], "plain"));
    assert_eq!((outcome.status, &*outcome.stdout), (0, "None\n"));
    assert_eq!(blocks(&report, BUILT.0, "build"), (0, 0));
    assert_eq!(blocks(&report, LARGE.0, "large"), (LARGE.1, LARGE.1));
    let says = |options: &[&str]| {
        let recording = place.join("y.heaptide");
        let mut command = heaptide();
        command.args(["run", "--force", "-o"]).arg(&recording).args(options);
        let output = command.args(["--", &python, "-c", "0"]).output().expect("heaptide runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        text.lines().filter(|line| line.contains(" python ")).map(str::to_owned).collect::<String>()
    };
    assert!(says(&[]).contains("objects are blocks"), "{}", says(&[]));
    assert!(says(&options).contains("objects are in arenas"), "{}", says(&options));
}

/// In development mode the wrappers are above the debug hooks, and installing these again puts them
/// above the wrappers, too.
fn debug_hooks_that_are_installed_again(versions: Versions) {
    const SCRIPT: &str = "import ctypes\n\
        ctypes.pythonapi.PyMem_SetupDebugHooks()\n\
        print(len([{'a': i} for i in range(10000)]))\n";
    let place = versions.scratch("python-hooks-again");
    for python in &versions.pythons() {
        let mut command = Command::new(python);
        let (outcome, _) = record(&place, &[], command.args(["-X", "dev", "-c", SCRIPT]));
        assert_eq!((outcome.status, &*outcome.stdout), (0, "10000\n"), "{}", python.display());
    }
}

fn an_interpreter_that_is_initialised_again_has_its_objects(versions: Versions) {
    let libraries = versions.libraries();
    if libraries.is_empty() {
        return skip("libpython");
    }
    let program = Guest::read("python_again.c").build("python_again", &["-ldl"]);
    let place = versions.scratch("python-again");
    for (library, home) in libraries {
        let shown = library.display().to_string();
        let mut command = Command::new(&program);
        command.arg(&library).arg("3").env("PYTHONHOME", &home);
        let (outcome, report) = record(&place, &[], &mut command);
        assert_eq!(outcome.status, 0, "{shown}: {}", outcome.stderr);
        let (allocated, freed) = blocks(&report, BUILT.0, "build");
        assert_eq!((allocated, freed), (3 * BUILT.1, 3 * BUILT.1), "{shown}");
        assert_all_frees_are_known(&report, &shown);
    }
}

/// Returns the live blocks of a size in the leaks of a recording, and their functions and lines.
fn leaked(recording: &Path, size: i128, options: &[&str]) -> (i128, i128, Vec<(String, i128)>) {
    let mut command = heaptide();
    command.args(["leaks", "--python", "only", "--format", "json"]).args(options).arg(recording);
    let output = command.output().expect("heaptide runs");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut all = (0, 0, Vec::new());
    for process in list(&found, "processes") {
        let frames = list(process, "frames");
        for leak in list(process, "leaks") {
            let (blocks, bytes) = (number(leak, "live_blocks"), number(leak, "live_bytes"));
            if blocks > 0 && bytes == blocks * size {
                let last = list(leak, "stack").last().and_then(Value::as_u64).expect("a frame");
                let frame = &frames[last as usize];
                let name = frame["function"].as_str().expect("a name").to_owned();
                all.0 += blocks;
                all.1 += bytes;
                all.2.push((name, number(frame, "line")));
            }
        }
    }
    all
}

fn leaks_of_python_are_what_it_held_before_it_ended(versions: Versions) {
    let script = programs().join("python_held.py");
    let place = versions.scratch("python-held");
    let recording = place.join("x.heaptide");
    for python in &versions.pythons() {
        let shown = python.display().to_string();
        for options in [&[][..], &["-X", "dev"]] {
            let mut command = Command::new(python);
            let (outcome, report) = record(&place, &[], command.args(options).arg(&script));
            assert_eq!(outcome.status, 0, "{shown}: {}", outcome.stderr);
            assert_eq!(blocks(&report, 1033, "hold"), (10_000, 10_000), "{shown}");
            let (count, bytes, functions) = leaked(&recording, 1033, &[]);
            assert_eq!((count, bytes), (10_000, 10_330_000), "{shown} {options:?}");
            assert!(functions.iter().all(|(name, line)| name == "hold" && *line == 13), "{shown}");
            assert_eq!(leaked(&recording, 1034, &[]).0, 0, "{shown}: freed before");
            assert_eq!(leaked(&recording, 1033, &["--at-exit"]).0, 0, "{shown}: freed by Python");
        }
        let mut command = heaptide();
        let output = command.arg("leaks").arg(&recording).output().expect("heaptide runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("live when Python began to end, after "), "{shown}: {text}");
        let mut command = Command::new(python);
        record(&place, &[], command.arg(&script).arg("interrupted"));
        assert_eq!(leaked(&recording, 1033, &[]).0, 10_000, "{shown}: by SIGINT");
        let mut command = heaptide();
        let output = command.arg("leaks").arg(&recording).output().expect("heaptide runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let killed = text.contains("killed by signal 2") && !text.contains("Killed: ");
        assert!(killed && text.contains("live when Python began to end, after "), "{text}");
    }
}

fn what_forked_children_held_and_a_copy_that_cannot_be_written(versions: Versions) {
    const NOT_KEPT: &str = "Objects that Python freed when it ended are not listed";
    let place = versions.scratch("python-held-forked");
    let recording = place.join("x.heaptide");
    for python in &versions.pythons() {
        let shown = python.display().to_string();
        let mut command = Command::new(python);
        let script = programs().join("python_held_forked.py");
        let (outcome, _) = record(&place, &[], command.arg(script));
        assert_eq!((outcome.status, &*outcome.stderr), (8, ""), "{shown}");
        let all = ["--process", "all"];
        assert_eq!(leaked(&recording, 1035, &all).0, 5000, "{shown}");
        assert_eq!(leaked(&recording, 1036, &all).0, 0, "{shown}");
        let mut command = heaptide();
        command.args(["leaks", "--process", outcome.stdout.trim()]).arg(&recording);
        let output = command.output().expect("heaptide runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(NOT_KEPT), "{shown}: {text}");
    }
}

/// The second interpreter of a process is copied when it ends, too, in place of the first.
fn leaks_of_an_interpreter_that_ends_several_times(versions: Versions) {
    let libraries = versions.libraries();
    if libraries.is_empty() {
        return skip("libpython");
    }
    let program = Guest::read("python_again.c").build("python_again", &["-ldl"]);
    let place = versions.scratch("python-again-held");
    for (library, home) in libraries {
        let shown = library.display().to_string();
        let mut command = Command::new(&program);
        command.arg(&library).arg("2").env("PYTHONHOME", &home);
        let (outcome, _) = record(&place, &[], &mut command);
        assert_eq!(outcome.status, 0, "{shown}: {}", outcome.stderr);
        let mut command = heaptide();
        command.arg("leaks").arg(place.join("x.heaptide"));
        let text = String::from_utf8(command.output().expect("heaptide runs").stdout);
        let text = text.expect("text");
        assert!(text.contains("live when Python began to end, after "), "{shown}: {text}");
    }
}

/// Returns how many blocks `build` allocated in a recording of `python_attached.py`, how many of
/// these were freed, and the same of `large`.
fn attached(target: &Target, name: &str) -> [(i128, i128); 2] {
    let mut command = heaptide();
    command.args(["report", "--python", "only", "--format", "json"]).arg(target.recording(name));
    let output = command.output().expect("heaptide runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    [blocks(&report, BUILT.0, "build"), blocks(&report, LARGE.0, "large")]
}

fn a_running_interpreter_has_its_objects_between_attach_and_detach(versions: Versions) {
    for python in &versions.pythons() {
        let shown = python.display().to_string();
        let mut command = Command::new(python);
        command.arg(programs().join("python_attached.py"));
        let mut target = Target::start(&versions.place("python-attached"), command);
        target.steps("bl");
        for round in ["a.heaptide", "b.heaptide", "c.heaptide"] {
            target.attach(round, &["--by-size"]);
            target.steps("blf");
            target.detach();
            let of_round = [BUILT, LARGE].map(|(_, count)| (count, count));
            assert_eq!(attached(&target, round), of_round, "{shown}: {round}");
            target.steps("blfbl");
        }
        drop(target.child.stdin.take());
        assert_eq!(target.child.wait().expect("its end").code(), Some(0), "{shown}");
    }
}

/// Allocators that are not Python's own cannot be wrapped while threads use them.
#[test]
fn what_an_attach_cannot_wrap_is_stated() {
    let Some(python) = python() else { return skip("python3") };
    let mut command = Command::new(&python);
    command.args(["-X", "tracemalloc"]).arg(programs().join("python_attached.py"));
    let mut target = Target::start("python-attached-traced", command);
    target.steps("b");
    let outcome = target.command(&["attach", "--for", "10ms", "-o", "a.heaptide"]);
    assert!(outcome.stderr.contains("objects in arenas are not recorded"), "{}", outcome.stderr);
    target.steps("bf");
    drop(target.child.stdin.take());
    assert_eq!(target.child.wait().expect("its end").code(), Some(0));
}
