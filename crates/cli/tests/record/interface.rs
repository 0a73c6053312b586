//! The interface for programs in C and C++: known results of each function, with the recorder and
//! without; every way to link a program; the monitors that come with the headers.

use crate::expectations::{self, assert_met, evaluate};
use crate::harness::{
    Guest, Outcome, check, check_with, clean, heaptide, library, preloaded, profiles, programs,
    recorded, report, run, scratch,
};
use crate::recording::{frames, function, module, sites};
use heaptide_fixtures::skips::skip;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names a test after what its program tests; the program contains the numbers.
macro_rules! abilities {
    ($($name:ident $file:literal)*) => {
        $(
            #[test]
            fn $name() {
                check($file);
            }
        )*
        /// The same with every event in a trace, which adds up to the same counters.
        mod traced {
            $(
                #[test]
                fn $name() {
                    crate::trace::check($file);
                }
            )*
        }
        const CHECKED: &[&str] = &[$($file),*];
    };
}

abilities! {
    scope_paths "api_scopes.c"
    hundred_thousand_names "api_names.c"
    scopes_of_threads "api_threads.c"
    no_room "api_full.c"
    names_in_a_forked_child "api_fork.c"
    labels "api_labels.c"
    dimensions_of_labels "api_shapes.c"
    pools "api_pools.c"
    pools_of_threads_that_fork "api_pool_forks.c"
    unaligned_memory "api_unaligned.c"
    labels_and_pools_at_the_peak "api_peak.c"
    labels_of_the_block_that_made_the_peak "api_peak_last.c"
    labels_at_the_peak_of_a_thread "api_peak_thread.c"
    windows "api_windows.c"
    measurements "api_measure.cpp"
    off_pause_threshold "api_control.c"
    own_figures "api_figures.c"
    guards_of_cpp "api_guards.cpp"
    monitor_calls "api_monitor.cpp"
    monitor_and_every_form "api_monitor_forms.cpp"
    monitors_come_and_go "api_monitor_race.c"
    monitors_by_address "api_monitor_moves.c"
    frees_in_callbacks "api_nested_free.c"
    monitor_unloaded "api_monitor_dlclose.c"
    monitors_at_exit "api_monitor_exit.cpp"
    regions_of_openmp "api_openmp.c"
    regions_in_a_forked_child "api_openmp_fork.c"
    regions_of_a_plugin "api_openmp_late.c"
    regions_of_threads_and_exceptions "api_openmp_leaves.cpp"
}

/// Programs with this prefix that the tests below run.
const ELSEWHERE: [&str; 12] = [
    "api_absent.c",
    "api_guest.h",
    "api_moments.c",
    "api_limits.c",
    "api_monitor_late.c",
    "api_monitored.c",
    "api_openmp_llvm.c",
    "api_openmp_plugin.c",
    "api_output.c",
    "api_output.cpp",
    "api_shapes.cpp",
    "api_start.c",
];

/// Returns whether Clang finds the runtime library of its OpenMP.
fn has_llvm_openmp() -> bool {
    let mut command = Command::new("clang");
    command.args(["-fopenmp", "-x", "c", "-", "-o"]).arg(scratch("llvm_openmp").join("a.out"));
    let mut clang = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("clang");
    clang.stdin.take().expect("its input").write_all(b"int main(){}").expect("it reads");
    clang.wait().expect("its end").success()
}

#[test]
fn regions_of_llvm_openmp() {
    if !has_llvm_openmp() {
        return skip("libomp");
    }
    check("api_openmp_llvm.c");
    crate::trace::check("api_openmp_llvm.c");
    assert_no_own_frames("api_openmp_llvm.c");
}

#[test]
fn stacks_of_openmp_regions_are_those_of_the_program() {
    assert_no_own_frames("api_openmp.c");
}

