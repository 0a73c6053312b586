//! Recorded stacks compared with those that the C++ runtime's unwinder finds at the same time.

use crate::harness::{Guest, check_with, clean, heaptide, library, recorded, report, run, scratch};
use crate::recording::{frames, function, list, module, number, sites};
use heaptide_fixtures::skips::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns the frames of a stack that have separate return addresses.
fn physical<'a>(process: &'a Value, site: &Value) -> Vec<&'a Value> {
    frames(process, site).into_iter().filter(|frame| frame["inlined"] == false).collect()
}

/// lld maps small code from the beginning of its file, like the headers.
#[test]
fn small_programs_that_lld_links() {
    for kind in ["-no-pie", "-pie"] {
        check_with("leaks.c", &format!("leaks-lld{kind}"), &["-fuse-ld=lld", kind], &[]);
    }
}

#[test]
fn every_frame_agrees_with_the_runtime() {
    let program = Guest::read("backtrace.cpp").build("backtrace.cpp", &["-pthread"]);
    let name = program.file_name().expect("a name").to_str().expect("UTF-8").to_owned();
    let place = scratch("backtrace");
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(&program), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stdout);
    assert_agrees(&report(&recording, &place), &outcome.stdout, &name, 140);
}

/// Compares the report of `backtrace.cpp`, a file with this name, with the stacks in its output.
pub fn assert_agrees(report: &Value, output: &str, name: &str, at_least: usize) {
    let mut by_recorder = Counts::new();
    for (process, site) in sites(report) {
        let stack = physical(process, site);
        if let Some((_, callers)) = stack.split_last().filter(|(last, _)| function(last) == "probe")
        {
            let text = |f: &&Value| format!("{}+{:x}", module(f), number(f, "offset") + 1);
            let path: Vec<String> = callers.iter().map(text).collect();
            *by_recorder.entry(path.join(" ")).or_default() += number(site, "allocations");
        }
    }
    let mut by_runtime = Counts::new();
    for line in output.lines().filter_map(|line| line.strip_prefix("known-stack ")) {
        let path = line.replace(" -+", &format!(" {name}+"));
        let path = path.replacen("-+", &format!("{name}+"), usize::from(path.starts_with("-+")));
        *by_runtime.entry(path).or_default() += 1;
    }
    for (path, count) in &by_runtime {
        assert_eq!(by_recorder.get(path), Some(count), "the stack {path}");
    }
    assert_eq!(by_runtime.len(), by_recorder.len(), "stacks that the runtime does not have");
    assert!(by_runtime.len() >= at_least, "only {} stacks compared", by_runtime.len());
}

/// The number of occurrences of each stack, by its addresses.
type Counts = BTreeMap<String, i128>;

/// Reads the stacks that `agree.so` found in the process.
fn found_by_runtime(path: &Path) -> Counts {
    let mut counts = Counts::new();
    for line in fs::read_to_string(path).expect("the stacks of agree.so").lines() {
        let (count, stack) = line.split_once(' ').expect("a count and a stack");
        *counts.entry(stack.to_owned()).or_default() += count.parse::<i128>().expect("a count");
    }
    counts
}

/// Returns the recorded stacks that contain `agree.so`, without the frames of the two libraries.
fn found_by_recorder(process: &Value) -> Counts {
    let mut counts = Counts::new();
    for site in list(process, "sites") {
        let stack = physical(process, site);
        let own = |frame: &&Value| module(frame).starts_with("agree.so");
        if !stack.iter().any(own) {
            continue;
        }
        let callers = stack.iter().take_while(|frame| !own(frame));
        let path: String = callers.map(|f| format!("{:x};", number(f, "offset"))).collect();
        let calls = number(site, "allocations") + number(site, "failed");
        *counts.entry(path).or_default() += calls;
    }
    counts.retain(|_, count| *count > 0);
    counts
}

