//! Programs in Rust and Python that use the interface: each function, with the recorder and
//! without, the worked examples, and the monitors in Rust.
//!
//! Programs check themselves what they can observe (`crates/heaptide/guest`, `python/tests`); the
//! numbers here are read from the recording.

use crate::harness::{
    Guest, Outcome, cargo, clean, directory, heaptide, profiles, recorded, report, run, scratch,
};
use crate::programs::python;
use crate::recording::{counted, list, number};
use heaptide_fixtures::skips::{reader, skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const MONITORS: [&str; 5] = ["totals", "histogram", "window", "periodic", "threshold"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Builds the guest, the example and the monitors in a separate target directory, which it returns.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = directory("languages");
        let mut cargo = cargo(&target);
        cargo.args(["--package", "heaptide", "--features", "heaptide/attribute,heaptide/tracing"]);
        cargo.args(["--example", "guest", "--lib", "--bins", "--package", "heaptide-example"]);
        cargo.args(["--package", "heaptide-example-benches"]);
        for monitor in MONITORS {
            cargo.arg("--package").arg(format!("heaptide-monitor-{monitor}"));
        }
        let output = cargo.output().expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        target.join("debug")
    })
}

/// Returns the path of a monitor of `monitors/rust`.
pub fn monitor(name: &str) -> PathBuf {
    built().join(format!("lib{name}.so"))
}

fn guest() -> PathBuf {
    built().join("examples/guest")
}

/// The checked counters, summed over sites.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Sums {
    allocations: i128,
    requested_bytes: i128,
    live_blocks: i128,
    frees_here: i128,
}

/// Returns a scope path as `attribute=value/attribute=value`; empty outside of scopes.
fn path(site: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let names = site["scope"].as_array().map_or(&[][..], Vec::as_slice);
    let names = names.iter().map(|n| format!("{}={}", text(&n["attribute"]), text(&n["value"])));
    names.collect::<Vec<_>>().join("/")
}

/// Returns the sums of each scope path over all processes.
fn by_scope(report: &Value) -> BTreeMap<String, Sums> {
    let mut sums = BTreeMap::<String, Sums>::new();
    for site in list(report, "processes").iter().flat_map(|process| list(process, "sites")) {
        let sum = sums.entry(path(site)).or_default();
        sum.allocations += counted(site, "allocations");
        sum.requested_bytes += counted(site, "requested_bytes");
        sum.live_blocks += counted(site, "live_blocks");
        sum.frees_here += counted(site, "frees_here");
    }
    sums
}

/// Runs the guest bare and recorded; both must succeed. Returns the report and the recording.
fn ability(name: &str) -> (Value, PathBuf) {
    let recording = content(name);
    (report(&recording, &scratch(&format!("rust-{name}-report"))), recording)
}

/// Runs the guest bare and recorded; both must succeed. Returns the recording.
fn content(name: &str) -> PathBuf {
    let place = scratch(&format!("rust-{name}"));
    let done = |command: &mut Command| {
        let outcome = run(command.arg(name).current_dir(&place), &place);
        assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{name}");
        assert_eq!(outcome.stdout, format!("{name}: done\n"));
    };
    done(&mut clean(Command::new(guest())));
    let recording = place.join("a.heaptide");
    done(recorded(&recording, &[]).arg(guest()));
    recording
}

/// Checks allocations, requested bytes and frees in a scope path.
fn expect(sums: &BTreeMap<String, Sums>, path: &str, expected: [i128; 3]) {
    let found = sums.get(path).unwrap_or_else(|| panic!("no scope `{path}` in {sums:#?}"));
    let found = [found.allocations, found.requested_bytes, found.frees_here];
    assert_eq!(found, expected, "allocations, requested bytes, frees in `{path}`");
}

