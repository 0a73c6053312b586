//! Sampled recordings: totals as exact as in mode counters, and estimates whose intervals contain
//! the values of a complete recording.

use crate::expectations::{assert_met, parse};
use crate::harness::{
    Guest, Outcome, check_with, heaptide, preloaded, recorded, report, run, scratch,
};
use crate::programs::python;
use crate::recording::{list, number};
use heaptide_fixtures::skips::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Totals that count all blocks.
const EXACT: [&str; 11] = [
    "allocations",
    "frees",
    "reallocations",
    "failed",
    "requested_bytes",
    "usable_bytes",
    "freed_bytes",
    "live_blocks",
    "live_bytes",
    "temporary",
    "largest_bytes",
];
/// Metrics of scopes that have an interval.
const ESTIMATES: [&str; 3] = ["usable_bytes", "live_bytes", "at_peak_bytes"];
/// A mean of one byte samples every block, since those of glibc have at least 24 bytes.
const ALL: &str = "sampled=1";

/// Estimates then equal the known numbers.
#[test]
fn known_numbers_hold_where_every_block_is_sampled() {
    let guests = [
        "allocator_inside.c",
        "api_limits.c",
        "api_windows.c",
        "by_size.c",
        "clone.c",
        "coroutines.c",
        "counts.c",
        "cross_thread.c",
        "exceptions.cpp",
        "family.c",
        "fork.c",
        "fork_threads.c",
        "killed.c",
        "leaks.c",
        "many_threads.c",
        "map_files.c",
        "map_fork.c",
        "new_fails.cpp",
        "peak.c",
        "realloc_peak.c",
        "rlimit_as.c",
        "sampled.c",
        "sampled_sizes.c",
        "scope_values.c",
        "signal_storm.c",
        "temporary.c",
        "thread_churn.c",
        "thread_exits.c",
        "trace_forks.c",
        "vfork.c",
        "wide.cpp",
    ];
    for name in guests {
        check_with(name, &format!("{name}-sampled"), &[], &[("HEAPTIDE_MODE", ALL)]);
    }
}

