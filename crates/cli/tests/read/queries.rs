//! Queries and their results, in `tests/queries/*.test`: a line names the source, `>` begins a
//! query, `!` output on standard error. `UPDATE_EXPECT=1` rewrites the results.

use crate::harness::{self, Guest, heaptide, programs, recorded, report, run, scratch};
use std::fs;
use std::path::{Path, PathBuf};

fn queries() -> PathBuf {
    programs().join("../queries")
}

/// Runs the queries of a file and compares the results.
fn check(name: &str) {
    check_with(name, &["--exact"]); // known numbers are exact
}

/// The same with options.
fn check_with(name: &str, options: &[&str]) {
    let path = queries().join(format!("{name}.test"));
    let text = fs::read_to_string(&path).expect("a test");
    let place = scratch(&format!("queries-{name}"));
    let (head, rest) = text.split_once("\n\n> ").expect("a query");
    let asked = source(head, name, &place);
    let mut expected = format!("{head}\n");
    for block in rest.split("\n\n> ") {
        let lines: Vec<&str> = block.lines().collect();
        let count = lines.iter().skip(1).take_while(|line| line.starts_with("> ")).count() + 1;
        let query: Vec<&str> =
            lines[..count].iter().map(|line| line.trim_start_matches("> ")).collect();
        let outcome = run(
            heaptide()
                .current_dir(&place)
                .arg("query")
                .args(options)
                .arg(query.join("\n"))
                .arg(&asked),
            &place,
        );
        expected.push_str(&format!("\n> {}\n", query.join("\n> ")));
        expected.push_str(&outcome.stdout);
        for line in outcome.stderr.lines() {
            expected.push_str(&format!("! {line}\n"));
        }
        assert_eq!(outcome.status, if outcome.stdout.is_empty() { 2 } else { 0 }, "{outcome:?}");
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, expected).expect("a test");
    } else {
        assert_eq!(text, expected, "{}", path.display());
    }
}

