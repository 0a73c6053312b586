//! Programs in Rust with the embedded recorder: static, linked with musl, or with their own
//! allocator. They are counted to the byte, not recorded unless requested, and never counted twice.
//!
//! The programs are in `tests/programs/embedded`: the recorder wraps the system's allocator, or one
//! that malloc is not involved in.

use crate::expectations::{assert_met, parse};
use crate::harness::{
    Outcome, cargo, clean, directory, heaptide, profiles, recorded, report, run, scratch,
};
use heaptide_fixtures::skips::skip;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const PACKAGE: &str = "heaptide-embedded-guest";
const GNU: &str = "x86_64-unknown-linux-gnu";
const MUSL: &str = "x86_64-unknown-linux-musl";

/// How to link a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linking {
    Dynamic,
    Static,
    Musl,
}

/// Returns a program with this linkage; none if the compiler lacks the target.
fn guest(linking: Linking, name: &str) -> Option<PathBuf> {
    static BUILT: [OnceLock<Option<PathBuf>>; 3] = [const { OnceLock::new() }; 3];
    let place = BUILT[linking as usize].get_or_init(|| build(linking));
    place.as_ref().map(|place| place.join(name))
}

/// Builds all programs and returns their directory.
fn build(linking: Linking) -> Option<PathBuf> {
    let target = directory("embedded").join(format!("{linking:?}"));
    let mut cargo = cargo(&target);
    cargo.args(["--package", PACKAGE]);
    let triple = match linking {
        Linking::Dynamic => None,
        Linking::Static => {
            cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
            Some(GNU)
        }
        Linking::Musl if has_musl() => Some(MUSL),
        Linking::Musl => {
            skip(MUSL);
            return None;
        }
    };
    if let Some(triple) = triple {
        cargo.args(["--target", triple]);
    }
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(target.join(triple.unwrap_or("")).join("debug"))
}

fn has_musl() -> bool {
    let mut rustc = Command::new("rustc");
    let output = rustc.args(["--print", "target-libdir", "--target", MUSL]).output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).exists())
}

/// The tested programs, with the options that prevent `heaptide run` from preloading the library
/// where that is needed.
const PROGRAMS: [(Linking, &str, &[&str]); 6] = [
    (Linking::Dynamic, "embedded-system", &["--no-preload"]),
    (Linking::Dynamic, "embedded-arena", &["--no-preload"]),
    (Linking::Static, "embedded-system", &[]),
    (Linking::Static, "embedded-arena", &[]),
    (Linking::Musl, "embedded-system", &[]),
    (Linking::Musl, "embedded-arena", &[]),
];

/// Runs all programs bare and recorded with `work`, and checks the reports.
fn each(work: &str, options: &[&str], known: &str) {
    for (linking, name, own) in PROGRAMS {
        let Some(program) = guest(linking, name) else {
            continue;
        };
        let place = scratch(&format!("embedded-{work}{}-{linking:?}-{name}", options.concat()));
        let bare = run(clean(Command::new(&program)).arg(work).current_dir(&place), &place);
        assert_eq!((bare.status, bare.stderr.as_str()), (0, ""), "{program:?} {work}");
        let recording = place.join("a.heaptide");
        let all: Vec<&str> = own.iter().chain(options).copied().collect();
        let outcome = run(recorded(&recording, &all).arg(&program).arg(work), &place);
        assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{program:?} {work}");
        let report = if options.contains(&"counters") { figures } else { report };
        assert_known(&report(&recording, &place), known);
    }
}