/// Records `sampled.c`, which exits with status 0 and prints nothing.
fn record(place: &Path, name: &str, mode: &str, seed: u32, options: &[&str]) -> PathBuf {
    let program = Guest::read("sampled.c").build("sampled-c", &[]);
    let recording = place.join(format!("{name}.heaptide"));
    let options = [&["--mode", mode], options].concat();
    let mut command = recorded(&recording, &options);
    command.arg(program).env("HEAPTIDE_SAMPLE_SEED", seed.to_string());
    let outcome = run(&mut command, place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{mode}");
    recording
}

/// Runs a command on recordings.
fn ask(place: &Path, question: &str, recordings: &[&Path]) -> Outcome {
    let mut command = heaptide();
    run(command.args(question.split_whitespace()).args(recordings), place)
}

/// Returns the scopes of the program in the only process, by name.
fn scopes(process: &Value) -> BTreeMap<&str, &Value> {
    let scopes = list(process, "scopes").iter();
    let named = scopes.filter_map(|scope| Some((scope["value"].as_str()?, scope)));
    named.filter(|(name, _)| !name.is_empty()).collect()
}

#[test]
fn totals_are_exact_and_intervals_contain_the_truth() {
    const SEEDS: u32 = 20;
    let place = scratch("sampled-intervals");
    let truth = report(&record(&place, "truth", "stacks", 0, &[]), &place);
    let truth = &list(&truth, "processes")[0];
    let known = scopes(truth);
    let (mut intervals, mut missed) = (0, Vec::new());
    for seed in 0..SEEDS {
        let name = format!("seed-{seed}");
        let found = report(&record(&place, &name, "sampled=16K", seed, &[]), &place);
        let found = &list(&found, "processes")[0];
        assert_eq!(found["mode"], "sampled");
        assert_eq!(number(&found["sampling"], "mean_bytes"), 16 << 10);
        let totals = |process: &Value, metric| number(&process["totals"], metric);
        for metric in EXACT {
            assert_eq!(totals(found, metric), totals(truth, metric), "{metric}, seed {seed}");
        }
        for metric in ["peak_bytes", "at_peak_bytes"] {
            let apart = totals(found, metric) - totals(truth, metric);
            let bound = totals(truth, "peak_bound_bytes") + totals(found, "peak_bound_bytes");
            assert!(apart.abs() <= bound, "{metric}, seed {seed}: {apart}, {bound}");
        }
        // Seven megabytes at the peak, and as many freed.
        let blocks = number(&found["sampling"], "blocks");
        assert!((300..1100).contains(&blocks), "seed {seed}: {blocks}");
        for (name, scope) in scopes(found) {
            for metric in ESTIMATES {
                let limits = ["low", "high"].map(|end| number(scope, &format!("{metric}_{end}")));
                let value = number(scope, metric);
                assert!(limits[0] <= value && value <= limits[1], "{name} {metric} {limits:?}");
                intervals += 1;
                let exact = number(known[name], metric);
                if exact < limits[0] || limits[1] < exact {
                    missed.push(format!("{name} {metric} of seed {seed}: {exact}, {limits:?}"));
                }
            }
        }
    }
    // One in twenty is expected. With errors that are correlated within a run, more than an eighth
    // has a probability below one in a million.
    assert_eq!(intervals, i128::from(SEEDS) * 7 * 3);
    assert!(missed.len() as i128 <= intervals / 8, "{missed:#?}");
}

/// Each size had a site of its own, so that sampled recordings could be larger than complete ones.
#[test]
fn a_stack_has_one_site_whatever_its_sizes() {
    use std::os::unix::fs::MetadataExt;
    let place = scratch("sampled-sizes");
    let program = Guest::read("sampled_sizes.c").build("sampled_sizes.c", &["-pthread"]);
    let measure = |mode: &str| {
        let recording = place.join(format!("{mode}.heaptide"));
        // Without the command, the profile stays as the program wrote it.
        let mut command = preloaded(&program, &recording);
        assert_eq!(run(command.env("HEAPTIDE_MODE", mode), &place).status, 0, "{mode}");
        let profiles = std::fs::read_dir(&recording).expect("the recording").flatten();
        let profile = profiles.map(|entry| entry.path()).find(|path| is_profile(path));
        let disk = profile.and_then(|path| path.metadata().ok()).expect("a profile").blocks();
        let report = report(&recording, &place);
        let process = &list(&report, "processes")[0];
        let sized = list(process, "frames").iter().position(|f| f["function"] == "sized");
        let sized = sized.expect("a frame of the function");
        let has = |site: &&Value| list(site, "stack").iter().any(|frame| frame == sized);
        let with_stack = |site: &&Value| !list(site, "stack").is_empty();
        let sites = list(process, "sites").iter();
        (sites.clone().filter(has).count(), sites.filter(with_stack).count(), disk)
    };
    let (of_stack, all, disk) = measure("stacks");
    for mode in [ALL, "sampled=4K"] {
        let (found_of_stack, found, found_disk) = measure(mode);
        assert_eq!((found_of_stack, of_stack), (1, 1), "{mode}");
        assert!(found <= all + 1, "{mode}: {found} sites, {all} of a complete recording");
        assert!(found_disk <= disk, "{mode}: {found_disk} blocks of disk, {disk}");
    }
}

fn is_profile(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "profile")
}

/// Labels move blocks between sites, whose estimates have different errors. Totals, those of
/// threads, and sums over sites agree, and are those of a complete recording.
#[test]
fn labels_leave_totals_exact() {
    let place = scratch("sampled-labels");
    let program = Guest::read("sampled_labels.c").build("sampled-labels-c", &[]);
    let record = |name: &str, mode: &str, seed: u32| {
        let recording = place.join(format!("{name}.heaptide"));
        let mut command = recorded(&recording, &["--mode", mode]);
        command.arg(&program).env("HEAPTIDE_SAMPLE_SEED", seed.to_string());
        assert_eq!(run(&mut command, &place).status, 0, "{mode}");
        let mut processes = list(&report(&recording, &place), "processes").to_vec();
        processes.sort_by_key(|process| process["forked"] == true);
        processes
    };
    let truth = record("truth", "stacks", 0);
    assert_eq!(truth.len(), 2);
    for seed in 0..8 {
        let found = record(&format!("seed-{seed}"), "sampled=64K", seed);
        for (found, truth) in found.iter().zip(&truth) {
            for metric in EXACT {
                let of = |process: &Value| number(&process["totals"], metric);
                assert_eq!(of(found), of(truth), "{metric}, seed {seed}");
            }
            let sites = |metric: &str, moved: &str| {
                let of =
                    |site: &Value| number(site, metric) - site[moved].as_i64().unwrap_or(0) as i128;
                list(found, "sites").iter().map(of).sum::<i128>()
            };
            let lanes = |metric: &str| {
                list(found, "lanes").iter().map(|lane| number(lane, metric)).sum::<i128>()
            };
            for (metric, moved) in [
                ("allocations", "moved_blocks"),
                ("usable_bytes", "moved_usable_bytes"),
                ("requested_bytes", "moved_requested_bytes"),
            ] {
                let total = number(&found["totals"], metric);
                assert_eq!((sites(metric, moved), lanes(metric)), (total, total), "{metric}");
            }
            for site in list(found, "sites") {
                let [requested, usable] =
                    ["requested_bytes", "usable_bytes"].map(|metric| number(site, metric));
                assert!(requested <= usable, "seed {seed}: {site}");
            }
        }
    }
}