/// Returns the source of the queries: a file next to the test, or a recording of a guest.
fn source(head: &str, name: &str, place: &Path) -> PathBuf {
    let line = head.lines().last().expect("what is asked");
    if let Some(file) = line.strip_prefix("file ") {
        return queries().join(file);
    }
    let words: Vec<&str> =
        line.strip_prefix("program ").expect("a program").split_whitespace().collect();
    let program = Guest::read(words[0]).build(&format!("queries-{name}"), &[]);
    let recording = place.join("app.heaptide");
    let outcome = run(recorded(&recording, &words[1..]).arg(program), place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    recording
}

#[test]
fn units() {
    check_with("units", &[]);
}

#[test]
fn operators() {
    check("operators");
}

#[test]
fn clauses() {
    check("clauses");
}

#[test]
fn formats() {
    check("formats");
}

#[test]
fn time_steps() {
    harness::check("timesteps.c");
    check("timesteps");
}

#[test]
fn scopes_are_ordered_by_first_entry_or_by_path() {
    harness::check("scope_order.c");
    check("scope-order");
}

#[test]
fn events_and_lifetimes() {
    check("trace-lifetimes");
}

#[test]
fn events_of_labels() {
    check("trace-labels");
}

#[test]
fn labelled_memory_has_its_size_in_sites() {
    check("labels-by-size");
}

#[test]
fn dimensions_of_labels() {
    check("shapes");
    check("trace-shapes");
}

#[test]
fn live_bytes_in_scopes() {
    check("scope-peaks");
}

/// With several threads it is as exact as the peak.
#[test]
fn live_bytes_in_scopes_of_threads() {
    let place = scratch("scope-peaks-threads");
    let program = Guest::read("scope_peaks_threads.c").build("scope_peaks_threads.c", &[]);
    let recording = place.join("app.heaptide");
    let outcome = run(recorded(&recording, &["--mode", "scopes"]).arg(program), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let query = "SELECT * FROM scopes WHERE value=work FORMAT format(\"%peak_bytes%\")";
    let outcome = run(heaptide().args(["query", query]).arg(&recording), &place);
    let peak: u64 = outcome.stdout.trim().parse().expect("a number");
    let report = report(&recording, &place);
    let bound = report["processes"][0]["totals"]["peak_bound_bytes"].as_u64().expect("a number");
    assert!(bound > 0 && peak.abs_diff(1_300_000) <= bound + 8192, "{peak}, within {bound}");
}

#[test]
fn highest_live_bytes() {
    check("highest");
    check("highest-counters");
}

/// Events have the same results as sites.
#[test]
fn events_of_time_steps() {
    check("trace-timesteps");
}

#[test]
fn traces_of_reallocations() {
    check("trace-realloc");
}

#[test]
fn traces_of_threads() {
    check("trace-cross");
}

#[test]
fn traces_of_a_hydrodynamics_code() {
    check("trace-lulesh");
}

#[test]
fn without_a_trace_there_are_no_events() {
    let place = scratch("queries-no-trace");
    let recording = source("program timesteps.c", "no-trace", &place);
    for table in ["events", "lifetimes"] {
        let mut command = heaptide();
        command.arg("query").arg(format!("SELECT count() FROM {table}")).arg(&recording);
        let outcome = run(&mut command, &place);
        assert_eq!((outcome.status, &*outcome.stdout), (1, ""));
        let expected = format!(
            "heaptide: {}: recorded without a trace, which the tables events and lifetimes \
             require; record one with `heaptide run --mode trace`\n",
            recording.display()
        );
        assert_eq!(outcome.stderr, expected);
    }
}

#[test]
fn time_steps_by_size() {
    check("timesteps-by-size");
}

/// Every command line in the documentation succeeds, one after the other.
#[test]
fn examples_of_the_page() {
    let place = scratch("queries-page");
    source("program timesteps.c --by-size --mode trace", "page", &place);
    fs::copy(queries().join("numbers.cali"), place.join("profile.cali")).expect("a file");
    let page = fs::read_to_string(programs().join("../../docs/query.md")).expect("the page");
    let fenced = page.split("```\n").skip(1).step_by(2);
    let lines: Vec<&str> =
        fenced.flat_map(str::lines).filter(|line| line.starts_with("heaptide query ")).collect();
    assert!(lines.len() >= 8, "{lines:?}");
    for line in lines {
        let command = line.replacen("heaptide", env!("CARGO_BIN_EXE_heaptide"), 1);
        let mut shell = std::process::Command::new("sh");
        let outcome = run(shell.current_dir(&place).arg("-c").arg(command), &place);
        assert_eq!(outcome.status, 0, "{line}: {outcome:?}");
    }
}

/// Files of several processes, standard input, the option for the format, and output files.
#[test]
fn sources_and_outputs() {
    let place = scratch("queries-sources");
    let numbers = queries().join("numbers.cali");
    let ask = |words: &[&str]| {
        let outcome = run(heaptide().current_dir(&place).arg("query").args(words), &place);
        (outcome.status, outcome.stdout, outcome.stderr)
    };
    let file = numbers.to_str().expect("a path");
    let query = "SELECT sum(x) GROUP BY none";
    assert_eq!(ask(&[query, file]).1, "sum#x\n   66\n");
    assert_eq!(ask(&[query, file, file, "--format", "expand"]).1, "sum#x=132\n");
    assert_eq!(ask(&[query, file, "-o", "out.txt"]), (0, String::new(), String::new()));
    assert_eq!(ask(&[query, file, "-o", "out.txt"]).0, 2);
    assert_eq!(fs::read_to_string(place.join("out.txt")).expect("out.txt"), "sum#x\n   66\n");
    let from_stdin = format!("{} query '{query}' - < {file}", env!("CARGO_BIN_EXE_heaptide"));
    let mut shell = std::process::Command::new("sh");
    assert_eq!(run(shell.arg("-c").arg(from_stdin), &place).stdout, "sum#x\n   66\n");
    fs::write(place.join("bad.cali"), "no\n").expect("a file");
    let (status, _, error) = ask(&[query, "bad.cali"]);
    assert!(status == 2 && error.starts_with("heaptide: bad.cali: line 1: expected"), "{error}");
    assert!(ask(&["--tables"]).1.starts_with("sites "));
    assert!(ask(&["--describe", "lanes"]).1.contains("lane, thread"));
    assert_eq!(ask(&["--describe", "nothing"]).0, 2);
    assert_eq!(ask(&[query, file, "--format", "nice"]).0, 2);
    assert_eq!(ask(&[]).0, 2);
    let (status, _, error) = ask(&["SELECT a GROUP \u{1b}a", file]);
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!((status, lines.len()), (2, 3), "{error}");
    assert!(lines[0].starts_with("heaptide: query: "), "{error}");
    assert_eq!(lines[1..], ["  SELECT a GROUP  a", "                 ^"], "{error}");
}
