//! `--by-call`: the known numbers of guests do not change, and each kind of function has a separate
//! site per stack.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{Guest, check_all_with, heaptide, recorded, report, run, scratch};
use crate::recording::{list, number};

/// Allocations and failures by call.
const KNOWN: [(&str, [i128; 2]); 6] = [
    ("aligned", [5, 1]),
    ("calloc", [6, 1]),
    ("malloc", [19, 0]),
    ("new", [7, 2]),
    ("other", [1, 0]),
    ("realloc", [5, 1]),
];

/// Records the program with the known calls.
fn record(name: &str, options: &[&str]) -> (PathBuf, PathBuf) {
    let place = scratch(&format!("by-call-{name}"));
    let recording = place.join("a.heaptide");
    let program = Guest::read("by_call.cpp").build("by_call", &[]);
    let outcome = run(recorded(&recording, options).arg(program), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    (recording, place)
}

fn in_scope(site: &Value) -> bool {
    list(site, "scope").iter().any(|scope| scope["value"] == "calls")
}

#[test]
fn known_numbers_stay() {
    let guests = [
        "by_size.c",
        "counts.c",
        "cross_thread.c",
        "family.c",
        "new_fails.cpp",
        "peak.c",
        "threads_peak.c",
        "api_labels.c",
        "api_pools.c",
        "api_scopes.c",
        "fork_threads.c",
        "rlimit_as.c",
    ];
    check_all_with(&guests, "by-call", "HEAPTIDE_BY_CALL");
}

#[test]
fn each_call_is_a_site() {
    for options in ["stacks", "scopes", "trace", "stacks --by-size", "trace --by-size"] {
        let mut words = vec!["--by-call", "--mode"];
        words.extend(options.split(' '));
        let (recording, place) = record(&options.replace(' ', "-"), &words);
        let report = report(&recording, &place);
        let process = &list(&report, "processes")[0];
        let mut calls = BTreeMap::<&str, [i128; 2]>::new();
        for site in list(process, "sites").iter().filter(|site| in_scope(site)) {
            let Some(call) = site["call"].as_str() else {
                assert_eq!(number(site, "allocations"), 0, "{options}: {site}");
                continue;
            };
            let labelled = site["moved_blocks"].as_i64().unwrap_or(0);
            let row = calls.entry(call).or_default();
            row[0] += number(site, "allocations") - i128::from(labelled);
            row[1] += number(site, "failed");
        }
        assert_eq!(calls.into_iter().collect::<Vec<_>>(), KNOWN, "{options}");
    }
}

#[test]
fn labels_and_sizes_keep_the_call() {
    let (recording, place) = record("labels", &["--by-call", "--by-size", "--mode", "trace"]);
    let report = report(&recording, &place);
    let sites = list(&list(&report, "processes")[0], "sites");
    let of = |size: i128| {
        let sites = sites.iter().filter(|site| in_scope(site) && site["size"].is_u64());
        let mut calls: Vec<&str> = sites
            .filter(|site| number(site, "size") == size)
            .map(|site| site["call"].as_str().expect("a call"))
            .collect();
        calls.dedup();
        calls
    };
    assert_eq!(
        [of(101), of(102), of(104), of(106)],
        ["malloc", "calloc", "realloc", "realloc"].map(|call| vec![call])
    );
    assert_eq!([of(110), of(111), of(135)], ["calloc", "other", "new"].map(|call| vec![call]));
    let labelled = sites.iter().find(|site| site["label"] == "columns").expect("the label");
    assert_eq!((number(labelled, "live_blocks"), &labelled["call"]), (1, &Value::from("calloc")));
    let query = "SELECT call,count() GROUP BY call WHERE size=109 FROM events FORMAT expand";
    let mut command = heaptide();
    let outcome = run(command.args(["query", query]).arg(&recording), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    assert_eq!(outcome.stdout, "call=malloc,count=14\n");
}

#[test]
fn views_show_calls() {
    let (recording, place) = record("views", &["--by-call"]);
    let answer = |words: &[&str]| {
        let outcome = run(heaptide().args(words).arg(&recording), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{words:?}");
        outcome.stdout
    };
    let scope = ["--focus", "scope:calls"];
    let page = answer(&["report", "--by", "call", "--metric", "allocations", scope[0], scope[1]]);
    let rows = page.lines().filter(|line| line.contains('%'));
    let rows: Vec<Vec<&str>> = rows.map(|line| line.split_whitespace().collect()).collect();
    let row = |row: &Vec<&str>| (row[1].to_owned(), row[row.len() - 1].to_owned());
    let known = [("19", "malloc"), ("7", "new"), ("6", "calloc"), ("5", "realloc")];
    let known = known.map(|(count, call)| (count.to_owned(), call.to_owned()));
    assert_eq!(rows.iter().map(row).take(4).collect::<Vec<_>>(), known, "{page}");
    let query = "SELECT call,sum(failed) GROUP BY call WHERE failed>0,path ORDER BY call \
                 FORMAT expand";
    assert_eq!(
        answer(&["query", query]),
        "call=aligned,sum#failed=1\ncall=calloc,sum#failed=1\ncall=new,sum#failed=2\n\
         call=realloc,sum#failed=1\n"
    );
    let rows = answer(&["export", "--format", "csv"]);
    assert!(rows.lines().next().expect("a heading").contains(",size,call,stack,"), "{rows}");
    // malloc-tag counts operator new and aligned allocations as calls of malloc.
    let tree: Value =
        serde_json::from_str(&answer(&["export", "--format", "malloc-tag"])).expect("JSON");
    let trees = tree.as_object().expect("an object").iter();
    let mut threads = trees.filter_map(|(_, tree)| tree.get("scope_by_call"));
    let scope = &threads.next().expect("a tree")["nestedScopes"]["scope_calls"];
    let calls =
        ["malloc", "realloc", "calloc"].map(|name| number(scope, &format!("nCallsTo_{name}")));
    assert_eq!(calls, [19 + 7 + 5 + 1, 5, 6], "{scope}");
}

#[test]
fn recordings_without_calls_state_how_to_record_them() {
    let (recording, place) = record("without", &[]);
    let mut command = heaptide();
    let query = "SELECT call,count() GROUP BY call FORMAT expand";
    let outcome = run(command.args(["query", query]).arg(&recording), &place);
    let why = "recorded without the functions called; record with `heaptide run --by-call`\n";
    assert_eq!(outcome.stderr, format!("heaptide: query: `call`: {why}"));
    let mut command = heaptide();
    let outcome = run(command.args(["report", "--by", "call"]).arg(&recording), &place);
    assert_eq!(outcome.status, 1);
    assert_eq!(outcome.stderr, format!("heaptide: {}: {why}", recording.display()));
    let tree = run(heaptide().args(["export", "--format", "malloc-tag"]).arg(&recording), &place);
    assert!(tree.stdout.contains("\"nCallsTo_calloc\":0"), "{}", tree.stdout);
}

#[test]
fn counters_have_no_calls() {
    let place = scratch("by-call-counters");
    let mut command = heaptide();
    let outcome =
        run(command.args(["run", "--mode", "counters", "--by-call", "--", "true"]), &place);
    assert_eq!(outcome.status, 2);
    assert_eq!(
        outcome.stderr,
        "heaptide: --by-call requires --mode stacks, scopes, trace or sampled\n"
    );
}

/// An allocator with its own names: `mallocx` is not a function of the C library.
#[test]
fn families_have_calls() {
    let place = scratch("by-call-family");
    let recording = place.join("a.heaptide");
    let guest = Guest::read("family.c");
    guest.build_plugins();
    let program = guest.build("by-call", &[]);
    let mut command = recorded(&recording, &["--by-call"]);
    let outcome = run(command.arg(program).args(guest.arguments()), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let query = "SELECT call,sum(allocations) WHERE frame=in_library GROUP BY call ORDER BY call \
                 FORMAT expand";
    let outcome = run(heaptide().args(["query", query]).arg(&recording), &place);
    let known = "call=calloc,sum#allocations=14\ncall=malloc,sum#allocations=200\n\
                 call=other,sum#allocations=6\ncall=realloc,sum#allocations=200\n";
    assert_eq!((&*outcome.stdout, &*outcome.stderr), (known, ""));
}
