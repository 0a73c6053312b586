//! `heaptide run` from the user's view: streams, signals, status, summary, names; and reports of
//! running programs.

use crate::harness::{Guest, Looping, heaptide, profiles, recorded, report, run, scratch, until};
use crate::recording::{list, number};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn streams_pass_through() {
    let place = scratch("streams");
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    command.args(["sh", "-c", "cat; echo complaint >&2; exit 23"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("heaptide");
    let text = "line\n".repeat(10_000);
    child.stdin.take().expect("stdin").write_all(text.as_bytes()).expect("write to the guest");
    let output = child.wait_with_output().expect("wait for heaptide");
    assert_eq!(output.status.code(), Some(23));
    assert_eq!(String::from_utf8_lossy(&output.stdout), text);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "complaint\n");
}

#[test]
fn signals_reach_the_program() {
    let place = scratch("signals");
    let script = "trap 'echo trapped; exit 7' TERM; echo > ready; while :; do sleep 0.01; done";
    let out = place.join("out");
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    command.args(["sh", "-c", script]).current_dir(&place).stdin(Stdio::null());
    let mut child = command.stdout(File::create(&out).expect("a file")).spawn().expect("heaptide");
    until("the trap", || place.join("ready").exists());
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(sent.expect("kill").success());
    assert_eq!(child.wait().expect("wait for heaptide").code(), Some(7));
    assert_eq!(fs::read_to_string(out).expect("the output"), "trapped\n");
    let report = report(&place.join("a.heaptide"), &place);
    assert_eq!(number(&list(&report, "processes")[0]["end"], "code"), 7);
}

#[test]
fn death_by_signal_is_told_as_a_shell_does() {
    let place = scratch("death-by-signal");
    // Background jobs ignore SIGINT and SIGQUIT, and the tests may be one.
    for (signal, status) in [("KILL", 137), ("TERM", 143), ("USR1", 138)] {
        let recording = place.join(format!("{signal}.heaptide"));
        let mut command = recorded(&recording, &[]);
        let outcome = run(command.args(["sh", "-c", &format!("kill -{signal} $$")]), &place);
        assert_eq!(outcome.status, status, "{signal}");
        let end = &list(&report(&recording, &place), "processes")[0]["end"].clone();
        assert_eq!(
            (&end["kind"], number(end, "code")),
            (&Value::from("signaled"), status as i128 - 128)
        );
    }
}

#[test]
fn summary_of_seven_lines() {
    let place = scratch("summary");
    let program = Guest::read("leaks.c").build("leaks.c", &[]);
    let mut command = heaptide();
    let outcome = run(command.arg("run").arg("--").arg(&program).current_dir(&place), &place);
    assert_eq!(outcome.status, 0);
    assert_eq!(outcome.stderr.lines().count(), 7, "{}", outcome.stderr);
    assert!(
        outcome.stderr.lines().all(|line| line.starts_with("heaptide: ")),
        "{}",
        outcome.stderr
    );
    let sentence = "heaptide: `grows` (leaks.c:18) holds 9.77 KiB, 63.7% of peak usage (15.3 KiB ";
    assert!(outcome.stderr.starts_with(sentence), "{}", outcome.stderr);
    let made: Vec<String> = fs::read_dir(&place)
        .expect("the directory")
        .flatten()
        .map(|entry| entry.file_name().into_string().expect("UTF-8"))
        .filter(|name| name.ends_with(".heaptide"))
        .collect();
    assert_eq!(made.len(), 1, "{made:?}");
    assert!(made[0].starts_with("heaptide-leaks-c-"), "{made:?}");
    let outcome = run(heaptide().arg("report").current_dir(&place), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(said.contains(&made[0]), "report does not say which recording it took: {said}");
}

/// What users of heaptrack, memray, valgrind and perf type first.
#[test]
fn habits_of_other_tools_work() {
    let place = scratch("habits");
    let program = Guest::read("deep.c").build("habits", &[]);
    let ask = |words: &[&str]| run(heaptide().args(words).current_dir(&place), &place);
    let path = program.to_str().expect("UTF-8");
    for words in [&[path][..], &["record", path], &["profile", "-o", "c.heaptide", path]] {
        let outcome = ask(words);
        assert_eq!(outcome.status, 0, "{words:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("heaptide:   peak "), "{}", outcome.stderr);
    }
    let report = ask(&["report", "c.heaptide", "--by", "function", "--sort", "peak"]);
    assert_eq!((report.status, &*report.stderr), (0, ""));
    let other = ask(&["summary", "c.heaptide", "--by", "function", "--metric", "at_peak_bytes"]);
    assert_eq!(other.stdout, report.stdout);
    for words in [
        &["report", "c.heaptide", "--format", "html"][..],
        &["report", "c.heaptide", "--format=html"],
        &["export", "c.heaptide", "--format", "html"],
    ] {
        let page = ask(words);
        assert_eq!((page.status, &*page.stderr), (0, ""), "{words:?}");
        assert!(page.stdout.starts_with("<!DOCTYPE html>"), "{words:?}");
    }
    let formats = ask(&["export", "c.heaptide"]);
    assert_eq!((formats.status, &*formats.stdout), (2, ""));
    let first = "heaptide: `heaptide export` requires --format with one of\n  folded ";
    assert!(formats.stderr.starts_with(first), "{}", formats.stderr);
    let recording = ask(&["c.heaptide"]);
    let expected = "heaptide: unknown command `c.heaptide`; use `heaptide report c.heaptide`\n";
    assert_eq!((recording.status, &*recording.stderr), (2, expected));
}

#[test]
fn running_program_is_read() {
    let place = scratch("running");
    let recording = place.join("a.heaptide");
    let program = Looping::start(&recording, &place);
    let seen: Vec<Value> = (0..3).map(|_| read_live(&recording, &place)).collect();
    drop(program);
    let allocations: Vec<i128> = seen
        .iter()
        .map(|report| {
            let process = &list(report, "processes")[0];
            assert_eq!(process["end"]["kind"], "running", "{}", process["end"]);
            number(&process["totals"], "allocations")
        })
        .collect();
    assert!(allocations[0] > 0 && allocations.is_sorted(), "{allocations:?}");
    assert!(allocations[0] < allocations[2], "the report stands still: {allocations:?}");
    report(&recording, &place);
}

#[test]
fn process_ids_stand_for_recordings_that_are_written() {
    let place = scratch("running-ids");
    let recording = place.join("a.heaptide");
    let program = Looping::start(&recording, &place);
    let id = program.id().to_string();
    let merged = place.join("merged.heaptide");
    let outcome = run(heaptide().args(["merge", &id, "-o"]).arg(&merged), &place);
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let outcome = run(heaptide().args(["seal", &id]), &place);
    let expected = format!("{id}: this process still writes to {}; seal it", recording.display());
    assert!(outcome.status == 2 && outcome.stderr.contains(&expected), "{outcome:?}");
    drop(program);
    let outcome = run(heaptide().args(["merge", &id, "-o"]).arg(place.join("b")), &place);
    let expected = format!("heaptide: {id}: no such process, and no recording of this name");
    assert!(outcome.status == 2 && outcome.stderr.starts_with(&expected), "{outcome:?}");
    let report = report(&merged, &place);
    assert_eq!(list(&report, "processes")[0]["pid"].to_string(), id);
}

/// Returns the report of a running program. Its parts are from slightly different times.
fn read_live(recording: &Path, place: &Path) -> Value {
    let mut command = heaptide();
    let outcome = run(command.args(["report", "--format", "json"]).arg(recording), place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    serde_json::from_str(&outcome.stdout).expect("JSON")
}

#[test]
fn one_profile_is_a_recording() {
    let place = scratch("one-profile");
    let program = Guest::read("fork.c").build("fork.c", &[]);
    let recording = place.join("a.heaptide");
    assert_eq!(run(recorded(&recording, &[]).arg(&program), &place).status, 0);
    let found = profiles(&recording);
    assert_eq!(found.len(), 3);
    for profile in found {
        let report = report(&profile, &place);
        assert_eq!(list(&report, "processes").len(), 1);
    }
}