/// With a mean of 1 TiB, no block is sampled, and one row has everything.
#[test]
fn limits_are_within_exact_totals() {
    let place = scratch("sampled-none");
    let found = report(&record(&place, "a", "sampled=1024G", 1, &[]), &place);
    let process = &list(&found, "processes")[0];
    for metric in ESTIMATES {
        let total = number(&process["totals"], metric);
        for row in list(process, "sites").iter().chain(list(process, "scopes")) {
            let high = number(row, &format!("{metric}_high"));
            assert!(high <= total, "{metric}: {high} of {total}: {row}");
        }
    }
}

#[test]
fn a_seed_makes_runs_alike() {
    let place = scratch("sampled-seed");
    let blocks = |name: &str, seed: u32| {
        let recording = record(&place, name, "sampled=64K", seed, &[]);
        let report = report(&recording, &place);
        let process = &list(&report, "processes")[0];
        // The peak lies within its bound, depending on time.
        let sum =
            |scope: &&Value| ["usable_bytes", "live_bytes"].map(|metric| number(scope, metric));
        let rows: Vec<_> = scopes(process).values().map(sum).collect();
        (number(&process["sampling"], "blocks"), rows)
    };
    let first = blocks("first", 7);
    assert_eq!(first, blocks("again", 7));
    assert_ne!(first, blocks("other", 8));
}

#[test]
fn pages_name_what_is_estimated() {
    let place = scratch("sampled-pages");
    let sampled = record(&place, "a", "sampled=16K", 1, &[]);
    for question in ["report", "report --by scope", "peak", "leaks", "tree", "histogram", "info"] {
        let outcome = ask(&place, question, &[&sampled]);
        assert!(outcome.status <= 1, "{question}: {}", outcome.stderr);
        assert!(outcome.stdout.contains("16.0 KiB"), "{question}: {}", outcome.stdout);
    }
    let page = ask(&place, "report --by scope --sort live_bytes", &[&sampled]).stdout;
    assert!(page.contains("95% interval"), "{page}");
    assert!(page.contains("totals are exact, the rest are estimates"), "{page}");
    let all = record(&place, "b", "stacks", 1, &[]);
    assert!(!ask(&place, "report", &[&all]).stdout.contains("estimate"));
}

/// Two runs of one program differ only by errors of sampling.
#[test]
fn errors_of_sampling_are_no_changes() {
    let place = scratch("sampled-diff");
    let [old, new] = [1, 2].map(|seed| record(&place, &seed.to_string(), "sampled=64K", seed, &[]));
    let outcome = ask(&place, "diff --fail-above 0%", &[&old, &new]);
    assert_eq!(outcome.status, 0, "{}{}", outcome.stdout, outcome.stderr);
    // The same for all blocks compared with a sample of them.
    let all = record(&place, "all", "stacks", 0, &[]);
    let outcome = ask(&place, "diff --fail-above 0%", &[&all, &new]);
    assert_eq!(outcome.status, 0, "{}{}", outcome.stdout, outcome.stderr);
}

#[test]
fn sizes_and_calls_are_those_of_sampled_blocks() {
    let place = scratch("sampled-by");
    let recording = record(&place, "a", ALL, 1, &["--by-size", "--by-call"]);
    let report = report(&recording, &place);
    let process = &list(&report, "processes")[0];
    let of = |key: &str, value: Value| {
        let sites = list(process, "sites").iter().filter(|site| site[key] == value);
        sites.map(|site| number(site, "allocations")).sum::<i128>()
    };
    // 40 blocks of `mixed` have the size of those of `handed`.
    assert_eq!([of("size", 104.into()), of("size", 504.into())], [20_000, 4_040]);
    assert_eq!(of("call", "realloc".into()), 59);
}