/// Returns the report of a recording without sites, for which the sums are not checked.
fn figures(recording: &Path, place: &Path) -> Value {
    let mut command = heaptide();
    let outcome = run(command.args(["report", "--format", "json"]).arg(recording), place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    serde_json::from_str(&outcome.stdout).expect("a report")
}

/// Checks a report against lines of known numbers.
fn assert_known(report: &Value, known: &str) {
    assert_met(report, &parse(known, ""));
    assert_met(report, &parse("recording lost_events=0", ""));
}

const WORK: &str = "\
function:guest::keep_ten allocations=10 requested_bytes=10000 usable_bytes=10000 live_blocks=10
function:guest::drop_five allocations=5 requested_bytes=15 frees=5 temporary=5 live_blocks=0
function:guest::cleared allocations=1 requested_bytes=200 frees=1
function:guest::grow allocations=3 reallocations=2 requested_bytes=11100 frees=3 live_blocks=0
function:guest::aligned allocations=1 requested_bytes=3 live_bytes=3
function:guest::fails allocations=0 failed=1
function:guest::crowd allocations=100 requested_bytes=100 frees=100 live_blocks=0
function:guest::main>guest::work>guest::keep_ten allocations=10
recording processes=1 lanes=1
totals failed=1 reallocations=2 cross_thread_frees=0";

#[test]
fn embedded_counts() {
    each("work", &[], WORK);
    each("work", &["--mode", "counters"], "totals failed=1 reallocations=2 largest_bytes=10000");
}

const TELL: &str = "\
scope:load allocations=8 requested_bytes=2268 frees=8 entered=1
scope:use allocations=0 frees_here=8 entered=1
label:table/heap allocations=1 requested_bytes=4000 usable_bytes=4000 live_bytes=4000
recording processes=1";

/// With a mean of one byte, every block of more than a few bytes is sampled.
#[test]
fn embedded_samples() {
    let large = |line: &&str| {
        ["keep_ten", "cleared", "fails", "totals"].iter().any(|name| line.contains(name))
    };
    let known: Vec<&str> = WORK.lines().filter(large).collect();
    assert_eq!(known.len(), 5);
    each("work", &["--mode", "sampled=1"], &known.join("\n"));
}

#[test]
fn embedded_interface() {
    each("tell", &[], TELL);
    each("tell", &["--mode", "scopes"], TELL);
    each("tell", &["--mode", "counters"], "recording processes=1");
}

#[test]
fn embedded_threads() {
    let worker = |n| {
        let requested = 50 * 64 + 2000 + n;
        format!("scope:pool>{n} allocations=51 requested_bytes={requested} frees=50 entered=1\n")
    };
    let known: String = (0..8).map(worker).collect();
    each("threads", &[], &format!("{known}function:guest::in_thread allocations=408 frees=400"));
    each("threads", &["--mode", "scopes"], &format!("{known}lane:worker-7 allocations>=51"));
}

#[test]
fn embedded_forks() {
    let known = "\
recording processes=2
function:guest::in_child allocations=3 requested_bytes=2331 frees=0 live_blocks=3
function:guest::forks>guest::block allocations=4 requested_bytes=7331";
    each("fork", &[], known);
}

/// Returns the output of a program about itself.
fn said(mut command: Command, place: &Path) -> Outcome {
    run(command.arg("tell").current_dir(place), place)
}

#[test]
fn embedded_leaves_alone() {
    for (linking, name, _) in PROGRAMS {
        let Some(program) = guest(linking, name) else {
            continue;
        };
        let place = scratch(&format!("embedded-alone-{linking:?}-{name}"));
        let work = place.join("here");
        std::fs::create_dir(&work).expect("a directory");
        for (variable, value) in [("HEAPTIDE_START", "on"), ("HEAPTIDE_MODE", "off")] {
            let mut command = clean(Command::new(&program));
            command.arg("tell").env(variable, value).current_dir(&work);
            let outcome = run(&mut command, &place);
            assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "not recorded\n"));
        }
        let left = std::fs::read_dir(&work).expect("the directory").count();
        assert_eq!(left, 0, "{program:?} left something in {work:?}");
    }
}

/// If the library is also in the process, it records alone, and a message reports it.
#[test]
fn embedded_and_preloaded() {
    let program = guest(Linking::Dynamic, "embedded-system").expect("always built");
    let place = scratch("embedded-and-preloaded");
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    command.arg(&program);
    let outcome = said(command, &place);
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "recorded\n"), "{}", outcome.stderr);
    assert_eq!(profiles(&recording).len(), 1);
    let report = report(&recording, &place);
    assert_known(
        &report,
        "scope:load allocations=8 requested_bytes=2268 frees=8\nlabel:table/heap live_blocks=1",
    );
}

#[test]
fn embedded_survives_a_kill() {
    let program = guest(Linking::Static, "embedded-system").expect("always built");
    let place = scratch("embedded-kill");
    let recording = place.join("a.heaptide");
    let mut command = clean(Command::new(&program));
    command.arg("wait").env("HEAPTIDE_OUTPUT", &recording);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
    let mut line = String::new();
    let output = child.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    child.kill().expect("kill the program");
    child.wait().expect("wait for the program");
    let known = "function:guest::keep_ten allocations=100 requested_bytes=100000 live_blocks=100";
    assert_known(&report(&recording, &place), known);
}

/// The program exports no symbol of the recorder to libraries.
#[test]
fn embedded_exports_nothing() {
    let program = guest(Linking::Dynamic, "embedded-system").expect("always built");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(&program).output();
    let Ok(output) = output else {
        return skip("nm");
    };
    let symbols = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = symbols
        .lines()
        .find(|line| ["heaptide", "malloc", "free"].iter().any(|name| line.contains(name)));
    assert_eq!(found, None);
    // Reports show functions of the program, not methods of the allocator.
    let place = scratch("embedded-top");
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &["--no-preload"]);
    assert_eq!(run(command.arg(&program).arg("work"), &place).status, 0);
    let mut command = heaptide();
    let outcome = run(command.arg("report").arg(&recording), &place);
    assert!(!outcome.stdout.contains("alloc<"), "{}", outcome.stdout);
}

#[test]
fn embedded_calls() {
    each("work", &["--by-call"], WORK);
    let program = guest(Linking::Dynamic, "embedded-system").expect("always built");
    let place = scratch("embedded-calls");
    let recording = place.join("a.heaptide");
    let options = ["--no-preload", "--by-call"];
    let outcome = run(recorded(&recording, &options).arg(program).arg("work"), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let query = "SELECT call,sum(allocations),sum(failed) \
                 WHERE stack=~\"guest::(keep_ten|cleared|grow|fails)\" \
                 GROUP BY call ORDER BY call FORMAT expand";
    let outcome = run(heaptide().args(["query", query]).arg(&recording), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let known = "call=calloc,sum#allocations=1,sum#failed=0\n\
                 call=malloc,sum#allocations=11,sum#failed=1\n\
                 call=realloc,sum#allocations=2,sum#failed=0\n";
    assert_eq!(outcome.stdout, known);
}