/// Only the stacks of the exceeded limit are shown.
#[test]
fn rust_limits() {
    let place = scratch("rust-limits");
    let bare = run(clean(Command::new(guest())).arg("limits"), &place);
    assert_eq!((bare.status, &*bare.stdout, &*bare.stderr), (0, "limits: done\n", ""));
    let outcome = run(recorded(&place.join("a.heaptide"), &[]).arg(guest()).arg("limits"), &place);
    assert_eq!((outcome.status, &*outcome.stdout), (0, "limits: done\n"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("guest::limits::wasteful"), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.matches("memory limit exceeded").count(), 2, "{}", outcome.stderr);
}

/// Allocations per iteration in the output of benchmarks: 4 blocks of 87 bytes.
#[test]
fn rust_benchmarks() {
    let place = scratch("rust-benchmarks");
    let output = |name: &str, words: &[&str]| {
        let recording = place.join(format!("{name}.heaptide"));
        let mut command = recorded(&recording, &["--force"]);
        command.arg(built().join(name)).arg("--bench").args(words).current_dir(&place);
        let outcome = run(&mut command, &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        (outcome.stdout, recording)
    };
    let quick = ["--sample-size=10", "--warm-up-time=0.01", "--measurement-time=0.01"];
    // The second run compares itself with the first.
    output("allocated-criterion", &quick);
    let (criterion, _) = output("allocated-criterion", &quick);
    for line in ["[4.0000 blocks 4.0000 blocks 4.0000 blocks]", "[87.000 B 87.000 B 87.000 B]"] {
        assert!(criterion.contains(line), "{criterion}");
    }
    let (divan, recording) = output("allocated-divan", &[]);
    let of = |text: &str| divan.matches(text).count();
    assert_eq!((of("│ 4   "), of("│ 87 B ")), (6, 6), "{divan}");
    // The recorder wraps the same allocator and records the stacks.
    let report = report(&recording, &place);
    let sites = list(&report, "processes").iter().flat_map(|process| list(process, "sites"));
    let words = sites.map(|site| counted(site, "allocations")).sum::<i128>();
    assert!(words >= 400, "{words}");
}

#[test]
fn rust_scopes() {
    let (report, recording) = ability("scopes");
    assert_known_scopes(&by_scope(&report));
    // The same without stacks.
    let (place, again) = (scratch("rust-scopes-mode"), recording.with_extension("scopes"));
    let mut command = recorded(&again, &["--mode", "scopes"]);
    assert_eq!(run(command.arg(guest()).arg("scopes"), &place).status, 0);
    assert_known_scopes(&by_scope(&self::report(&again, &place)));
}

fn assert_known_scopes(sums: &BTreeMap<String, Sums>) {
    // Ten blocks and their list; freed in another scope, where they count as frees.
    expect(sums, "region=load", [11, 10_240, 0]);
    expect(sums, "region=use", [0, 0, 11]);
    for n in 0..3 {
        expect(sums, &format!("iteration={n}"), [n + 1, (n + 1) * 100, n + 1]);
    }
    expect(sums, "region=dummy1", [1, 11, 1]);
    expect(sums, "region=dummy10", [1, 22, 1]);
    expect(sums, "region=dummy10/region=dummy1", [1, 33, 1]);
    let nested = ["function=guest::scopes::nested"; 3];
    for levels in 1..=3 {
        expect(sums, &nested[..levels].join("/"), [1, 70, 1]);
    }
    assert_eq!(sums["text=é — as it is"].requested_bytes, 50);
}

#[test]
fn rust_contexts() {
    let (report, _) = ability("contexts");
    let sums = by_scope(&report);
    // Starting threads also allocates in the scope, less than one of these blocks each.
    let shared = sums["region=shared"];
    assert_eq!((shared.live_blocks, shared.requested_bytes / 1000), (0, 4));
    for n in 0..30 {
        expect(&sums, &format!("worker={n}"), [7, 4200, 7]);
    }
}

#[test]
fn rust_tasks() {
    let (report, _) = ability("tasks");
    let sums = by_scope(&report);
    // Five steps of three blocks, and one block that the task owns; one per step in a nested scope.
    for (task, bytes) in [("first", 1000), ("second", 2000)] {
        let task = format!("region=executor/task={task}");
        expect(&sums, &task, [16, 16 * bytes, 16]);
        expect(&sums, &format!("{task}/region=inner"), [5, 5 * bytes, 5]);
    }
    expect(&sums, "held=first", [4, 1200, 4]);
    expect(&sums, "task=second/held=second", [4, 1600, 4]);
    expect(&sums, "task=left", [4, 20_000, 4]);
}

#[test]
fn rust_spans() {
    let (report, _) = ability("spans");
    let sums = by_scope(&report);
    // `tracing` itself allocates less in spans than one of these blocks.
    let blocks = |path: &str| sums.get(path).map_or(0, |sum| sum.requested_bytes / 800);
    assert_eq!(blocks("span=outer/span=inner"), 2);
    assert_eq!(blocks("span=second"), 6);
    assert_eq!(blocks("span=first/span=child"), 3);
    assert_eq!(blocks("span=b"), 1);
}

#[test]
fn rust_labels() {
    let (report, _) = ability("labels");
    let labels = list(&list(&report, "processes")[0], "labels");
    let live: BTreeMap<&str, (i128, i128)> = labels
        .iter()
        .map(|l| (l["label"].as_str().expect("a label"), l))
        .map(|(name, l)| (name, (number(l, "live_blocks"), number(l, "live_bytes"))))
        .filter(|(_, live)| live.0 > 0)
        .collect();
    let expected =
        [("cube", (1, 72)), ("first", (1, 1000)), ("matrix", (1, 488)), ("second", (1, 1000))];
    assert_eq!(live, BTreeMap::from(expected));
}

#[test]
fn rust_pools() {
    let (report, _) = ability("pools");
    let labels = list(&list(&report, "processes")[0], "labels");
    let blocks = labels.iter().find(|l| l["label"] == "arena" && l["kind"] == "pool_block");
    let blocks = blocks.expect("blocks of the pool");
    assert_eq!((number(blocks, "allocations"), number(blocks, "live_blocks")), (5, 3));
    assert_eq!(number(blocks, "live_bytes"), 2048 + 2 * 1024);
}

#[test]
fn rust_windows_marks_and_snapshots() {
    let (report, recording) = ability("windows");
    let process = &list(&report, "processes")[0];
    let names = |rows: &str| -> Vec<&str> {
        list(process, rows).iter().map(|row| row["name"].as_str().expect("a name")).collect()
    };
    assert_eq!(names("windows"), ["outer", "inner"]);
    assert_eq!(names("marks"), ["before", "with three", "after", "without"]);
    let profile = profiles(&recording).pop().expect("a profile");
    for number in 1..=2 {
        let snapshot = profile.with_extension(format!("{number}.snapshot"));
        assert!(snapshot.exists(), "{snapshot:?} is not there");
    }
}

#[test]
fn rust_control() {
    // After a reset, live bytes can exceed those allocated since.
    let recording = content("control");
    let mut command = heaptide();
    command.args(["report", "--format", "json"]).arg(&recording);
    let outcome = run(&mut command, &scratch("rust-control-report"));
    let report: Value = serde_json::from_str(&outcome.stdout).expect("a report");
    let totals = &list(&report, "processes")[0]["totals"];
    // Since the reset: the block after it, and the output buffer of the program.
    let requested = number(totals, "requested_bytes");
    assert!((12_345..20_000).contains(&requested), "{requested} bytes since the reset");
}

#[test]
fn rust_monitors() {
    ability("monitors");
    ability("deregistered");
}

/// Runs `work` of the guest with a monitor: a hundred requests of a million bytes, two are kept.
fn monitored(test: &str, monitor: &str, options: &str) -> (Outcome, PathBuf) {
    let place = scratch(&format!("monitor-{test}"));
    let library = self::monitor(monitor);
    let argument = format!("{}{options}", library.display());
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &["--monitor", &argument]);
    let outcome = run(command.arg(guest()).arg("work").current_dir(&place), &place);
    (outcome, place)
}

/// Returns the number after this text in the output.
fn said(outcome: &Outcome, what: &str) -> i64 {
    let rest = outcome.stderr.split_once(what).map(|(_, rest)| rest);
    let rest = rest.unwrap_or_else(|| panic!("no `{what}` in {}", outcome.stderr)).trim_start();
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '-')).unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|e| panic!("{what}: {e}: {}", outcome.stderr))
}

