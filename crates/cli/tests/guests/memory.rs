//! Accounts of resident memory: programs whose memory is of one kind, in an amount that is known.

use crate::harness::{Guest, heaptide, recorded, run, scratch};
use crate::recording::{list, number};
use serde_json::Value;
use std::path::Path;

const MIB: i128 = 1 << 20;

/// An account closes within this many bytes, or a twentieth of the resident memory.
const SLACK: i128 = 2 * MIB;

/// Runs `resident.c` with an argument and returns the processes of `heaptide memory`, the program's
/// first. The account of that is of the resident memory that the program printed.
fn processes(kind: &str, options: &[&str]) -> Vec<Value> {
    let place = scratch(&format!("memory-{kind}-{}", options.len()));
    let program = Guest::read("resident.c").build("resident.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, options);
    command.arg(program).arg(kind).arg(place.join("mapped"));
    let outcome = run(&mut command, &place);
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{kind}");
    let printed: Vec<i128> =
        outcome.stdout.lines().map(|line| line.parse().expect("a number")).collect();
    let processes = memory(&recording, &place, "end");
    let found = number(&processes[0]["account"], "resident_bytes");
    let last = *printed.last().expect("one line at least");
    assert!((found - last).abs() < SLACK, "{kind}: {found} resident, {last} printed");
    processes
}

/// The processes in the JSON of `heaptide memory --at`, in order of their start.
fn memory(recording: &Path, place: &Path, at: &str) -> Vec<Value> {
    let mut command = heaptide();
    command.args(["memory", "--format", "json", "--at", at]).arg(recording);
    let outcome = run(&mut command, place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let document: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    list(&document, "processes").to_vec()
}

/// The account of a process, which closes.
fn closed(process: &Value) -> &Value {
    let account = &process["account"];
    let (resident, unexplained) =
        (number(account, "resident_bytes"), number(account, "unexplained_bytes"));
    assert!(unexplained <= SLACK.max(resident / 20), "{unexplained} of {resident} unexplained");
    let rows: i128 = list(account, "rows").iter().map(|row| number(row, "resident_bytes")).sum();
    assert_eq!(rows + unexplained, resident, "the rows add up");
    account
}

/// The row of this path of names.
fn row<'a>(account: &'a Value, path: &[&str]) -> &'a Value {
    let (first, rest) = path.split_first().expect("a name");
    let find = |rows: &'a Value, key, name: &str| {
        list(rows, key).iter().find(|row| row["name"] == name).unwrap_or(&Value::Null)
    };
    rest.iter().fold(find(account, "rows", first), |row, name| find(row, "children", name))
}

/// Resident bytes of a row are as many as this, and at most `more` more.
fn assert_resident(account: &Value, path: &[&str], least: i128, more: i128) {
    let row = row(account, path);
    assert!(!row.is_null(), "no row {path:?}: {account:#}");
    let found = number(row, "resident_bytes");
    assert!((least..=least + more).contains(&found), "{path:?}: {found}, expected {least}");
}

#[test]
fn a_heap_that_is_touched() {
    let processes = processes("touched", &[]);
    let account = closed(&processes[0]);
    let bytes = 32768 * 1001;
    assert_resident(account, &["heap", "live requested"], bytes - MIB / 4, MIB / 2);
    assert_resident(account, &["heap", "live slack"], 32768 * 15 - MIB / 16, MIB / 8);
}

#[test]
fn a_heap_of_which_most_is_free() {
    let processes = processes("fragmented", &[]);
    let account = closed(&processes[0]);
    assert_resident(account, &["heap", "free"], 31 * 1024 * 2000 - MIB, 3 * MIB);
    assert_resident(account, &["heap", "live requested"], 1024 * 2000 - MIB / 4, MIB / 2);
}

#[test]
fn a_large_block_that_is_not_touched() {
    let processes = processes("untouched", &[]);
    let account = closed(&processes[0]);
    assert_resident(account, &["heap"], 0, MIB);
    let size = number(row(account, &["heap", "live requested"]), "size_bytes");
    assert!((size - 256 * MIB).abs() < MIB, "{size}");
}

#[test]
fn stacks_of_threads() {
    let processes = processes("stacks", &[]);
    let account = closed(&processes[0]);
    assert_resident(account, &["stacks"], 32 * MIB, MIB);
    assert_resident(account, &["stacks", "other threads"], 16 * MIB, MIB / 2);
}

#[test]
fn a_mapped_file() {
    let processes = processes("file", &[]);
    let account = closed(&processes[0]);
    assert_resident(account, &["mappings", "files"], 16 * MIB, MIB / 2);
}

#[test]
fn a_large_bss() {
    let processes = processes("bss", &[]);
    let account = closed(&processes[0]);
    let program = list(row(account, &["modules"]), "children")[0].clone();
    assert!(program["name"].as_str().is_some_and(|name| name.ends_with("resident-c")), "{program}");
    let found = number(&program, "resident_bytes");
    assert!((24 * MIB..25 * MIB).contains(&found), "{found}");
}

#[test]
fn shared_memory() {
    let processes = processes("shared", &[]);
    let account = closed(&processes[0]);
    assert_resident(account, &["mappings", "shared memory"], 16 * MIB, MIB / 4);
}

/// The child has its parent's heap, and as much of its own; its account is one of its own.
#[test]
fn a_fork() {
    let processes = processes("fork", &[]);
    assert_resident(closed(&processes[0]), &["heap"], 8 * MIB, MIB);
    assert_resident(closed(&processes[1]), &["heap"], 16 * MIB, MIB);
}

/// Without stacks it is not known where blocks are; the account closes all the same.
#[test]
fn counters_alone() {
    let processes = processes("touched", &["--mode", "counters"]);
    let bytes = 32768 * 1001;
    assert_resident(closed(&processes[0]), &["heap", "live requested"], bytes - MIB / 4, MIB / 2);
}

#[test]
fn without_accounts_the_reason_is_given() {
    let place = scratch("memory-off");
    let program = Guest::read("resident.c").build("resident.c", &[]);
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &["--no-accounts"]).arg(program), &place);
    assert_eq!(outcome.status, 0);
    let outcome = run(heaptide().arg("memory").arg(&recording), &place);
    assert_eq!(outcome.status, 1);
    assert!(outcome.stderr.contains("--no-accounts"), "{}", outcome.stderr);
    let processes = memory(&recording, &place, "peak");
    assert!(processes[0]["account"].is_null() && processes[0]["missing"].is_string());
}
