//! Mappings: exact for everything that programs do with them, and separate from the heap.
//!
//! The known numbers are in the headers of the programs, on lines `// mapped SELECTOR CONDITION…`
//! for the report of `--kind mapped`.

use crate::allocators::library;
use crate::device::answer;
use crate::expectations::{assert_met, parse};
use crate::harness::{Guest, Trial, heaptide, recorded, report, report_of_kind, run, scratch};
use crate::recording::{list, number};
use heaptide_fixtures::skips::skip;
use serde_json::Value;
use std::path::Path;

/// Names a test after what its program does.
macro_rules! mappings {
    ($($name:ident $file:literal)*) => {
        $(#[test]
        fn $name() {
            check($file);
        })*
    };
}

mappings! {
    unmapping_in_parts "map_partial.c"
    every_mremap "map_remap.c"
    reserved_memory_that_mprotect_opens "map_reserved.c"
    replaced_by_map_fixed "map_fixed.c"
    forked_children "map_fork.c"
    ranges_that_are_not_known "map_before.c"
    the_break "map_break.c"
    shared_memory "map_shared.c"
    classes_and_names "map_files.c"
    threads_that_map_at_once "map_threads.c"
    handlers_that_map "map_signals.c"
    handlers_that_map_among_threads "handler_maps.c"
    handlers_at_every_instruction "handler_steps.c"
    confined_by_seccomp "map_confined.c"
}

/// Runs a program and compares both kinds of its memory with the known numbers.
fn check(name: &str) {
    let trial = Trial::new(name, name, &[], &[]);
    let recording = trial.recording(&[]).expect("a recording");
    let mapped = report_of_kind("mapped", &recording, &trial.scratch);
    let known = parse(Guest::read(name).text(), "// mapped ");
    assert!(!known.is_empty(), "{name} knows no number of mappings");
    assert_met(&mapped, &known);
    let of_program = parse(Guest::read(name).text(), "// program ");
    if !of_program.is_empty() {
        let mut command = heaptide();
        command.args(["report", "--format", "json", "--kind", "program"]);
        let outcome = run(command.arg(&recording), &trial.scratch);
        assert_met(&serde_json::from_str(&outcome.stdout).expect("a report"), &of_program);
    }
    both_kinds_add_up(&recording, &trial.scratch, &mapped);
}

/// Checks that the report of all memory is the sum of those of each kind, including the peak.
fn both_kinds_add_up(recording: &Path, scratch: &Path, mapped: &Value) {
    let heap = report(recording, scratch);
    let all = report_of_kind("all", recording, scratch);
    let totals = |report: &Value, measure: &str| -> i128 {
        list(report, "processes").iter().map(|p| number(&p["totals"], measure)).sum()
    };
    for measure in ["allocations", "usable_bytes", "freed_bytes", "live_bytes", "peak_bytes"] {
        let sum = totals(&heap, measure) + totals(mapped, measure);
        assert_eq!(totals(&all, measure), sum, "{measure} of both kinds");
    }
}

/// In a confined program, shared memory of unknown size is counted as lost.
#[test]
fn shared_memory_of_unknown_size_is_counted() {
    let trial = Trial::new("map_confined.c", "map-confined-loss", &[], &[]);
    let recording = trial.recording(&[]).expect("a recording");
    let report = report(&recording, &trial.scratch);
    let losses = list(&list(&report, "processes")[0], "losses");
    let found = losses.iter().find(|loss| loss["name"] == "no_mapping").expect("a loss");
    assert_eq!(number(found, "count"), 1);
}