#[test]
fn monitor_of_totals() {
    let (outcome, _) = monitored("totals", "totals", "");
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert_eq!(said(&outcome, "total memory requested:") / 1_000_000, 100);
    assert_eq!(said(&outcome, "max memory used:") / 1_000_000, 2);
    assert_eq!(said(&outcome, "presently used:") / 1_000_000, 2);
    let (allocations, frees) =
        (said(&outcome, "# allocations calls:"), said(&outcome, "# deallocations calls:"));
    assert!(allocations >= 101 && (3..20).contains(&(allocations - frees)), "{}", outcome.stderr);
    let (outcome, _) = monitored("totals-options", "totals", ":verbose");
    assert_eq!((outcome.status, outcome.stderr.lines().count()), (0, 1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("totals: `verbose`: it has no options"), "{}", outcome.stderr);
}

#[test]
fn monitor_of_sizes() {
    let (outcome, _) = monitored("histogram", "histogram", "");
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let row = outcome.stderr.lines().find(|line| line.trim_start().starts_with("524288 "));
    let row: Vec<_> = row.expect("the class of a million bytes").split_whitespace().collect();
    assert_eq!(row, ["524288", "100", "100", "98"]);
}

#[test]
fn monitor_of_a_window() {
    let (outcome, _) = monitored("window", "window", ":from=20,to=69");
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    // Fifty requests of a million bytes, the last of which is not freed when the window ends.
    assert!(
        outcome.stderr.contains("window 1: requested 50000000 ")
            && outcome.stderr.contains("allocations 50 frees 49 of its own 49 not yet freed 1 "),
        "{}",
        outcome.stderr
    );
}

#[test]
fn monitor_that_writes_periodically() {
    let (outcome, place) = monitored("periodic", "periodic", ":interval=1,file=heap-");
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));
    let entries = fs::read_dir(&place).expect("the place").flatten().map(|entry| entry.path());
    let file = entries.filter(|path| path.extension().is_some_and(|e| e == "csv")).last();
    let text = fs::read_to_string(file.expect("a file")).expect("its text");
    let mut lines = text.lines();
    assert_eq!(lines.next().map(|header| header.split(", ").count()), Some(7));
    let last = lines.next_back().expect("a last line");
    let figures: Vec<i64> = last.split(", ").map(|f| f.parse().expect("a number")).collect();
    assert_eq!((figures[1] / 1_000_000, figures[4]), (100, 1_000_000), "{last}");
}