/// Checks that the recorder's frames between a region and the runtime library are in no stack.
fn assert_no_own_frames(name: &str) {
    let place = scratch(&format!("{name}_stacks"));
    let recording = place.join("a.heaptide");
    let program = Guest::read(name).build(name, &[]);
    let outcome = run(recorded(&recording, &[]).arg(program), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let report = report(&recording, &place);
    let mut seen = 0;
    for (process, site) in sites(&report) {
        let frames = frames(process, site);
        let own = frames.iter().find(|frame| module(frame).starts_with("libheaptide"));
        assert_eq!(own, None);
        seen += usize::from(frames.iter().any(|frame| function(frame) == "part"));
    }
    assert!(seen > 0);
}

#[test]
fn every_program_of_the_interface_has_a_test() {
    let files = fs::read_dir(programs()).expect("the programs").flatten();
    let names = files.map(|entry| entry.file_name().into_string().expect("a name in UTF-8"));
    for file in names.filter(|name| name.starts_with("api_")) {
        let tested = CHECKED.contains(&&*file) || ELSEWHERE.contains(&&*file);
        assert!(tested, "no test runs {file}");
    }
}

/// A report since a reset does not add up like others: blocks that were live at the reset are freed
/// in it.
#[test]
fn marks_snapshots_reset() {
    let place = scratch("marks-snapshots-reset");
    let program = Guest::read("api_moments.c").build("api_moments.c", &[]);
    let bare = run(&mut clean(Command::new(&program)), &place);
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(&program), &place);
    assert_eq!((bare.status, &*bare.stdout), (0, "moments\n"));
    assert_eq!(bare, outcome);
    let read = |options: &[&str]| -> Value {
        let mut command = heaptide();
        command.args(["report", "--format", "json"]).args(options).arg(&recording);
        let outcome = run(&mut command, &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        serde_json::from_str(&outcome.stdout).expect("JSON")
    };
    let text = fs::read_to_string(programs().join("api_moments.c")).expect("the program");
    assert_met(&read(&[]), &expectations::parse(&text, "// since "));
    assert_met(&read(&["--from-start"]), &expectations::parse(&text, "// expect "));
    assert_met(&read(&["--snapshot", "1"]), &expectations::parse(&text, "// first "));
}

/// Runs programs that check themselves, in another mode than the default.
fn in_mode(mode: &str, names: &[&str]) {
    let place = scratch(&format!("interface-in-mode-{mode}"));
    for name in names {
        let program = Guest::read(name).build(name, &[]);
        let recording = place.join(format!("{name}.heaptide"));
        let outcome = run(recorded(&recording, &["--mode", mode]).arg(program), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{name}: {}", outcome.stdout);
    }
}

#[test]
fn without_stacks() {
    in_mode("scopes", &["api_scopes.c", "api_threads.c", "api_labels.c", "api_pools.c"]);
    in_mode("scopes", &["api_figures.c", "api_guards.cpp"]);
    in_mode("scopes", &WITHOUT_SITES);
}

/// Programs that work with counters alone.
const WITHOUT_SITES: [&str; 6] = [
    "api_windows.c",
    "api_measure.cpp",
    "api_control.c",
    "api_monitor.cpp",
    "api_monitor_forms.cpp",
    "api_monitor_exit.cpp",
];

#[test]
fn with_counters_only() {
    in_mode("counters", &WITHOUT_SITES);
}

/// Monitors receive the same calls with every allocator.
fn monitored_under(allocator: &str) {
    let Some(path) = crate::allocators::library(allocator) else { return };
    for program in ["api_monitor.cpp", "api_monitor_forms.cpp"] {
        check_with(program, &format!("{program}-{allocator}"), &[], &[("LD_PRELOAD", &path)]);
        let linked = format!("{program}-linked-{allocator}");
        check_with(program, &linked, &["-Wl,--no-as-needed", &path], &[]);
    }
}

#[test]
fn monitors_under_tcmalloc() {
    monitored_under("libtcmalloc_minimal");
}

#[test]
fn monitors_under_jemalloc() {
    monitored_under("libjemalloc");
}

fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    found.is_ok_and(|output| output.status.success())
}

/// Returns the installed compilers of C or C++.
fn compilers(names: [&'static str; 2]) -> Vec<&'static str> {
    names.into_iter().filter(|name| is_there(name)).collect()
}

fn root() -> PathBuf {
    programs().join("../..")
}

/// Runs a compiler in the root of the repository.
fn compile(compiler: &str, words: &[&str]) {
    let output = Command::new(compiler).args(words).current_dir(root()).output();
    let output = output.unwrap_or_else(|e| panic!("cannot start {compiler}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {words:?}: {said}");
}

const STRICT: [&str; 7] =
    ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror", "-fsyntax-only"];

#[test]
fn headers_without_a_warning() {
    let check = |compiler: &str, language: &str, standard: &str, header: &str| {
        let standard = format!("-std={standard}");
        let words = ["-x", language, &standard, "-include", header, "/dev/null"];
        compile(compiler, &[&STRICT, &words[..]].concat());
    };
    for compiler in compilers(["gcc", "clang"]) {
        for standard in ["c99", "c11", "c17", "gnu17"] {
            check(compiler, "c", standard, "include/heaptide.h");
            check(compiler, "c", standard, "include/heaptide_test.h");
        }
    }
    for compiler in compilers(["g++", "clang++"]) {
        for standard in ["c++98", "c++11", "c++14", "c++17", "c++20", "c++2b"] {
            check(compiler, "c++", standard, "include/heaptide.h");
            if standard != "c++98" {
                check(compiler, "c++", standard, "include/heaptide.hpp");
                check(compiler, "c++", standard, "include/heaptide_test.h");
            }
        }
    }
}

/// The header detects whether there is a recorder, in every kind of program.
#[test]
fn every_way_to_link() {
    let place = scratch("every-way-to-link");
    let kinds =
        [&["-fPIE", "-pie"][..], &["-fno-pie", "-no-pie"], &["-static"], &["-static-pie", "-fPIE"]];
    let linkers = ["bfd", "gold", "lld"].map(|name| (name, is_there(&format!("ld.{name}"))));
    for compiler in compilers(["gcc", "clang"]) {
        for (linker, _) in linkers.iter().filter(|(_, is_there)| *is_there) {
            for kind in kinds {
                for optimized in ["-O0", "-O2"] {
                    // With gold, such programs contain relocations that are never applied.
                    if *linker == "gold" && kind[0] == "-static-pie" {
                        continue;
                    }
                    let linker = format!("-fuse-ld={linker}");
                    let flags = [kind, &[optimized, &linker]].concat();
                    link_and_look(compiler, &flags, kind[0].starts_with("-static"), &place);
                }
            }
        }
    }
}

fn link_and_look(compiler: &str, flags: &[&str], is_static: bool, place: &Path) {
    let program = place.join("program");
    let target = program.to_str().expect("a path in UTF-8");
    let words = ["-fno-builtin", "tests/programs/api_absent.c", "-o", target];
    compile(compiler, &[flags, &words].concat());
    let bare = run(&mut clean(Command::new(&program)), place);
    assert_eq!((bare.status, &*bare.stdout), (0, "absent\n"), "{compiler} {flags:?}");
    if !is_static {
        let mut command = preloaded(&program, place.join("a.heaptide"));
        let outcome = run(&mut command, place);
        assert_eq!((outcome.status, &*outcome.stdout), (0, "there\n"), "{compiler} {flags:?}");
    }
}

/// Linked with `-lheaptide` instead of preloaded.
#[test]
fn linked_with_the_recorder() {
    let place = scratch("linked-with-the-recorder");
    fs::copy(library(), place.join("libheaptide.so")).expect("the library");
    let beside = place.to_str().expect("a path in UTF-8");
    let program = place.join("program");
    let (search, found) = (format!("-L{beside}"), format!("-Wl,-rpath,{beside}"));
    for needed in ["-Wl,--as-needed", "-Wl,--no-as-needed"] {
        let target = program.to_str().expect("a path in UTF-8");
        let words = ["-g", "-O2", "-fno-builtin", "tests/programs/api_absent.c", "-o", target];
        compile("cc", &[&words[..], &[needed, &search, &found, "-lheaptide"]].concat());
        let recording = place.join("a.heaptide");
        let _ = fs::remove_dir_all(&recording);
        let mut command = clean(Command::new(&program));
        let outcome = run(command.env("HEAPTIDE_OUTPUT", &recording), &place);
        assert_eq!((outcome.status, &*outcome.stdout), (0, "there\n"), "{needed}");
        let report = report(&recording, &place);
        assert_eq!(evaluate(&report, "leaf:block", "allocations"), 1, "{needed}");
    }
}

/// Builds a monitor of `monitors/` with the command that its source documents.
fn monitor(language: &str, name: &str, place: &Path) -> PathBuf {
    if language == "rust" {
        return crate::languages::monitor(name);
    }
    let suffix = if language == "c" { "c" } else { "cpp" };
    let source = root().join(format!("monitors/{language}/{name}.{suffix}"));
    let text = fs::read_to_string(&source).unwrap_or_else(|e| panic!("{source:?}: {e}"));
    let line = text.lines().find_map(|line| line.strip_prefix("//     c"));
    let command = format!("c{}", line.expect("a command"));
    let file = format!("lib{name}.so");
    let target = place.join(&file);
    let path = target.to_str().expect("a path in UTF-8");
    let words: Vec<&str> = command.split_whitespace().collect();
    let words: Vec<&str> = words.into_iter().map(|w| if w == file { path } else { w }).collect();
    compile(words[0], &[&words[1..], &["-Wall", "-Wextra", "-Wpedantic", "-Werror"]].concat());
    target
}

/// A directory with `api_monitored.c` to run under monitors.
struct Monitored {
    program: PathBuf,
    place: PathBuf,
    language: &'static str,
}

impl Monitored {
    fn new(language: &'static str, test: &str) -> Monitored {
        let program = Guest::read("api_monitored.c").build("api_monitored.c", &[]);
        Monitored { program, place: scratch(&format!("{test}-{language}")), language }
    }

    fn recording(&self) -> PathBuf {
        self.place.join("a.heaptide")
    }

    /// Runs `heaptide run --monitor libNAME.so:OPTIONS -- PROGRAM ARGUMENTS`.
    fn run(&self, name: &str, options: &str, arguments: &[&str]) -> Outcome {
        let library = monitor(self.language, name, &self.place);
        let path = library.to_str().expect("a path in UTF-8");
        let given = if options.is_empty() { path.to_owned() } else { format!("{path}:{options}") };
        let _ = fs::remove_dir_all(self.recording());
        let mut command = recorded(&self.recording(), &["--monitor", &given]);
        command.arg(&self.program).args(arguments).current_dir(&self.place);
        run(&mut command, &self.place)
    }

    /// Returns the output of a monitor for a successful run.
    fn prints(&self, name: &str, options: &str) -> String {
        let outcome = self.run(name, options, &[]);
        assert_eq!((outcome.status, &*outcome.stdout), (0, "done\n"), "{}", outcome.stderr);
        let report = report(&self.recording(), &self.place);
        assert_eq!(evaluate(&report, "leaf:block", "allocations"), 103);
        // Allocations of the monitor are not recorded; the C++ library makes one when it is loaded.
        assert!(evaluate(&report, "totals", "allocations") <= 104, "{report}");
        outcome.stderr
    }
}

const LANGUAGES: [&str; 3] = ["c", "cpp", "rust"];

/// The output of `totals` for `api_monitored.c`.
const TOTALS: &str = "totals: total memory requested: 6250\n\
                      totals: max memory used: 1304\n\
                      totals: presently used: 0\n\
                      totals: # allocations calls: 103\n\
                      totals: # deallocations calls: 103\n";

#[test]
fn totals_monitor() {
    for language in LANGUAGES {
        let monitored = Monitored::new(language, "totals-monitor");
        assert_eq!(monitored.prints("totals", ""), TOTALS);
        // The coreutils close stderr before monitors end.
        let library = monitor(language, "totals", &monitored.place);
        let with = ["--monitor", library.to_str().expect("a path in UTF-8")];
        let outcome = run(recorded(&monitored.place.join("ls"), &with).arg("ls"), &monitored.place);
        assert_eq!((outcome.status, outcome.stderr.lines().count()), (0, 5), "{}", outcome.stderr);
    }
}

/// A library gets its options by the name of its own file, not by the name in its source.
#[test]
fn a_renamed_monitor_has_its_options() {
    for language in LANGUAGES {
        let monitored = Monitored::new(language, "renamed-monitor");
        let usual = monitor(language, "threshold", &monitored.place);
        let renamed = monitored.place.join("ours.so");
        fs::copy(usual, &renamed).expect("the library"); // other tests use the original
        let given = format!("{}:unknown=1", renamed.display());
        let mut command = recorded(&monitored.recording(), &["--monitor", &given]);
        let outcome = run(command.arg(&monitored.program), &monitored.place);
        assert_eq!((outcome.status, &*outcome.stdout), (0, "done\n"), "{language}");
        assert!(outcome.stderr.contains("unknown"), "{language}: {}", outcome.stderr);
    }
}

#[test]
fn monitors_preloaded_in_either_order() {
    for language in LANGUAGES {
        let monitored = Monitored::new(language, "monitors-preloaded");
        let totals = monitor(language, "totals", &monitored.place);
        let (library, totals) = (library(), totals.display().to_string());
        let library = library.display();
        let with = |preload: String| {
            let mut command = clean(Command::new(&monitored.program));
            command.env("LD_PRELOAD", preload).env("HEAPTIDE_OUTPUT", monitored.recording());
            run(&mut command, &monitored.place)
        };
        for preload in [format!("{library}:{totals}"), format!("{totals}:{library}")] {
            assert_eq!(with(preload).stderr, TOTALS);
        }
        let alone = with(totals);
        assert_eq!((alone.status, &*alone.stdout, &*alone.stderr), (0, "done\n", ""));
    }
}

#[test]
fn totals_of_a_forked_child() {
    for language in LANGUAGES {
        let monitored = Monitored::new(language, "totals-forked");
        let said = monitored.run("totals", "", &["fork"]).stderr;
        // The child inherits the counts of its parent, and ends first.
        assert!(said.contains("# allocations calls: 113\n"), "{said}");
        assert!(said.ends_with(TOTALS), "{said}");
        assert_eq!(said.lines().count(), 10, "{said}");
    }
}

#[test]
fn histogram_monitor() {
    for language in LANGUAGES {
        let monitored = Monitored::new(language, "histogram-monitor");
        let said = monitored.prints("histogram", "");
        let rows: Vec<Vec<&str>> =
            said.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        let of = |from: &str| rows.iter().find(|row| row[0] == from).expect("a row")[1];
        let found = ["0", "1", "2", "4", "8", "16", "32", "64", "128", "512"].map(of);
        assert_eq!(found, ["1", "1", "2", "4", "8", "16", "32", "37", "1", "1"], "{said}");
        for (column, rows) in [1, 2, 3].map(|column| (column, &rows)) {
            let sum: u64 = rows.iter().map(|row| row[column].parse::<u64>().expect("n")).sum();
            assert_eq!(sum, 103, "{said}");
        }
    }
}

#[test]
fn window_monitor() {
    for language in LANGUAGES {
        let monitored = Monitored::new(language, "window-monitor");
        assert_eq!(
            monitored.prints("window", ""),
            "window 1: requested 300 added -800 peak 304 allocations 2 frees 2 of its own 1 \
             not yet freed 1 blocks 200 bytes\n"
        );
        // The second and third request are in the part that the program marks.
        assert_eq!(
            monitored.prints("window", "from=2,to=3"),
            "window 1: requested 300 added 304 peak 304 allocations 2 frees 0 of its own 0 \
             not yet freed 2 blocks 304 bytes\n"
        );
    }
}

/// Returns the rows of each CSV file of a run as numbers, without the header.
fn csv_files(place: &Path) -> Vec<Vec<Vec<i64>>> {
    let entries = fs::read_dir(place).expect("the directory").flatten();
    let paths = entries.map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "csv")).collect();
    files.sort();
    let rows = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a CSV file");
        let mut lines = text.lines();
        let header = "timestamp, total-requested, max-actual, present-actual, max-single, \
                      nAllocs, nDeallocs";
        assert_eq!(lines.next(), Some(header));
        let figures = |line: &str| line.split(", ").map(|n| n.parse().expect("n")).collect();
        lines.map(figures).collect()
    };
    files.iter().map(rows).collect()
}

#[test]
fn periodic_monitor() {
    for language in LANGUAGES {
        let monitored = Monitored::new(language, "periodic-monitor");
        // The last line has the final numbers, regardless of the duration of the run.
        assert_eq!(monitored.prints("periodic", "interval=5,file=heap-"), "");
        let files = csv_files(&monitored.place);
        assert_eq!(files.len(), 1);
        let last = files[0].last().expect("a line");
        assert_eq!(last[1..], [6250, 1304, 0, 1000, 103, 103]);
        let times: Vec<i64> = files[0].iter().map(|row| row[0]).collect();
        assert!(times.is_sorted(), "{times:?}");
    }
}

#[test]
fn periodic_monitor_of_a_forked_child() {
    for language in LANGUAGES {
        let monitored = Monitored::new(language, "periodic-forked");
        let outcome = monitored.run("periodic", "interval=1000000,file=heap-", &["fork"]);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        let mut ends: Vec<Vec<i64>> = csv_files(&monitored.place)
            .iter()
            .map(|rows| rows.last().expect("a line")[1..].to_vec())
            .collect();
        ends.sort();
        assert_eq!(ends, [[6250, 1304, 0, 1000, 103, 103], [6350, 1304, 0, 1000, 113, 113]]);
    }
}

#[test]
fn threshold_monitor_aborts() {
    for language in LANGUAGES {
        let monitored = Monitored::new(language, "threshold-aborts");
        let outcome = monitored.run("threshold", "min=90,max=150,skip=2", &[]);
        assert_eq!(outcome.status, 128 + 6, "{}", outcome.stderr);
        // 100, then 90 and 91 in the loop.
        assert_eq!(outcome.stderr, "threshold: request of 91 bytes, number 3\n");
    }
}

#[test]
fn threshold_monitor_takes_a_snapshot() {
    for language in LANGUAGES {
        let monitored = Monitored::new(language, "threshold-snapshot");
        let said = monitored.prints("threshold", "live=1K,action=snapshot");
        assert_eq!(said, "threshold: live total of 1104 bytes, number 1\n");
        let profile = &profiles(&monitored.recording())[0];
        let snapshot = report(&profile.with_extension("1.snapshot"), &monitored.place);
        assert_eq!(evaluate(&snapshot, "leaf:block", "live_bytes"), 1104);
    }
}

#[test]
fn bad_options_of_monitors() {
    for language in LANGUAGES {
        let monitored = Monitored::new(language, "bad-options");
        for (name, options, says) in [
            ("totals", "verbose", "totals: `verbose`: it has no options\n"),
            ("histogram", "x=1", "histogram: `x=1`: it has no options\n"),
            ("window", "from=1,bis=2", "window: `bis=2`: expected from=N,to=M\n"),
            ("window", "from=5,to=4", "window: options: expected from=N,to=M with 0 < N <= M\n"),
            (
                "periodic",
                "interval=0",
                "periodic: `interval=0`: expected interval=MILLISECONDS,file=PREFIX\n",
            ),
            (
                "threshold",
                "min=1,action=explode",
                "threshold: `action=explode`: expected min=BYTES,max=BYTES,live=BYTES,\
                 skip=COUNT,action=abort|snapshot\n",
            ),
        ] {
            assert_eq!(monitored.prints(name, options), says);
        }
    }
}

/// Builds a program of `examples/` with the command that its source documents, and runs it bare and
/// recorded.
fn example(path: &str, bare_prints: &str, prints: &str) -> Value {
    let source = root().join(path);
    let text = fs::read_to_string(&source).unwrap_or_else(|e| panic!("{source:?}: {e}"));
    let name = source.file_stem().and_then(|stem| stem.to_str()).expect("a name");
    let place = scratch(&format!("example-{name}"));
    let program = place.join(name);
    let path = program.to_str().expect("a path in UTF-8");
    let line = text.lines().find_map(|line| line.strip_prefix("//     c")).expect("a command");
    let command = format!("c{line}");
    let words = command.split_whitespace().map(|word| if word == name { path } else { word });
    let words: Vec<&str> = words.collect();
    compile(words[0], &[&words[1..], &["-Wall", "-Wextra", "-Wpedantic", "-Werror"]].concat());
    let bare = run(&mut clean(Command::new(&program)), &place);
    assert_eq!((bare.status, &*bare.stdout, &*bare.stderr), (0, bare_prints, ""));
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(&program), &place);
    assert_eq!((outcome.status, &*outcome.stdout, &*outcome.stderr), (0, prints, ""));
    report(&recording, &place)
}

