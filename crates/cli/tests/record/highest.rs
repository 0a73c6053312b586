//! The highest live bytes of each stack, thread and scope, from a trace; and requested bytes that
//! are live. The header of `highest.c` contains the numbers.

use crate::harness::{Guest, check, heaptide, recorded, report, run, scratch};
use crate::recording::{frames, function, list};
use std::path::{Path, PathBuf};

/// Records a guest.
fn recording(name: &str, place: &Path, options: &[&str]) -> PathBuf {
    let variant = place.file_name().expect("a name").to_string_lossy();
    let program = Guest::read(name).build(&format!("of-{variant}"), &[]);
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, options).arg(program), place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    recording
}

/// Returns the output of a command.
fn printed(place: &Path, words: &[&str]) -> String {
    let outcome = run(heaptide().args(words).current_dir(place), place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{words:?}");
    outcome.stdout
}

/// Returns the records of a query, one per line.
fn asked(place: &Path, query: &str, options: &[&str]) -> String {
    let words: Vec<&str> = ["query", query, "a.heaptide", "--exact"].into_iter().collect();
    printed(place, &[&words, options].concat())
}

#[test]
fn known_numbers() {
    check("highest.c");
}

#[test]
fn exports_have_them() {
    let place = scratch("highest-exports");
    recording("highest.c", &place, &["--mode", "trace"]);
    let stacks =
        printed(&place, &["export", "a.heaptide", "--format", "stacks", "--metric", "allocations"]);
    let of = |function: &str| {
        let start = format!("#0 {function} at ");
        let paragraph = stacks.split("\n\n").find(|text| text.contains(&start));
        let line =
            paragraph.and_then(|text| text.lines().next()).unwrap_or_else(|| panic!("{stacks}"));
        line.split_once(" live_requested_bytes=").unwrap_or_else(|| panic!("{line}")).1.to_owned()
    };
    assert_eq!(of("a"), "200 max_live_bytes=1040 max_live_requested_bytes=1000");
    assert_eq!(of("b"), "400 max_live_bytes=504 max_live_requested_bytes=500");
    assert_eq!(of("d"), "0 max_live_bytes=400 max_live_requested_bytes=400");
    let lines = printed(&place, &["export", "a.heaptide", "--format", "malloc-profiler"]);
    let of = |function: &str| {
        let end = format!(";{function} ");
        let line = lines.lines().find_map(|line| Some(line.split_once(&end)?.1));
        line.unwrap_or_else(|| panic!("{function}: {lines}"))
    };
    assert_eq!(of("a"), "$10$1000$200$1000");
    assert_eq!(of("b"), "$3$900$400$500");
    assert_eq!(of("d"), "$2$400$0$400");
    assert_eq!(of("e"), "$3$3000$0$3000");
    let page = printed(&place, &["report", "a.heaptide", "--by", "thread", "--exact"]);
    let helper = page.lines().find(|line| line.contains("helper")).expect("the thread");
    let cells: Vec<&str> = helper.split_whitespace().collect();
    assert!(
        page.contains("max live") && cells[2..7] == ["3", "3,000", "0", "3,000", "0"],
        "{page}"
    );
    let page =
        printed(&place, &["report", "a.heaptide", "--by", "stack", "--metric", "allocations"]);
    assert!(page.contains("max live") && page.contains(" 1,040 "), "{page}");
}

#[test]
fn without_a_trace_what_is_live_is_exact_or_absent() {
    let place = scratch("highest-json");
    for (options, of_b) in [(&["--mode", "trace"][..], Some(400)), (&["--mode=stacks"], None)] {
        let place = place.join(format!("json-{}", options.len()));
        std::fs::create_dir_all(&place).expect("a directory");
        let report = report(&recording("highest.c", &place, options), &place);
        let process = &list(&report, "processes")[0];
        let of = |name: &str| {
            let sites = list(process, "sites").iter();
            let is_it = |site: &&serde_json::Value| {
                frames(process, site).last().is_some_and(|frame| function(frame) == name)
            };
            let mut found = sites.filter(is_it).map(|site| site["live_requested_bytes"].as_u64());
            found.next().unwrap_or_else(|| panic!("{name}"))
        };
        assert_eq!((of("a"), of("b"), of("e")), (Some(200), of_b, Some(0)));
    }
}

/// A relabelled block is removed from a stack whose label the filter excludes.
#[test]
fn filtered_labels_are_not_live() {
    let place = scratch("highest-filtered");
    recording("highest.c", &place, &["--mode", "trace"]);
    let query =
        "SELECT max_live_bytes FROM stacks WHERE frame=d FORMAT format(\"%max_live_bytes%\")";
    assert_eq!(asked(&place, query, &[]).trim(), "400");
    assert_eq!(asked(&place, query, &["--ignore", "label:rows"]).trim(), "200");
}

#[test]
fn a_reset_begins_anew() {
    let place = scratch("highest-reset");
    recording("trace_reset.c", &place, &["--mode", "trace"]);
    let query = |function: &str| {
        format!(
            "SELECT max_live_bytes,live_requested_bytes FROM stacks WHERE frame={function} \
             FORMAT format(\"%max_live_bytes% %live_requested_bytes%\")"
        )
    };
    let since = |function: &str| asked(&place, &query(function), &[]).trim().to_owned();
    let whole =
        |function: &str| asked(&place, &query(function), &["--from-start"]).trim().to_owned();
    assert_eq!((&*since("old"), &*since("fresh")), ("832 500", "1000 200"));
    assert_eq!((&*whole("old"), &*whole("fresh")), ("1040 500", "1000 200"));
}
