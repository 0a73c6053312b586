//! Things that a program makes and ends all the time leave nothing behind: the profile and the
//! memory of the recorder stay as they are after a first part. `benches/soak.py` does the same with
//! a million of each.

use crate::expectations::evaluate;
use crate::harness::{Guest, preloaded, report, report_of_kind, run, scratch};
use crate::recording::{list, number};
use std::path::{Path, PathBuf};

/// The thirds of a run: bytes of the profile, and resident bytes, at the end of each.
type Thirds = Vec<[u64; 2]>;

/// Runs `churn.c`. Returns its recording, and the thirds.
fn churn(place: &Path, kind: &str, count: u32) -> (PathBuf, Thirds) {
    let guest = Guest::read("churn.c");
    let program = guest.build("churn.c", &["-pthread", "-ldl"]);
    let library = guest.build_plugins().join("churned.so");
    let recording = place.join(format!("{kind}.heaptide"));
    let mut command = preloaded(&program, &recording);
    command.args([kind, &count.to_string()]).arg(library).current_dir(place);
    let outcome = run(&mut command, place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{kind}");
    let numbers = |line: &str| {
        let mut words = line.split(' ').map(|word| word.parse().expect("a number"));
        [words.next().expect("a size"), words.next().expect("a second size")]
    };
    (recording, outcome.stdout.lines().map(numbers).collect())
}

/// Checks that the last third added at most this many bytes for each thing that it made, to the
/// profile and to resident memory. Both have some slack, which does not depend on the number: the
/// timeline grows with the logarithm of the duration, in extents that double.
fn assert_flat(kind: &str, count: u32, thirds: &Thirds, [file, memory]: [f64; 2]) {
    const FILE_SLACK: f64 = 256.0 * 1024.0;
    const MEMORY_SLACK: f64 = 512.0 * 1024.0;
    let [_, before, after] = thirds[..] else { panic!("{kind}: {thirds:?}") };
    let grown = |which: usize| after[which] as f64 - before[which] as f64;
    let count = f64::from(count);
    assert!(before[0] > 0, "{kind}: no profile");
    assert!(grown(0) <= file * count + FILE_SLACK, "{kind}: the profile grew: {thirds:?}");
    assert!(grown(1) <= memory * count + MEMORY_SLACK, "{kind}: memory grew: {thirds:?}");
}

#[test]
fn threads_that_ended_leave_nothing() {
    const THREADS: u32 = 2_500;
    let place = scratch("churn-threads");
    let (recording, thirds) = churn(&place, "threads", THREADS);
    // 8 bytes are the id of the thread.
    assert_flat("threads", THREADS, &thirds, [16.0, 16.0]);
    let report = report(&recording, &place);
    assert_eq!(evaluate(&report, "function:block_of", "allocations"), 7_500);
}

/// Each load was a module of its own, up to 8192 of them, and so had stacks of its own; later ones
/// had no names.
#[test]
fn libraries_that_are_loaded_again_leave_nothing() {
    const LOADS: u32 = 800;
    let place = scratch("churn-modules");
    let (recording, thirds) = churn(&place, "modules", LOADS);
    assert_flat("modules", LOADS, &thirds, [0.0, 64.0]);
    let report = report(&recording, &place);
    assert_eq!(evaluate(&report, "function:churned_work", "allocations"), 2_400);
    let modules = list(&list(&report, "processes")[0], "modules")
        .iter()
        .filter(|module| module["path"].as_str().is_some_and(|path| path.ends_with("churned.so")));
    assert_eq!(modules.count(), 1);
}

#[test]
fn mappings_that_ended_leave_nothing() {
    const MAPPINGS: u32 = 20_000;
    let place = scratch("churn-mappings");
    let (_, thirds) = churn(&place, "mappings", MAPPINGS);
    assert_flat("mappings", MAPPINGS, &thirds, [1.0, 1.0]);
}

/// Each mapped file has a name, so each had sites of its own without limit.
#[test]
fn files_beyond_the_budget_share_a_name() {
    const FILES: u32 = 4_500;
    const BUDGET: i128 = 1 << 13;
    let place = scratch("churn-files");
    let (recording, thirds) = churn(&place, "files", FILES);
    assert_flat("files", FILES, &thirds, [1.0, 8.0]);
    let mapped = report_of_kind("mapped", &recording, &place);
    let others = evaluate(&mapped, "leaf:[other files]", "allocations");
    // The program's own libraries have some of the names.
    let beyond = i128::from(3 * FILES) - BUDGET;
    assert!((beyond..beyond + 100).contains(&others), "{others} mappings of other files");
}

/// The name of each window is stored until the budget is used up.
#[test]
fn windows_beyond_the_budget_are_counted() {
    const WINDOWS: u32 = 70_000;
    const BUDGET: i128 = 1 << 17;
    let place = scratch("churn-windows");
    let (recording, thirds) = churn(&place, "windows", WINDOWS);
    assert_flat("windows", WINDOWS, &thirds, [0.0, 0.5]);
    let report = report(&recording, &place);
    let process = &list(&report, "processes")[0];
    assert_eq!(list(process, "windows").len() as i128, BUDGET);
    let mut losses = list(process, "losses").iter();
    let lost = losses.find(|loss| loss["name"] == "no_sample").expect("a loss");
    assert_eq!(number(lost, "count"), i128::from(3 * WINDOWS) - BUDGET);
}

/// Names and paths had no limit in practice: a program that names a scope for each request grew.
#[test]
fn scopes_beyond_the_budget_are_counted() {
    const SCOPES: u32 = 140_000;
    const BUDGET: i128 = (1 << 18) - 1;
    let place = scratch("churn-scopes");
    let (recording, thirds) = churn(&place, "scopes", SCOPES);
    assert_flat("scopes", SCOPES, &thirds, [0.0, 0.5]);
    let report = report(&recording, &place);
    let process = &list(&report, "processes")[0];
    let mut losses = list(process, "losses").iter();
    let lost = losses.find(|loss| loss["name"] == "no_scope").expect("a loss");
    assert_eq!(number(lost, "count"), i128::from(3 * SCOPES) - BUDGET);
    // Their memory belongs to the enclosing scope, here none.
    assert_eq!(evaluate(&report, "function:block_of", "allocations"), i128::from(3 * SCOPES));
}

#[test]
fn marks_beyond_the_budget_are_counted() {
    const MARKS: u32 = 30_000;
    let place = scratch("churn-marks");
    let (recording, thirds) = churn(&place, "marks", MARKS);
    assert_flat("marks", MARKS, &thirds, [40.0, 40.0]);
    const BUDGET: usize = 1 << 16;
    let report = report(&recording, &place);
    let process = &list(&report, "processes")[0];
    assert_eq!(list(process, "marks").len(), BUDGET);
    let mut losses = list(process, "losses").iter();
    let lost = losses.find(|loss| loss["name"] == "no_sample").expect("a loss");
    assert_eq!(number(lost, "count"), i128::from(3 * MARKS) - BUDGET as i128);
}