/// Records a command with both unwinders, and returns the share of allocations for which their
/// stacks agree.
fn agreement(name: &str, command: &[&str]) -> f64 {
    let place = scratch(name);
    let agree = Guest::read("agree.c").build_plugins().join("agree.so");
    let recording = place.join("a.heaptide");
    let preload = format!("{}:{}", agree.display(), library().display());
    let mut guest = clean(Command::new(command[0]));
    guest.args(&command[1..]).current_dir(&place).env("LD_PRELOAD", preload);
    guest.env("HEAPTIDE_OUTPUT", &recording).env("AGREE", place.join("stacks"));
    let outcome = run(guest.env("PYTHONMALLOC", "malloc"), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    // The runtime does not know Python frames.
    let mut command = heaptide();
    command.args(["report", "--format", "json", "--python", "native"]).arg(&recording);
    let output = command.output().expect("heaptide runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let process = &list(&report, "processes")[0];
    let by_runtime = found_by_runtime(&place.join(format!("stacks.{}", process["pid"])));
    let by_recorder = found_by_recorder(process);
    let total: i128 = by_runtime.values().sum();
    let agreed: i128 = by_runtime
        .iter()
        .map(|(stack, count)| *count.min(by_recorder.get(stack).unwrap_or(&0)))
        .sum();
    for (stack, count) in by_runtime.iter().filter(|(s, _)| !by_recorder.contains_key(*s)).take(5) {
        eprintln!("{name}: {count} times only by the runtime: {stack}");
    }
    for (stack, count) in by_recorder.iter().filter(|(s, _)| !by_runtime.contains_key(*s)).take(5) {
        eprintln!("{name}: {count} times only by the recorder: {stack}");
    }
    assert!(total > 1000, "{name}: only {total} allocations");
    let share = agreed as f64 / total as f64;
    eprintln!("{name}: {agreed} of {total} allocations on {} stacks agree", by_runtime.len());
    share
}

/// The minimum agreement: the runtime unwinds to the process entry, where tables differ between C
/// libraries.
const SHARE: f64 = 0.999;

#[test]
fn python_agrees_with_the_runtime() {
    let Some(python) = crate::programs::python() else {
        return skip("python3");
    };
    let script =
        "import json; d = {str(i): [i] * 3 for i in range(2000)}; json.loads(json.dumps(d))";
    let share = agreement("agree-python", &[&python, "-S", "-c", script]);
    assert!(share >= SHARE, "share of agreement {share}");
}

#[test]
fn sqlite_agrees_with_the_runtime() {
    if !crate::programs::is_installed("sqlite3") {
        return skip("sqlite3");
    }
    let sql = "create table t(a,b); with recursive n(i) as (select 1 union all select i+1 from n \
               where i<3000) insert into t select i, hex(i) from n; create index x on t(b); \
               select count(*), sum(length(b)) from t group by a%7 order by 1;";
    let share = agreement("agree-sqlite", &["sqlite3", ":memory:", sql]);
    assert!(share >= SHARE, "share of agreement {share}");
}

/// Builds a program with these options, and returns the allocations of each of its stacks, by
/// functions and lines.
fn stacks_with(program: &str, name: &str, options: &[&str]) -> BTreeMap<Vec<String>, i128> {
    let built = Guest::read(program).build(name, options);
    let place = scratch(name);
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(&built), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let report = report(&recording, &place);
    assert_eq!(list(&list(&report, "processes")[0], "losses").len(), 0, "{name}");
    let mut stacks = BTreeMap::new();
    for (process, site) in sites(&report) {
        let stack = frames(process, site);
        let text = |frame: &&Value| format!("{} {}", function(frame), frame["line"]);
        let own = stack.iter().skip_while(|frame| function(frame) != "main");
        *stacks.entry(own.map(text).collect()).or_default() += number(site, "allocations");
    }
    stacks
}

/// `.debug_frame`, which no loader maps, and `.eh_frame` without a search table.
#[test]
fn unwind_tables_that_only_the_file_has() {
    let usual = stacks_with("frames.c", "frames-usual", &[]);
    assert!(usual.keys().any(|stack| stack.len() > 4), "{usual:?}");
    let without_tables = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    for (name, options) in [
        ("frames-debug-frame", &without_tables[..]),
        ("frames-no-header", &["-Wl,--no-eh-frame-hdr"]),
        ("frames-neither", &[without_tables[0], without_tables[1], "-Wl,--no-eh-frame-hdr"]),
        ("frames-fixed", &[without_tables[0], without_tables[1], "-no-pie"]),
    ] {
        assert_eq!(stacks_with("frames.c", name, options), usual, "{name}");
    }
}