#[test]
fn monitor_with_a_threshold() {
    /// The status of a program that aborts, as a shell reports it.
    const ABORTED: i32 = 128 + 6;
    let (outcome, _) = monitored("threshold", "threshold", ":min=1000000,max=1M,skip=3");
    assert_eq!(outcome.status, ABORTED, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("threshold: request of 1000000 bytes, number 4"));
    let (outcome, _) = monitored("threshold-live", "threshold", ":live=1500000");
    assert_eq!(outcome.status, ABORTED, "{}", outcome.stderr);
    let (outcome, _) = monitored("threshold-high", "threshold", ":live=3M");
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));
}

#[test]
fn monitor_that_is_unloaded() {
    let place = scratch("monitor-unloaded");
    let script = "import _ctypes, ctypes, sys
for _ in range(3):
    library = ctypes.CDLL(sys.argv[1])
    block = bytearray(1 << 20)
    _ctypes.dlclose(library._handle)
    block = bytearray(2 << 20)
print('done')";
    let library = monitor("totals");
    let arguments = ["-c", script, library.to_str().expect("a path in UTF-8")];
    let recording = place.join("a.heaptide");
    let Some(outcome) = python_at(&place, recorded(&recording, &[]), &arguments) else {
        return skip("python3");
    };
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "done\n"), "{}", outcome.stderr);
    // Each monitor counted one megabyte and nothing after it.
    let requested = outcome.stderr.lines().filter_map(|l| l.split_once("memory requested: "));
    let mib: Vec<i64> = requested.map(|(_, n)| n.parse::<i64>().expect("bytes") >> 20).collect();
    assert_eq!(mib, [1, 1, 1], "{}", outcome.stderr);
}