/// A snapshot has the mappings of its time, and a report after a reset has the later ones. Such a
/// report does not add up like others: mappings that were live at the reset are freed in it.
#[test]
fn mappings_of_a_snapshot_and_after_a_reset() {
    let trial = Trial::new("map_reset.c", "map-snapshot", &[], &[]);
    let recording = trial.recording(&[]).expect("a recording");
    let read = |options: &[&str]| {
        let mut command = heaptide();
        command.args(["report", "--format", "json", "--kind", "mapped"]).args(options);
        let outcome = run(command.arg(&recording), &trial.scratch);
        serde_json::from_str::<Value>(&outcome.stdout).expect("JSON")
    };
    let known = parse(Guest::read("map_reset.c").text(), "// mapped ");
    assert!(!known.is_empty());
    assert_met(&read(&[]), &known);
    let report = read(&["--snapshot", "1"]);
    let totals = &list(&report, "processes")[0]["totals"];
    let known = ["allocations", "live_bytes", "peak_bytes"].map(|name| number(totals, name));
    assert_eq!(known, [1, 3 * 4096, 3 * 4096]);
}

/// Sums do not depend on the mode; in mode counters, frees are counted in the lane that unmaps.
#[test]
fn totals_without_stacks() {
    for mode in ["counters", "scopes"] {
        let trial = Trial::new("map_partial.c", "map-modes", &[], &[]);
        let recording = trial.recording(&["--mode", mode]).expect("a recording");
        let report = report_of_kind("mapped", &recording, &trial.scratch);
        let totals = &list(&report, "processes")[0]["totals"];
        let of = |name| number(totals, name);
        let found = ["allocations", "frees", "usable_bytes", "live_bytes", "peak_bytes"].map(of);
        assert_eq!(found, [4, 2, 131072, 57344, 73728], "{mode}");
        let text = answer(&recording, &trial.scratch, &["report", "--kind", "mapped"]);
        assert!(text.contains("\nRecorded without stacks; see --by scope"), "{text}");
    }
}

/// The peaks of a parent and its child need not be at one time.
#[test]
fn peaks_of_joined_processes_are_an_upper_bound() {
    let trial = Trial::new("map_fork.c", "map-joined", &[], &[]);
    let recording = trial.recording(&[]).expect("a recording");
    let joined = answer(&recording, &trial.scratch, &["report", "--process", "all"]);
    let line = "at most, the peaks of 2 process images added up (other ";
    assert!(joined.contains(line), "{joined}");
}

/// Differences are of the selected kind: each site of mappings maps more, the heap is the same.
#[test]
fn differences_of_mappings() {
    let scratch = scratch("map-diff");
    let recordings = ["early", "late"].map(|name| scratch.join(format!("{name}.heaptide")));
    let program = Guest::read("resident.c").build("resident.c", &[]);
    for (recording, kind) in recordings.iter().zip(["behind", "neighbours"]) {
        run(recorded(recording, &[]).arg(&program).arg(kind), &scratch);
    }
    let change = |kind: &str, metric: &str| {
        let mut command = heaptide();
        command.args(["diff", "--format", "json", "--metric", metric, "--kind", kind]);
        let outcome = run(command.args(&recordings), &scratch);
        let document: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        (number(&document["totals"]["usable_bytes"], "change"), document["rows"].clone())
    };
    let (bytes, rows) = change("mapped", "usable_bytes");
    assert_eq!(bytes, 0, "both map 16 MiB");
    let callers = ["behind", "neighbours"].map(|function| {
        let rows = rows.as_array().expect("rows").iter();
        let row = rows.clone().find(|row| row["function"] == function).expect(function);
        number(&row["inclusive"], "change")
    });
    assert_eq!(callers, [-(16 << 20), 16 << 20]);
    let (heap, _) = change("heap", "usable_bytes");
    assert!((320 << 20..321 << 20).contains(&heap), "{heap}");
}

/// Between accounts the memory was resident: the kernel's highest shows it. The chart has the
/// memory of the report.
#[test]
fn memory_that_was_given_back_is_part_of_the_peak() {
    let scratch = scratch("map-given-back");
    let recording = scratch.join("a.heaptide");
    let program = Guest::read("resident_between.c").build("map-given-back", &[]);
    run(recorded(&recording, &[]).arg(program).arg("given-back"), &scratch);
    for (command, expected) in [("report", "`map` (resident_between.c:"), ("timeline", "64.0 MiB")]
    {
        let said = run(heaptide().arg(command).arg(&recording), &scratch).stdout;
        assert!(said.contains(expected), "{said}");
    }
}

