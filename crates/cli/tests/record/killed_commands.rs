//! Commands that are killed after each of their changes of the file system: a recording is whole or
//! not there, and nothing is left behind.

use crate::harness::{heaptide, profiles, recorded, report, run, scratch, until};
use crate::recording::{list, number};
use crate::replacing::{merge, names, record, recordings, to_merge};
use crate::stepping::Stepper;
use nix::sys::signal::Signal::{self, SIGHUP, SIGINT, SIGKILL, SIGTERM};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// Numbers of the system calls that change files or directories: write, pwrite64, ftruncate,
/// rename, mkdir, rmdir, link, unlink, sendfile, fallocate, mkdirat, unlinkat, renameat, linkat,
/// renameat2, copy_file_range.
const CHANGES: [u64; 16] = [1, 18, 77, 82, 83, 84, 86, 87, 40, 285, 258, 263, 264, 265, 316, 326];
/// More changes than any of these commands makes.
const CHANGES_MAX: usize = 2000;

/// Ends a command after each of its changes in turn, those from when `begins` returns true, and
/// checks what it leaves, until the command has ended by itself with this status.
fn at_each_change(
    command: &Command,
    (signals, status): (&[Signal], i32),
    begins: impl Fn() -> bool,
    check: impl Fn(),
) {
    let mut number = 1;
    while number < CHANGES_MAX {
        let end = ended_after(command, number, signals[number % signals.len()], &begins);
        match end {
            // The program of a killed command may still run; then the next is refused.
            Some(2) => continue,
            Some(code) if code == status => break,
            _ => check(),
        }
        number += 1;
    }
    println!("ended after each of {} changes", number - 1);
    assert!((3..CHANGES_MAX).contains(&number), "{number} changes");
}

/// Starts a command and ends it by a signal after a number of changes. Returns its
/// status.
fn ended_after(
    command: &Command,
    number: usize,
    signal: Signal,
    begins: &impl Fn() -> bool,
) -> Option<i32> {
    let (mut command, mut changes) = (Stepper::start_command(command), 0);
    while command.run_to_call() {
        let is_change = command.finished_call().is_some_and(|call| CHANGES.contains(&call));
        changes += usize::from(is_change && begins());
        if changes == number {
            command.end_by(signal);
            break;
        }
    }
    command.status()
}

#[test]
fn a_killed_run_leaves_a_whole_recording() {
    let place = scratch("killed-run");
    let recording = place.join("a");
    assert_eq!(record(&recording, &[], "exit 4", &place).0, 4);
    record(&place.join("b"), &[], "exit 0", &place);
    let mut command = recorded(&recording, &["--force"]);
    command.args(["sh", "-c", "exit 5"]);
    at_each_change(
        &command,
        (&[SIGKILL], 5),
        || true,
        || {
            let marker = fs::read(recording.join("recording.json")).expect("a recording");
            let metadata: Value = serde_json::from_slice(&marker).expect("whole JSON");
            assert!(number(&metadata, "root_pid") > 0);
        },
    );
    // The program of a killed command can still run for a short time.
    until("the next run", || record(&recording, &["--force"], "exit 6", &place).0 == 6);
    assert_eq!(recordings(&place), ["a", "b"]);
    assert_eq!(list(&report(&recording, &place), "processes").len(), 1);
}

#[test]
fn a_killed_merge_leaves_nothing_behind() {
    let place = scratch("killed-merge");
    let inputs = to_merge(&place);
    assert_eq!(run(&mut merge(&inputs, "c", &[], &place), &place).status, 0);
    let command = merge(&inputs, "c", &["--force"], &place);
    at_each_change(
        &command,
        (&[SIGKILL, SIGTERM, SIGINT, SIGHUP], 0),
        || true,
        || {
            until("the guardian", || recordings(&place) == ["c", "one", "two"]);
            assert_eq!(profiles(&place.join("c")).len(), profiles(&inputs[0]).len() * 2);
            report(&place.join("c"), &place);
        },
    );
}

#[test]
fn a_killed_seal_leaves_no_drafts() {
    let place = scratch("killed-seal");
    let (recording, ready) = (place.join("a"), place.join("ready"));
    let mut command = recorded(&recording, &["--force"]);
    command.args(["sh", "-c", "ls / >ls; echo >ready"]).current_dir(&place);
    at_each_change(
        &command,
        (&[SIGKILL], 0),
        || ready.exists(),
        || {
            fs::remove_file(&ready).expect("a file of the program");
            let drafts = || names(&recording).into_iter().filter(|name| name.ends_with(".new"));
            if drafts().count() > 0 {
                // Killed between the two calls that replace a file.
                let sealed = run(heaptide().arg("seal").arg(&recording), &place);
                assert_eq!((sealed.status, drafts().count()), (0, 0), "{:?}", names(&recording));
            }
        },
    );
}