/// Returns the labelled memory in a trace: number, label, dimensions, bytes per element.
fn labelled(recording: &Path, place: &Path) -> Vec<String> {
    let query = "SELECT * FROM events WHERE label,operation!=free \
                 FORMAT format(\"%uid% %label% %dims% %element_bytes%\")";
    let outcome = run(heaptide().args(["query", query]).arg(recording), place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    outcome.stdout.lines().map(str::to_owned).collect()
}

/// The numbers that C++ resolves equal those in the recording.
#[test]
fn labels_of_cpp_have_numbers_and_dimensions() {
    let place = scratch("label-numbers-cpp");
    let program = Guest::read("api_shapes.cpp").build("api_shapes.cpp", &[]);
    let bare = run(&mut clean(Command::new(&program)), &place);
    assert_eq!((bare.status, &*bare.stderr), (0, ""));
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &["--mode", "trace"]).arg(&program), &place);
    assert_eq!(outcome, bare);
    assert_eq!(labelled(&recording, &place), ["1 vector 1000 8", "2 table 30 2", "3 block 70 4"]);
}

/// The same for Python.
#[test]
fn labels_of_python_have_numbers_and_dimensions() {
    let place = scratch("label-numbers-python");
    let recording = place.join("a.heaptide");
    let script = "
import array, heaptide
def number(data):
    found = heaptide.resolve(heaptide.address(data))
    return found.uid, found.dimensions, found.element_bytes
grid, rows = bytearray(80000), array.array('d', [0.0]) * 3000
heaptide.label('grid', grid, [100, 800])
heaptide.label('rows', rows)
assert number(grid) == (1, (100, 800), 1), number(grid)
assert number(rows) == (2, (3000,), 8), number(rows)
heaptide.label('mesh', grid, [800, 100])
assert number(grid) == (3, (800, 100), 1), number(grid)";
    let command = recorded(&recording, &["--mode", "trace"]);
    let Some(outcome) = python_at(&place, command, &["-c", script]) else {
        return skip("python3");
    };
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let known = ["1 grid 100x800 1", "2 rows 3000 8", "3 mesh 800x100 1"];
    assert_eq!(labelled(&recording, &place), known);
}

#[test]
fn rust_example() {
    let place = scratch("rust-example");
    let program = built().join("heaptide-example");
    let bare = run(&mut clean(Command::new(&program)), &place);
    assert_eq!((bare.status, bare.stdout.as_str()), (0, "sum of all histograms: 9481.1\n"));
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(&program), &place);
    let mut lines = outcome.stdout.lines();
    assert_eq!(lines.next(), Some("an event takes 52 blocks, 21200 bytes"));
    assert_eq!(lines.next(), Some("20 blocks of the event loop are kept"));
    let sums = by_scope(&report(&recording, &place));
    for event in 0..20 {
        expect(&sums, &format!("event={event}/region=read"), [1, 12_000, 0]);
        expect(&sums, &format!("event={event}/region=tracks"), [51, 9200, 0]);
        // The hits, the list and all tracks except the best.
        expect(&sums, &format!("event={event}"), [0, 0, 51]);
    }
    assert_eq!(sums["region=calibration"].requested_bytes, 80_000);
    assert_eq!(sums["region=histograms"].requested_bytes / 8000, 4);
}

/// Returns the directory of numpy, if the readers are installed.
fn packages() -> Option<PathBuf> {
    let mut versions = fs::read_dir(reader("python").join("lib")).ok()?.flatten();
    Some(versions.next()?.path().join("site-packages"))
}

/// Runs Python with the package on its path, bare or recorded.
fn python_at(place: &Path, command: Command, arguments: &[&str]) -> Option<Outcome> {
    let mut command = command;
    command.arg(python()?).args(arguments).current_dir(place);
    let path = std::iter::once(root().join("python")).chain(packages());
    let path = std::env::join_paths(path).expect("paths without colons");
    command.env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1");
    Some(run(&mut command, place))
}