#[test]
fn example_in_c() {
    let report = example(
        "examples/c/heat.c",
        "near the warm edge: 48.069 degrees\n",
        "a step: 1 allocation of 2000 bytes, 1 free\n\
         the simulation left 10 blocks\n\
         its scope asked for 300000 bytes in 110 blocks\n\
         near the warm edge: 48.069 degrees\n",
    );
    let known = "totals allocations=112 requested_bytes=1900000 live_blocks=0\n\
                 scope:simulate>9>picture allocations=1 requested_bytes=10000\n\
                 scope+:simulate allocations=110 requested_bytes=300000\n\
                 label:now allocations=1 requested_bytes=800000\n\
                 label:picture allocations=10 requested_bytes=100000\n\
                 window:simulation allocations=110 live_blocks=10";
    assert_met(&report, &expectations::parse(known, ""));
}

#[test]
fn example_in_cpp() {
    let report = example(
        "examples/cpp/particles.cpp",
        "in the middle: 0.504\n",
        "sorting: 101 allocations of 42400 bytes\n\
         meanwhile always less than 700 kB were live\n\
         the largest block: 320000 bytes\n\
         an address in particles[1234]\n\
         in the middle: 0.504\n",
    );
    let known = "scope:19>move_particles allocations=2 requested_bytes=160000 live_blocks=0\n\
                 scope:0>sort_into_cells allocations=101 requested_bytes=42400 frees=101\n\
                 scope:make_particles requested_bytes=320000 entered=1\n\
                 label:distances allocations=40 requested_bytes=3200000\n\
                 window:steps count=1\n\
                 mark:made count=1";
    assert_met(&report, &expectations::parse(known, ""));
}