/// Allocations before a reset are not counted, but their blocks stay live.
#[test]
fn resets_leave_what_is_live() {
    let place = scratch("sampled-reset");
    let source = place.join("resets.c");
    let text = r#"
#include "heaptide.h"
#include <stdlib.h>
#define APART __attribute__((noinline))
static void *kept[200];
APART void before(int i) { kept[i] = malloc(1000); }
APART void after(int i) { kept[i] = malloc(2000); }
int main(void)
{
    for (int i = 0; i < 100; i++)
        before(i);
    heaptide_snapshot_now("first");
    heaptide_reset();
    for (int i = 0; i < 50; i++)
        free(kept[i]);
    for (int i = 100; i < 200; i++)
        after(i);
    return 0;
}
"#;
    std::fs::write(&source, text).expect("a source");
    let program = place.join("resets");
    let include = crate::harness::programs().join("../../include");
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-O1", "-g", "-I"]).arg(include).arg(&source).arg("-o").arg(&program);
    assert!(compiler.status().expect("a compiler").success());
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &["--mode", ALL]).arg(&program), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let known = "\
function:before allocations=0 frees=50 live_blocks=50 live_bytes=50000
function:after allocations=100 frees=0 live_blocks=100 live_bytes=200800";
    // Since a reset, live blocks are not those allocated minus those freed.
    let now = ask(&place, "report --format json", &[&recording]).stdout;
    assert_met(&serde_json::from_str(&now).expect("JSON"), &parse(known, ""));
    let first = PathBuf::from(format!("{}@first", recording.display()));
    let then = report(&first, &place);
    assert_met(&then, &parse("function:before allocations=100 live_bytes=100000", ""));
}

#[test]
fn limits_of_totals_are_exact_and_counts_of_parts_are_refused() {
    let place = scratch("sampled-check");
    let recording = record(&place, "a", "sampled=16K", 1, &[]);
    let judged = |question: &str| ask(&place, question, &[&recording]);
    let totals = judged("check --max allocations=56K --max frees=1 --max peak=1");
    assert_eq!(totals.status, 1, "{}{}", totals.stdout, totals.stderr);
    assert!(!totals.stdout.contains("(estimate"), "{}", totals.stdout);
    // For two megabytes, the whole interval is above one, and a part of it below two and a half.
    for (limit, status) in [("1M", 1), ("2.5M", 0)] {
        let question = format!("check --scope ^small$ --max live_bytes={limit}");
        let outcome = judged(&question);
        assert_eq!(outcome.status, status, "{}{}", outcome.stdout, outcome.stderr);
        assert!(outcome.stdout.contains("(estimate, 95% interval "), "{}", outcome.stdout);
    }
    for limit in ["allocations=1000000", "temporary=20%"] {
        let outcome = judged(&format!("check --scope ^small$ --max {limit}"));
        assert_eq!((outcome.status, outcome.stderr.lines().count()), (2, 1), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("estimate with unknown error"), "{}", outcome.stderr);
    }
}

#[test]
fn python_functions_have_estimates() {
    let Some(python) = python() else {
        return skip("no Python");
    };
    let place = scratch("sampled-python");
    let source = place.join("app.py");
    let text = "def made():\n    return [bytes(5000) for _ in range(4000)]\nkept = made()\n";
    std::fs::write(&source, text).expect("a source");
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &["--mode", "sampled=64K"]);
    let outcome = run(command.arg(python).arg(&source), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let report = report(&recording, &place);
    let process = &list(&report, "processes")[0];
    let made = list(process, "frames").iter().position(|f| f["function"] == "made");
    let made = made.expect("a frame of Python");
    let has = |site: &&Value| list(site, "stack").iter().any(|frame| frame == made);
    let bytes: i128 =
        list(process, "sites").iter().filter(has).map(|site| number(site, "at_peak_bytes")).sum();
    // 20 MB in 305 sampled blocks: six standard errors are 6.8 MB.
    assert!((13_000_000..27_000_000).contains(&bytes), "{bytes}");
}

#[test]
fn what_cannot_be_sampled_is_refused() {
    let place = scratch("sampled-refused");
    let said = |arguments: &[&str]| {
        let outcome = run(heaptide().args(arguments), &place);
        (outcome.status, outcome.stderr)
    };
    let (status, line) = said(&["run", "--mode", "sampled=0", "--", "true"]);
    assert_eq!(status, 2, "{line}");
    assert!(line.contains("sampled"), "{line}");
    let (status, line) = said(&["attach", "--mode", "sampled", "1"]);
    assert_eq!((status, line.lines().count()), (2, 1), "{line}");
}