#[test]
fn python_package() {
    let place = scratch("python-package");
    let tests = root().join("python");
    let tests = tests.to_str().expect("a path in UTF-8");
    let arguments = ["-W", "error", "-m", "unittest", "discover", "-s", tests, "-t", tests];
    let recording = place.join("a.heaptide");
    for command in [clean(Command::new("env")), recorded(&recording, &[])] {
        let Some(outcome) = python_at(&place, command, &arguments) else {
            return skip("python3");
        };
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("\nOK"), "{}", outcome.stderr);
    }
    let report = report(&recording, &place);
    let sums = by_scope(&report);
    let mib = |path: &str| sums.get(path).map(|sum| sum.requested_bytes >> 20);
    assert_eq!(mib("region=python load"), Some(3));
    assert_eq!(mib("region=python load/iteration=7"), Some(2));
    // Two before the fork, three in the child.
    assert_eq!(mib("region=forked"), Some(5));
    // What was freed there was allocated in other scopes.
    assert!(sums["region=python use"].frees_here >= 2);
    assert_eq!((0..20).filter_map(|n| mib(&format!("worker={n}"))).sum::<i128>(), 60);
}

/// Runs the tests of the Python package that need the command, in all files that match a pattern.
fn python_with_the_command(name: &str, files: &str) {
    let python = reader("python").join("bin/python");
    if !python.exists() {
        return skip("python-readers");
    }
    let place = scratch(name);
    let own = Path::new(env!("CARGO_BIN_EXE_heaptide")).parent().expect("a directory");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(own.to_path_buf()).chain(std::env::split_paths(&path));
    let tests = root().join("python/tests/with_command");
    let mut command = clean(Command::new(python));
    command.args(["-W", "error", "-m", "unittest", "discover", "-p", files, "-s"]).arg(&tests);
    command.arg("-t").arg(&tests).current_dir(&place);
    command.env("PATH", std::env::join_paths(path).expect("paths without colons"));
    command.env("PYTHONPATH", root().join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    let outcome = run(&mut command, &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert!(outcome.stderr.ends_with("\nOK\n"), "{}", outcome.stderr);
}

#[test]
fn python_recordings_as_tables() {
    python_with_the_command("python-tables", "test_recording.py");
}

#[test]
fn python_records_parts_of_programs() {
    python_with_the_command("python-record", "test_record.py");
}

#[test]
fn python_starts_the_command() {
    python_with_the_command("python-main", "test_main.py");
}

#[test]
fn python_tests_have_limits() {
    python_with_the_command("python-pytest", "test_pytest_plugin.py");
}

#[test]
fn python_cells_of_notebooks() {
    python_with_the_command("python-jupyter", "test_jupyter.py");
}

#[test]
fn python_example() {
    let place = scratch("python-example");
    let program = root().join("examples/python/pages.py");
    let program = program.to_str().expect("a path in UTF-8");
    let Some(bare) = python_at(&place, clean(Command::new("env")), &[program]) else {
        return skip("python3");
    };
    assert_eq!((bare.status, bare.stdout.as_str()), (0, "bytes of all pages: 8388608\n"));
    let recording = place.join("a.heaptide");
    let outcome = python_at(&place, recorded(&recording, &[]), &[program]).expect("python");
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert!(outcome.stdout.starts_with("the index takes 1048577 bytes\n"), "{}", outcome.stdout);
    let sums = by_scope(&report(&recording, &place));
    let mib = |path: &str| sums.get(path).map(|sum| sum.requested_bytes >> 20);
    for page in 0..4 {
        // Eight parts of 256 KiB; joined, and copied; copied for the thread.
        assert_eq!(mib(&format!("page={page}/region=receive")), Some(2));
        assert_eq!(mib(&format!("page={page}/region=join")), Some(4));
        assert_eq!(mib(&format!("page={page}/region=pack")), Some(2));
    }
    assert_eq!(mib("region=index"), Some(1));
}
