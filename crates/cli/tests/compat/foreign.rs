//! Exports, read by the tools that they are for, of programs with known numbers and of real ones.

use crate::expectations::evaluate;
use crate::harness::{Guest, Outcome, check, heaptide, recorded, report, run, scratch, until};
use crate::programs::python;
use crate::recording::{list, number};
use heaptide_fixtures::skips::{reader, skip};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A recording and the directory of its exports.
struct Recorded {
    place: PathBuf,
    recording: PathBuf,
}

impl Recorded {
    /// Records a guest program with known numbers.
    fn guest(program: &str, name: &str, options: &[&str]) -> Recorded {
        let place = scratch(name);
        let recording = place.join("a.heaptide");
        let program = Guest::read(program).build(program, &[]);
        let outcome = run(recorded(&recording, options).arg(program), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        Recorded { place, recording }
    }

    fn export(&self, words: &str) -> Outcome {
        let mut command = heaptide();
        command.arg("export").args(words.split_whitespace()).arg(&self.recording);
        run(&mut command, &self.place)
    }

    /// Exports to a file; no message may be printed.
    fn to_file(&self, words: &str, file: &str) -> PathBuf {
        let path = self.place.join(file);
        let outcome = self.export(&format!("{words} -o {}", path.display()));
        let Outcome { status, stdout, stderr } = outcome;
        assert_eq!((status, &*stdout, &*stderr), (0, "", ""), "{words}");
        path
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{path:?}: {e}"))
}

#[test]
fn files_are_not_replaced_unasked() {
    let of = Recorded::guest("peak.c", "foreign-files", &[]);
    let file = of.to_file("--format json", "a.json");
    let first = read(&file);
    let Outcome { status, stderr, .. } = of.export(&format!("--format json -o {}", file.display()));
    assert_eq!((status, stderr.lines().count()), (2, 1), "{stderr}");
    assert!(stderr.contains("exists; replace it with --force"), "{stderr}");
    of.to_file("--format json --force", "a.json");
    assert_eq!(first, read(&file));
    let Outcome { stdout, .. } = of.export("--format json");
    assert_eq!(first, stdout);
    let full = of.export("--format json --force -o /dev/full");
    assert_eq!((full.status, full.stderr.lines().count()), (2, 1), "{}", full.stderr);
    assert!(Path::new("/dev/full").exists());
    let nowhere = of.export("--format json -o no/such/directory");
    assert_eq!((nowhere.status, nowhere.stderr.lines().count()), (2, 1), "{}", nowhere.stderr);
}

#[test]
fn what_a_format_cannot_have_is_said() {
    let of = Recorded::guest("peak.c", "foreign-counters", &["--mode", "counters"]);
    for words in ["--format flamegraph", "--format pprof", "--format callgrind --scopes"] {
        let Outcome { status, stdout, stderr } = of.export(words);
        assert_eq!((status, &*stdout, stderr.lines().count()), (1, "", 1), "{words}: {stderr}");
        assert!(stderr.contains("recorded with --mode counters"), "{stderr}");
    }
    let of = Recorded::guest("peak.c", "foreign-zero", &[]);
    let Outcome { status, stderr, .. } = of.export("--format flamegraph --metric failed");
    assert_eq!(status, 1, "{stderr}");
    assert!(stderr.contains("failed of pid ") && stderr.contains(" is 0"), "{stderr}");
    for words in ["--format json --annotate", "--format pprof --per-thread"] {
        let Outcome { status, stderr, .. } = of.export(words);
        assert_eq!((status, stderr.lines().count()), (2, 1), "{words}: {stderr}");
    }
}

/// Returns the output of a tool for a file. The tool must not report problems.
fn tool(of: &Recorded, words: &[&str], file: &Path) -> String {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(file).current_dir(&of.place).env("HOME", &of.place);
    let Outcome { status, stdout, stderr } = run(&mut command, &of.place);
    assert_eq!((status, &*stderr), (0, ""), "{words:?} {file:?}");
    stdout
}

/// Returns the number in a word: `9,000`, `9000B`.
fn figure(word: &str) -> i128 {
    let digits = word.trim_end_matches('B').replace(',', "");
    digits.parse().unwrap_or_else(|e| panic!("{word}: {e}"))
}

/// Returns `flat` and `cum` of a function from `go tool pprof -top`.
fn top(of: &Recorded, file: &Path, column: &str, function: &str) -> (i128, i128) {
    let index = format!("-sample_index={column}");
    let words = ["go", "tool", "pprof", "-top", "-unit=B", "-nodefraction=0", &index];
    let text = tool(of, &words, file);
    let end = format!(" {function}");
    let line = text.lines().find(|line| line.ends_with(&end));
    let line = line.unwrap_or_else(|| panic!("no {function} in {text}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    (figure(words[0]), figure(words[3]))
}

/// The columns of pprof and our metrics.
const COLUMNS: [(&str, &str); 6] = [
    ("alloc_objects", "allocations"),
    ("alloc_space", "usable_bytes"),
    ("inuse_objects", "live_blocks"),
    ("inuse_space", "live_bytes"),
    ("peak_objects", "at_peak_blocks"),
    ("peak_space", "at_peak_bytes"),
];

/// Returns the sums of the samples that `go tool pprof -raw` prints: per sample a line with values
/// and stack.
fn sums(raw: &str) -> Vec<i128> {
    let samples = raw.split_once("Samples:\n").expect("samples").1.split("Locations\n").next();
    let mut lines = samples.expect("locations").lines();
    let count = lines.next().expect("columns").split_whitespace().count();
    let mut sums = vec![0; count];
    for (values, _) in lines.filter_map(|line| line.split_once(": ")) {
        let values: Vec<_> = values.split_whitespace().map(str::parse::<i128>).collect();
        if values.len() == count && values.iter().all(Result::is_ok) {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value.expect("a number"));
        }
    }
    sums
}

#[test]
fn pprof_has_the_known_numbers() {
    let of = Recorded::guest("exported.c", "foreign-pprof", &[]);
    let report = report(&of.recording, &of.place);
    let file = of.to_file("--format pprof --metric requested_bytes", "a.pb.gz");
    assert_eq!(top(&of, &file, "requested_bytes", "even"), (3000, 9000));
    assert_eq!(top(&of, &file, "requested_bytes", "odd"), (6000, 8000));
    assert_eq!(top(&of, &file, "requested_bytes", "down"), (2000, 2000));
    assert_eq!(top(&of, &file, "alloc_objects", "even"), (3, 6));
    assert_eq!(top(&of, &file, "inuse_objects", "main").1, {
        evaluate(&report, "function:main", "live_blocks")
    });
    let raw = tool(&of, &["go", "tool", "pprof", "-raw"], &file);
    let totals = &list(&report, "processes")[0]["totals"];
    let mut ours: Vec<i128> = COLUMNS.iter().map(|column| number(totals, column.1)).collect();
    ours.push(number(totals, "requested_bytes"));
    assert_eq!(sums(&raw), ours);
    assert!(raw.contains("requested_bytes/bytes[dflt]"), "{raw}");
    // The main program is first, with its build id.
    let mapping = raw.split_once("Mappings\n1: ").expect("mappings").1.lines().next();
    assert!(mapping.is_some_and(|line| line.contains("exported-c ")), "{mapping:?}");
    let tags = tool(&of, &["go", "tool", "pprof", "-tags", "-sample_index=alloc_objects"], &file);
    for name in [" grow", " help", " rows", " helper"] {
        assert!(tags.lines().any(|line| line.ends_with(name)), "no{name} in {tags}");
    }
    let focus = ["-tagfocus=scope=help", "-sample_index=alloc_objects", "-top"];
    let help = tool(&of, &[&["go", "tool", "pprof"], &focus[..]].concat(), &file);
    assert!(help.contains(" help\n") && !help.contains(" even\n"), "{help}");
    // Scopes in place of functions.
    let file = of.to_file("--format pprof --scopes", "scopes.pb.gz");
    assert_eq!(top(&of, &file, "alloc_objects", "grow"), (10, 10));
}

/// Returns the cost of a function in the output of `callgrind_annotate`, for the first event.
fn annotated(text: &str, function: &str) -> i128 {
    let is_it = |line: &&str| line.contains(&format!(":{function} [")) || line.ends_with(function);
    let line = text.lines().find(is_it).unwrap_or_else(|| panic!("no {function} in {text}"));
    figure(line.split_whitespace().next().expect("a figure"))
}

#[test]
fn callgrind_has_the_known_numbers() {
    let of = Recorded::guest("exported.c", "foreign-callgrind", &[]);
    let report = report(&of.recording, &of.place);
    let totals = &list(&report, "processes")[0]["totals"];
    let file = of.to_file("--format callgrind --metric requested_bytes", "callgrind.out.1");
    let annotate = ["callgrind_annotate", "--threshold=100", "--auto=no"];
    let own = tool(&of, &annotate, &file);
    let inclusive = tool(&of, &[&annotate[..], &["--inclusive=yes"]].concat(), &file);
    for (function, known) in [("even", [3000, 9000]), ("odd", [6000, 8000]), ("down", [2000; 2])] {
        assert_eq!([annotated(&own, function), annotated(&inclusive, function)], known);
    }
    let of_main = evaluate(&report, "function:main", "requested_bytes");
    assert_eq!(annotated(&inclusive, "main"), of_main);
    for text in [&own, &inclusive] {
        assert_eq!(annotated(text, "PROGRAM TOTALS"), number(totals, "requested_bytes"));
    }
    assert!(own.contains("allocations") && own.contains("at_peak_bytes"), "{own}");
    let file = of.to_file("--format callgrind --metric allocations --scopes-and-stacks", "scopes");
    let text = tool(&of, &[&annotate[..], &["--inclusive=yes"]].concat(), &file);
    assert_eq!([annotated(&text, "grow"), annotated(&text, "down")], [10, 4]);
}

#[test]
fn massif_has_the_known_numbers() {
    let of = Recorded::guest("exported.c", "foreign-massif", &[]);
    let report = report(&of.recording, &of.place);
    let totals = &list(&report, "processes")[0]["totals"];
    let file = of.to_file("--format massif", "massif.out.1");
    let text = tool(&of, &["ms_print"], &file);
    // The numbers of snapshots with a tree: `[1 (peak), 5]`.
    let trees = text.split_once("Detailed snapshots: [").expect("trees").1;
    let (trees, _) = trees.split_once(']').expect("a list");
    let (peak, end) = trees.split_once(" (peak), ").expect("a peak and an end");
    let row = |snapshot: &str| {
        let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let found = rows.into_iter().find(|row| row.len() == 6 && row[0] == snapshot);
        found.unwrap_or_else(|| panic!("no snapshot {snapshot} in {text}"))
    };
    assert_eq!(figure(row(peak)[2]), number(totals, "peak_bytes"));
    assert_eq!(figure(row(end)[2]), number(totals, "live_bytes"));
    let share = |function: &str| {
        let name = format!(": {function} (exported.c:");
        let line = text.lines().find(|line| line.contains(&name));
        let (_, bytes) = line.and_then(|line| line.split_once('(')).expect(function);
        figure(bytes.split_once(')').expect(function).0)
    };
    assert_eq!(share("burst"), evaluate(&report, "leaf:burst", "at_peak_bytes"));
    // The timeline covers all blocks, so a filtered file does not contain it.
    let file = of.to_file("--format massif --focus burst", "massif.out.2");
    assert!(tool(&of, &["ms_print"], &file).contains("Number of snapshots: 3\n"));
    let of_nothing = of.export("--format massif --process 1");
    assert_eq!(of_nothing.status, 1);
    let of = Recorded::guest("exported.c", "foreign-massif-counters", &["--mode", "counters"]);
    let file = of.to_file("--format massif", "massif.out.1");
    assert!(tool(&of, &["ms_print"], &file).contains("Number of snapshots: "));
}

#[test]
fn trace_events_have_timeline_windows_and_marks() {
    let of = Recorded::guest("exported.c", "foreign-chrome", &[]);
    let report = report(&of.recording, &of.place);
    let process = &list(&report, "processes")[0];
    let trace: Value = serde_json::from_str(&of.export("--format chrome").stdout).expect("JSON");
    let events = list(&trace, "traceEvents");
    let of_kind = |phase: &str| events.iter().filter(move |e| e["ph"] == phase).collect::<Vec<_>>();
    let live = of_kind("C").into_iter().filter(|event| event["name"] == "live");
    let live: Vec<_> = live.map(|event| number_of(&event["args"]["bytes"])).collect();
    assert_eq!(live.iter().max(), Some(&number(&process["totals"], "peak_bytes")));
    assert_eq!(live.last(), Some(&number(&process["totals"], "live_bytes")));
    let (begin, end) = (of_kind("b"), of_kind("e"));
    assert_eq!((begin.len(), end.len()), (1, 1));
    assert_eq!((&begin[0]["name"], &end[0]["id"]), (&"burst".into(), &begin[0]["id"]));
    assert_eq!(begin[0]["args"]["allocations"], 4);
    assert!(begin[0]["ts"].as_f64() < end[0]["ts"].as_f64());
    let marks = of_kind("i");
    assert!(marks.len() == 1 && marks[0]["name"] == "grown", "{marks:?}");
    let names = of_kind("M");
    for name in ["exported-c", "helper"] {
        assert!(names.iter().any(|event| event["args"]["name"] == name), "{names:?}");
    }
    // The Firefox Profiler also reads trace events.
    let Some(profiler) = Profiler::open(&of, &of.to_file("--format chrome", "trace.json")) else {
        return;
    };
    profiler.prints("thread select t-0");
    let markers = profiler.prints("thread markers --list");
    assert!(markers.contains(" exported-c ") && markers.contains(" burst "), "{markers}");
    for event in events {
        assert_eq!(event["pid"], process["pid"]);
        assert!(event["tid"].as_u64() >= event["pid"].as_u64());
        assert!(event["ph"] == "M" || event["ts"].as_f64().is_some_and(|ts| ts >= 0.0), "{event}");
    }
}

/// Returns a whole number, also if it is written as `1.0`.
fn number_of(value: &Value) -> i128 {
    value.as_f64().expect("a number") as i128
}

#[test]
fn the_program_is_what_it_says() {
    check("exported.c");
}

/// The command-line interface of the Firefox Profiler with a file opened in it, until it is
/// dropped.
struct Profiler<'a> {
    of: &'a Recorded,
    script: PathBuf,
    server: Child,
}

impl<'a> Profiler<'a> {
    /// Opens a file; none if the test is skipped.
    fn open(of: &'a Recorded, file: &Path) -> Option<Profiler<'a>> {
        let script = profiler_script()?;
        let mut command = Profiler::start(of, &script);
        command.arg("--daemon").arg(file).args(["--session", "s"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = fs::remove_file(of.place.join("s.log"));
        let server = command.spawn().expect("node");
        let mut profiler = Profiler { of, script, server };
        until("the profiler", || {
            let ended = profiler.server.try_wait().expect("wait for node");
            assert!(ended.is_none(), "the profiler ended: {ended:?}");
            // Querying it before it listens would remove its socket.
            let log = fs::read_to_string(of.place.join("s.log")).unwrap_or_default();
            log.contains("Profile loaded successfully")
        });
        Some(profiler)
    }

    fn start(of: &Recorded, script: &Path) -> Command {
        let mut command = Command::new("node");
        command.arg(script).current_dir(&of.place).env("PROFILER_CLI_SESSION_DIR", &of.place);
        command
    }

    fn command(&self, words: &str) -> Outcome {
        let mut command = Profiler::start(self.of, &self.script);
        run(command.args(words.split_whitespace()).args(["--session", "s"]), &self.of.place)
    }

    fn prints(&self, words: &str) -> String {
        let Outcome { status, stdout, stderr } = self.command(words);
        assert_eq!(status, 0, "{words}: {stdout}{stderr}");
        stdout
    }

    /// Returns the sum over a thread, from one of its tables.
    fn total(&self, thread: usize, table: &str) -> i128 {
        self.prints(&format!("thread select t-{thread}"));
        self.prints(&format!("strategy {table}"));
        let samples = self.prints("thread samples --json");
        let samples: Value = serde_json::from_str(&samples).expect("JSON");
        number(&samples["categoryBreakdown"], "totalSamples")
    }
}

impl Drop for Profiler<'_> {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Returns the profiler's script. Without it the test is skipped.
fn profiler_script() -> Option<PathBuf> {
    let script = reader("node").join("node_modules/@firefox-devtools/profiler-cli");
    let script = script.join("dist/profiler-cli.js");
    if !script.exists() {
        skip("node-readers");
        return None;
    }
    Some(script)
}

/// The tables of the Firefox Profiler and their metrics.
const TABLES: [(&str, &str); 4] = [
    ("timing", "at_peak_bytes"),
    ("native-retained-allocations", "live_bytes"),
    ("native-allocations", "usable_bytes"),
    ("native-deallocations-memory", "freed_bytes"),
];

#[test]
fn the_firefox_profiler_has_the_known_numbers() {
    let of = Recorded::guest("exported.c", "foreign-firefox", &[]);
    let report = report(&of.recording, &of.place);
    let lanes = list(&list(&report, "processes")[0], "lanes");
    let file = of.to_file("--format firefox", "a.json");
    assert_indices(&serde_json::from_str(&read(&file)).expect("JSON"));
    let Some(profiler) = Profiler::open(&of, &file) else { return };
    for (thread, lane) in lanes.iter().enumerate() {
        for (table, measure) in TABLES.into_iter().filter(|table| number(lane, table.1) > 0) {
            assert_eq!(profiler.total(thread, table), number(lane, measure), "{thread} {table}");
        }
    }
    profiler.prints("thread select t-0");
    let markers = profiler.prints("thread markers --list");
    for name in [" grown ", " burst "] {
        assert!(markers.contains(name), "{markers}");
    }
    let counters = profiler.prints("counter list");
    assert!(counters.contains("live bytes"), "{counters}");
    drop(profiler);
    let file = of.to_file("--format firefox --metric requested_bytes", "b.json");
    let Some(profiler) = Profiler::open(&of, &file) else { return };
    profiler.prints("strategy timing");
    let samples: Value =
        serde_json::from_str(&profiler.prints("thread samples --json")).expect("JSON");
    let total = |function: &str| {
        let end = format!("!{function}");
        let of_all = list(&samples, "topFunctionsByTotal");
        let is_it =
            |row: &&Value| row["nameWithLibrary"].as_str().is_some_and(|n| n.ends_with(&end));
        let row = of_all.iter().find(is_it).unwrap_or_else(|| panic!("no {function}: {samples}"));
        [number(row, "selfSamples"), number(row, "totalSamples")]
    };
    assert_eq!(
        [total("even"), total("odd"), total("down")],
        [[3000, 9000], [6000, 8000], [2000; 2]]
    );
}

/// Returns the columns of a table, by name.
fn columns(table: &Value) -> impl Iterator<Item = (&String, &Vec<Value>)> {
    let columns = table.as_object().expect("a table");
    columns.iter().filter_map(|(name, column)| Some((name, column.as_array()?)))
}

/// Checks that each column has the length of its table, and that each index is in range.
fn assert_indices(profile: &Value) {
    let shared = &profile["shared"];
    let length = |table: &str| number(&shared[table], "length");
    let strings = list(shared, "stringArray").len() as i128;
    let within = |table: &Value, column: &str, end: i128| {
        for index in list(table, column).iter().filter(|index| !index.is_null()) {
            let index = index.as_i64().expect("an index");
            assert!((-1..end).contains(&index.into()), "{column} {index} of {end}");
        }
    };
    for table in ["stackTable", "frameTable", "funcTable", "resourceTable", "sources"] {
        for (name, column) in columns(&shared[table]) {
            assert_eq!(column.len() as i128, length(table), "{table}.{name}");
        }
    }
    within(&shared["stackTable"], "frame", length("frameTable"));
    within(&shared["frameTable"], "func", length("funcTable"));
    within(&shared["frameTable"], "category", 2);
    within(&shared["funcTable"], "resource", length("resourceTable"));
    within(&shared["funcTable"], "source", length("sources"));
    within(&shared["resourceTable"], "lib", list(profile, "libs").len() as i128);
    for (table, column) in
        [("funcTable", "name"), ("resourceTable", "name"), ("sources", "filename")]
    {
        within(&shared[table], column, strings);
    }
    let prefixes = list(&shared["stackTable"], "prefix").iter().enumerate();
    for (stack, prefix) in prefixes.filter(|(_, prefix)| !prefix.is_null()) {
        assert!(prefix.as_u64().is_some_and(|prefix| prefix < stack as u64), "{prefix} of {stack}");
    }
    for thread in list(profile, "threads") {
        for table in ["samples", "nativeAllocations", "markers"] {
            for (name, column) in columns(&thread[table]) {
                assert_eq!(column.len() as i128, number(&thread[table], "length"), "{name}");
            }
        }
        within(&thread["samples"], "stack", length("stackTable"));
        within(&thread["nativeAllocations"], "stack", length("stackTable"));
        within(&thread["markers"], "name", strings);
    }
}

/// Returns the stacks that heaptrack reads from a file, and the value of each.
fn heaptrack(of: &Recorded, file: &Path, cost: &str) -> Vec<(String, i128)> {
    let stacks = of.place.join("stacks.txt");
    let to = stacks.to_str().expect("a path");
    let all = "--disable-builtin-suppressions"; // else leaks are missing
    tool(of, &["heaptrack_print", all, "-F", to, "--flamegraph-cost-type", cost], file);
    let text = read(&stacks);
    let lines = text.lines().map(|line| line.rsplit_once(' ').expect("a stack and its value"));
    lines.map(|(stack, value)| (stack.to_owned(), value.parse().expect("a number"))).collect()
}

const OF_HEAPTRACK: [(&str, &str); 4] = [
    ("allocations", "allocations"),
    ("temporary", "temporary"),
    ("peak", "at_peak_bytes"),
    ("leaked", "live_bytes"),
];

#[test]
fn heaptrack_has_the_known_numbers() {
    for (options, name) in
        [(&[][..], "foreign-heaptrack"), (&["--mode", "trace"], "foreign-heaptrack-events")]
    {
        let of = Recorded::guest("exported.c", name, options);
        let report = report(&of.recording, &of.place);
        let totals = &list(&report, "processes")[0]["totals"];
        for file in ["a.heaptrack", "a.gz"] {
            let file = of.to_file("--format heaptrack", file);
            // heaptrack has no temporary block if another one is freed before it.
            let is_same = |cost: &str| options.is_empty() || cost != "temporary";
            for (cost, measure) in OF_HEAPTRACK.into_iter().filter(|(cost, _)| is_same(cost)) {
                let stacks = heaptrack(&of, &file, cost);
                let sum: i128 = stacks.iter().map(|(_, value)| value).sum();
                assert_eq!(sum, number(totals, measure), "{options:?} {file:?} {cost}");
                let inclusive = |function: &str| -> i128 {
                    let has_it = |stack: &str| {
                        stack.split(';').any(|frame| frame.split(' ').next() == Some(function))
                    };
                    stacks.iter().filter(|s| has_it(&s.0)).map(|(_, value)| value).sum()
                };
                for function in ["even", "odd", "down", "main"] {
                    let selector = format!("function:{function}");
                    assert_eq!(inclusive(function), evaluate(&report, &selector, measure));
                }
            }
        }
    }
    let of = Recorded::guest("exported.c", "foreign-heaptrack-refused", &[]);
    let Outcome { status, stderr, .. } = of.export("--format heaptrack -o a.zst");
    assert_eq!((status, stderr.lines().count()), (2, 1), "{stderr}");
}

/// Bytes and blocks of a stack, and its functions.
type Row = (i128, i128, Vec<String>);

/// Returns what memray reads from a file: rows at the peak and at the end. `None` if it is not
/// installed.
fn memray(of: &Recorded, file: &Path) -> Option<[Vec<Row>; 2]> {
    const SCRIPT: &str = "import json, memray, sys\n\
        of = memray.FileReader(sys.argv[1])\n\
        peak = of.get_high_watermark_allocation_records(merge_threads=False)\n\
        end = of.get_leaked_allocation_records(merge_threads=False)\n\
        row = lambda r: [r.size, r.n_allocations, [f[0] for f in r.stack_trace()]]\n\
        print(json.dumps([[row(r) for r in rows] for rows in (peak, end)]))\n";
    let python = reader("python").join("bin/python");
    if !python.exists() {
        skip("python-readers");
        return None;
    }
    let python = python.to_str().expect("a path");
    let text = tool(of, &[python, "-c", SCRIPT], file);
    Some(serde_json::from_str(&text).expect("rows"))
}

#[test]
fn memray_has_the_known_numbers() {
    let of = Recorded::guest("exported.c", "foreign-memray", &[]);
    let report = report(&of.recording, &of.place);
    let file = of.to_file("--format memray", "a.bin");
    let Some(found) = memray(&of, &file) else { return };
    let measures = [("at_peak_bytes", "at_peak_blocks"), ("live_bytes", "live_blocks")].into_iter();
    for (rows, (bytes, blocks)) in found.into_iter().zip(measures) {
        for function in ["even", "odd", "down", "main", "burst"] {
            let of_it = rows.iter().filter(|row| row.2.iter().any(|name| name == function));
            let sums = of_it.fold((0, 0), |sums, row| (sums.0 + row.0, sums.1 + row.1));
            let selector = format!("function:{function}");
            let known = [bytes, blocks].map(|measure| evaluate(&report, &selector, measure));
            assert_eq!((sums.0, sums.1), (known[0], known[1]), "{function} {bytes}");
        }
    }
    let program = reader("python").join("bin/memray");
    let program = program.to_str().expect("a path");
    assert!(tool(&of, &[program, "summary"], &file).contains("main at"));
    tool(&of, &[program, "flamegraph", "--output", "flames.html"], &file);
    assert!(read(&of.place.join("flames.html")).contains("burst"));
}

/// Checks every format of a recording against the sums in its report.
fn assert_totals(of: &Recorded) {
    let report = report(&of.recording, &of.place);
    let processes = list(&report, "processes").iter();
    let process =
        processes.max_by_key(|p| number(&p["totals"], "usable_bytes")).expect("a process");
    let totals = &process["totals"];
    let export = |format: &str, file: &str| {
        let path = of.place.join(file);
        let pid = number(process, "pid");
        let words = format!("--format {format} --process {pid} --metric usable_bytes");
        assert_eq!(of.export(&format!("{words} -o {}", path.display())).status, 0, "{words}");
        path
    };
    let raw = tool(of, &["go", "tool", "pprof", "-raw"], &export("pprof", "a.pb.gz"));
    let ours: Vec<i128> = COLUMNS.iter().map(|column| number(totals, column.1)).collect();
    assert_eq!(sums(&raw), ours);
    let annotate = ["callgrind_annotate", "--inclusive=yes", "--auto=no"];
    let costs = tool(of, &annotate, &export("callgrind", "callgrind.out.1"));
    for line in ["PROGRAM TOTALS", ":[all] ["] {
        let line = costs.lines().find(|text| text.contains(line)).expect("a line of totals");
        let first = line.split_whitespace().next().expect("a figure");
        assert_eq!(figure(first), number(totals, "usable_bytes"));
    }
    let snapshots = tool(of, &["ms_print"], &export("massif", "massif.out.1"));
    // If threads race, the sum over sites at peak can exceed the peak.
    let peak = number(totals, "peak_bytes").max(number(totals, "at_peak_bytes")).to_string();
    assert!(snapshots.replace(',', "").contains(&format!(" {peak} ")), "no {peak}: {snapshots}");
    let file = export("heaptrack", "a.heaptrack");
    for (cost, measure) in OF_HEAPTRACK {
        let sum: i128 = heaptrack(of, &file, cost).iter().map(|(_, value)| value).sum();
        assert_eq!(sum, number(totals, measure), "{cost}");
    }
    let file = export("memray", "a.bin");
    for (rows, measure) in
        memray(of, &file).into_iter().flatten().zip(["at_peak_bytes", "live_bytes"])
    {
        let sum: i128 = rows.iter().map(|row| row.0).sum();
        assert_eq!(sum, number(totals, measure), "{measure}");
    }
    let file = export("firefox", "a.json");
    assert_indices(&serde_json::from_str(&read(&file)).expect("JSON"));
    let Some(profiler) = Profiler::open(of, &file) else { return };
    let lanes = list(process, "lanes").iter().enumerate();
    for (thread, lane) in lanes.filter(|(_, lane)| number(lane, "live_bytes") > 0) {
        let retained = profiler.total(thread, "native-retained-allocations");
        assert_eq!(retained, number(lane, "live_bytes"));
    }
    let trace: Value = serde_json::from_str(&read(&export("chrome", "trace.json"))).expect("JSON");
    let events = list(&trace, "traceEvents").iter();
    let live = events.filter(|event| event["name"] == "live" && event["ph"] == "C");
    let live = live.map(|event| number_of(&event["args"]["bytes"])).max();
    assert_eq!(live, Some(number(totals, "peak_bytes")));
}

#[test]
fn totals_of_a_compiler() {
    let place = scratch("foreign-compiler");
    let source = place.join("a.cpp");
    fs::write(&source, "#include <map>\n#include <string>\nstd::map<std::string, int> all;\n")
        .expect("a source");
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    command.args(["g++", "-O1", "-c", "-o"]).arg(place.join("a.o")).arg(&source);
    let outcome = run(&mut command, &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    assert_totals(&Recorded { place, recording });
}

#[test]
fn totals_of_python() {
    let place = scratch("foreign-python");
    let recording = place.join("a.heaptide");
    let script = "import json, threading\n\
                  def work(n): print(len(json.dumps({str(i): [i] * 3 for i in range(n)})))\n\
                  threads = [threading.Thread(target=work, args=(n,)) for n in (999, 9999)]\n\
                  [t.start() for t in threads]; [t.join() for t in threads]";
    let mut command = recorded(&recording, &[]);
    command.arg(python().expect("python3")).args(["-c", script]).env("PYTHONMALLOC", "malloc");
    let outcome = run(&mut command, &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    assert_totals(&Recorded { place, recording });
}
