//! Every command and every format with recordings of a compiler and an interpreter: sealed, not
//! sealed, killed, and while the program runs.

use crate::harness::{heaptide, preloaded, profiles, recorded, run, scratch, until};
use crate::known_totals::Known;
use crate::programs::python;
use crate::questions::{OF_EVENTS, QUERIES, QUESTIONS, complaints, formats};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn words<'a>(line: &'a str, recording: &'a Path) -> impl Iterator<Item = &'a std::ffi::OsStr> {
    let words = line.split_whitespace().map(std::ffi::OsStr::new);
    words.chain(std::iter::once(recording.as_os_str()))
}

/// Runs all commands and queries on a recording with every event.
fn ask_everything_of_events(recording: &Path, place: &Path) {
    ask_everything(recording, place);
    ask(OF_EVENTS, recording, place);
}

fn ask(queries: &[&str], recording: &Path, place: &Path) {
    let known = Known::of(recording, place);
    for query in queries {
        let outcome = run(heaptide().args(["query", query]).arg(recording), place);
        assert_eq!((outcome.status, complaints(&outcome.stderr)), (0, vec![]), "{query}");
        assert!(outcome.stdout.len() > 40, "{query}: {}", outcome.stdout);
        known.check_query(query, &outcome.stdout);
    }
}

/// Runs all commands on a recording, and exports it in every format.
fn ask_everything(recording: &Path, place: &Path) {
    ask_questions(recording, place);
    ask(QUERIES, recording, place);
    let known = Known::of(recording, place);
    export(recording, place, "--kind heap", |format, file| known.check_export(format, file));
}

fn ask_questions(recording: &Path, place: &Path) {
    let known = Known::of(recording, place);
    for (line, statuses) in QUESTIONS {
        let outcome = run(heaptide().args(words(line, recording)), place);
        assert!(statuses.contains(&outcome.status), "{line}: {outcome:?}");
        assert_eq!(complaints(&outcome.stderr), [""; 0], "{line}");
        assert!(outcome.stdout.len() > 40, "{line} says little: {}", outcome.stdout);
        known.check_answer(line, &outcome.stdout);
    }
}

/// Exports in every format with these options, and checks the files.
fn export(recording: &Path, place: &Path, options: &str, check: impl Fn(&str, &[u8])) {
    let formats = formats();
    assert!(formats.len() >= 12, "{formats:?}");
    for format in formats {
        let file = place.join(format!("exported.{format}"));
        let line = format!("export --force --format {format} -o {} {options}", file.display());
        let outcome = run(heaptide().args(words(&line, recording)), place);
        assert_eq!((outcome.status, complaints(&outcome.stderr)), (0, vec![]), "{line}");
        let exported = fs::read(&file).expect("the file");
        assert!(exported.len() > 100, "{line}: {} bytes", exported.len());
        check(&format, &exported);
        // Some have hundreds of megabytes.
        fs::remove_file(&file).expect("the file");
    }
}

/// Records the compiler: the driver, cc1plus, the assembler and the linker.
fn compiler(place: &Path, options: &[&str]) -> PathBuf {
    let source = place.join("a.cpp");
    let program = "#include <map>\n#include <string>\n#include <vector>\n\
                   int main() { std::map<std::string, std::vector<int>> m; return m[\"a\"].size(); }\n";
    fs::write(&source, program).expect("a source");
    let recording = place.join("compiler.heaptide");
    let mut command = recorded(&recording, options);
    command.args(["g++", "-O1", "-o"]).arg(place.join("a.out")).arg(&source);
    assert_eq!(run(&mut command, place).status, 0);
    assert!(profiles(&recording).len() >= 4);
    recording
}

const SCRIPT: &str = "\
import json, re, sys
kept = json.loads(json.dumps([{'n': i, 's': str(i) * 3} for i in range(3000)]))
found = len(re.findall('[0-9]+', str(kept)))
print('ready', flush=True)
sys.stdin.read()
";

fn interpreter(command: &mut Command) -> &mut Command {
    let python = python().expect("python3, which `cargo xtask needs` lists");
    command.arg(python).args(["-c", SCRIPT]).env("PYTHONMALLOC", "malloc")
}

#[test]
fn of_a_compiler() {
    let place = scratch("everything-compiler");
    let recording = compiler(&place, &[]);
    ask_everything(&recording, &place);
    for options in ["--process all --rules std", "--metric live_bytes --depth 12"] {
        export(&recording, &place, options, |_, _| {});
    }
}

#[test]
fn of_events_of_a_compiler() {
    let place = scratch("everything-compiler-traced");
    ask_everything_of_events(&compiler(&place, &["--mode", "trace", "--free-stacks"]), &place);
}

#[test]
fn of_an_interpreter() {
    let place = scratch("everything-interpreter");
    let recording = place.join("python.heaptide");
    let outcome = run(interpreter(&mut recorded(&recording, &["--by-size"])), &place);
    assert_eq!((outcome.status, &*outcome.stdout), (0, "ready\n"));
    ask_everything(&recording, &place);
}

#[test]
fn of_a_program_that_runs_and_is_killed() {
    running_and_killed("stacks", ask_everything, ask_questions);
}

#[test]
fn of_events_of_a_program_that_runs_and_is_killed() {
    let ask_of_events = |recording: &Path, place: &Path| ask(OF_EVENTS, recording, place);
    running_and_killed("trace", ask_everything_of_events, ask_of_events);
}

fn running_and_killed(mode: &str, while_it_runs: fn(&Path, &Path), killed: fn(&Path, &Path)) {
    let place = scratch(&format!("everything-live-{mode}"));
    let recording = place.join("live.heaptide");
    let said = fs::File::create(place.join("said")).expect("a file");
    let mut command = preloaded("env", &recording);
    command.env("HEAPTIDE_MODE", mode);
    let mut child = interpreter(&mut command)
        .stdin(Stdio::piped())
        .stdout(said)
        .spawn()
        .expect("a program that runs");
    let mut input = child.stdin.take().expect("its input");
    until("the work", || fs::read_to_string(place.join("said")).is_ok_and(|s| s == "ready\n"));
    while_it_runs(&recording, &place);
    child.kill().expect("a program that still runs");
    child.wait().expect("its end");
    let _ = input.write_all(b"late"); // the program may not read it
    killed(&recording, &place);
}

#[test]
fn differences_and_joined_recordings() {
    let place = scratch("everything-two");
    let (first, second) = (compiler(&place, &[]), place.join("python.heaptide"));
    assert_eq!(run(interpreter(&mut recorded(&second, &[])), &place).status, 0);
    for line in [
        "diff",
        "diff --by stack --format json --metric allocations",
        "diff --by scope --process all",
        "diff --format svg --metric usable_bytes",
        "diff --rules std,cpython --depth 10",
    ] {
        let mut command = heaptide();
        let outcome = run(command.args(words(line, &first)).arg(&second), &place);
        assert_eq!((outcome.status, complaints(&outcome.stderr)), (0, vec![]), "{line}");
        assert!(outcome.stdout.len() > 40, "{line}: {}", outcome.stdout);
        let same = run(heaptide().args(words(line, &first)).arg(&first), &place);
        assert_eq!(same.status, 0, "{line}: {same:?}");
    }
    let merged = place.join("merged.heaptide");
    let mut command = heaptide();
    command.arg("merge").args([&first, &second]).arg("-o").arg(&merged);
    assert_eq!(run(&mut command, &place).status, 0);
    assert_eq!(profiles(&merged).len(), profiles(&first).len() + profiles(&second).len());
    ask_everything(&merged, &place);
}