/// 50 MB are mapped, written, and gone by a signal or an exec, before which the recorder sees
/// nothing of them.
#[test]
fn mappings_at_the_end_of_a_killed_program_are_stated() {
    let place = scratch("map-ends");
    let program = Guest::read("map_ends.c").build("map_ends.c", &[]);
    for how in ["kill", "exec"] {
        let recording = place.join(format!("{how}.heaptide"));
        run(recorded(&recording, &[]).arg(&program).arg(how), &place);
        let mut command = heaptide();
        command.args(["report", "--all-processes"]).arg(&recording);
        let page = run(&mut command, &place).stdout;
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        let says = "At its end the program had 47.7 MiB of its own mappings, of which the resident \
                    part is not known; `--kind program` adds them to the heap.";
        assert!(page.contains(says), "{how}: {page}");
    }
}

#[test]
fn a_program_that_maps_nothing_has_no_line_about_mappings() {
    let trial = Trial::new("counts.c", "map-none", &[], &[]);
    let recording = trial.recording(&[]).expect("a recording");
    let report = report(&recording, &trial.scratch);
    assert!(list(&report, "processes").iter().all(|p| p["mapped"].is_null()));
    let text = run(heaptide().arg("report").arg(&recording), &trial.scratch);
    assert!(!text.stdout.contains("\n  mapped "), "{}", text.stdout);
}

/// The heap is the same as without the allocator: its mappings are not allocations.
#[test]
fn what_an_allocator_maps_is_its_own() {
    let Some(jemalloc) = library("libjemalloc") else { return };
    let environment = [("LD_PRELOAD", &*jemalloc)];
    let trial = Trial::new("leaks.c", "map-jemalloc", &[], &environment);
    let recording = trial.recording(&[]).expect("a recording");
    let report = report_of_kind("mapped", &recording, &trial.scratch);
    let processes = list(&report, "processes");
    let classes = list(&processes[0]["mapped"], "classes");
    let of_allocator = classes.iter().find(|class| class["class"] == "allocator");
    let bytes = of_allocator.map_or(0, |class| number(class, "live_bytes"));
    assert!(bytes >= 1 << 21, "{classes:?}");
    let frames = list(&processes[0], "frames").iter();
    let own = frames.filter(|f| f["module"].as_str().is_some_and(|m| m.contains("libheaptide")));
    assert_eq!(own.count(), 0, "frames of the recorder");
}

/// Python objects are in mapped arenas, which explain the growth of resident memory.
#[test]
fn arenas_of_python() {
    const SCRIPT: &str = "rss = lambda: int(open('/proc/self/statm').read().split()[1]) * 4096\n\
        before = rss()\n\
        kept = [{'a': i} for i in range(300000)]\n\
        print(rss() - before)";
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        return skip("python3");
    }
    let scratch = scratch("map-python");
    let recording = scratch.join("python.heaptide");
    let mut command = recorded(&recording, &["--python-memory", "arenas"]);
    command.arg(python).args(["-S", "-c", SCRIPT]);
    let outcome = run(&mut command, &scratch);
    let grown: i128 = outcome.stdout.trim().parse().expect("bytes");
    let heap = report(&recording, &scratch);
    let process = &list(&heap, "processes")[0];
    let classes = list(&process["mapped"], "classes");
    let arenas = classes.iter().find(|class| class["class"] == "python arena");
    let arenas = arenas.map_or(0, |class| number(class, "at_peak_bytes"));
    assert!(arenas > grown / 2, "{arenas} of {grown}: {classes:?}");
    let known = arenas + number(&process["totals"], "peak_bytes");
    assert!((known - grown).abs() < grown / 5, "{known} of {grown}");
}
