//! The first answers about memory that is not where a view looks first: mapped and partly written,
//! allocated after the peak, compared with another run.

use crate::harness::{Guest, Outcome, clean, heaptide, recorded, run, scratch};
use crate::programs::python;
use heaptide_fixtures::skips::skip;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Records `first_answers.c` with these arguments, and returns the place and what it printed.
fn record(name: &str, words: &[&str]) -> (PathBuf, String) {
    let place = scratch(name);
    let program = Guest::read("first_answers.c").build("first_answers", &[]);
    let outcome = run(recorded(&place.join("a.heaptide"), &[]).arg(program).args(words), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    (place, outcome.stderr)
}

fn ask(place: &Path, words: &[&str]) -> Outcome {
    run(clean(heaptide()).args(words).env_remove("COLUMNS").current_dir(place), place)
}

/// Returns the sentences at the begin of a report.
fn sentences(place: &Path) -> String {
    let report = ask(place, &["report", "a.heaptide"]).stdout;
    report.split("\n\n").next().unwrap_or_default().replace('\n', " ")
}

/// Of 200 MiB, 90 are written: address space for the most part, but most of the resident memory.
#[test]
fn what_a_program_maps_and_writes_in_part_comes_first() {
    let (place, _) = record("touched", &["touched", "200", "90"]);
    let said = sentences(&place);
    let mapped = " The program mapped memory, by `map_much [first_answers]`: 90.0 MiB of it are \
                  resident, ";
    assert!(said.contains(mapped), "{said}");
    let heap = " holds 977 KiB, 100% of peak usage of the heap (977 KiB after ";
    assert!(said.contains(heap), "{said}");
    let (place, _) = record("touched-little", &["touched", "200", "0"]);
    let said = sentences(&place);
    assert!(!said.contains("mapped memory"), "{said}");
    assert!(said.contains(", 100% of peak usage (977 KiB after "), "{said}");
}

/// Only the heap was compared, of which both had the same.
#[test]
fn a_difference_contains_what_the_report_counts() {
    let (place, _) = record("mapped-more", &["touched", "60", "60"]);
    let (less, _) = record("mapped-less", &["touched", "20", "20"]);
    let less = less.join("a.heaptide");
    let less = less.to_str().expect("a path");
    for format in ["text", "json"] {
        let options = ["diff", less, "a.heaptide", "--fail-above", "1%", "--format", format];
        let grown = ask(&place, &options);
        assert_eq!(grown.status, 1, "{}{}", grown.stdout, grown.stderr);
        assert!(grown.stderr.contains("grew from 21.0 MiB to 61.0 MiB"), "{}", grown.stderr);
    }
    // One side is mostly untouched, so that its report has the heap alone.
    let (untouched, _) = record("mapped-untouched", &["touched", "60", "1"]);
    let untouched = untouched.join("a.heaptide");
    let untouched = untouched.to_str().expect("a path");
    let same = ask(&place, &["diff", untouched, "a.heaptide", "--fail-above", "1%"]);
    assert_eq!(same.status, 0, "{}{}", same.stdout, same.stderr);
}

/// A trace has no events of mappings, so the first sentence was about the heap alone.
#[test]
fn the_first_sentence_does_not_depend_on_a_trace() {
    let (place, _) = record("untraced", &["touched", "60", "60"]);
    let program = Guest::read("first_answers.c").build("first_answers", &[]);
    let traced = place.join("traced.heaptide");
    let mut command = recorded(&traced, &["--mode", "trace"]);
    let outcome = run(command.arg(program).args(["touched", "60", "60"]), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let known = "`map_much` holds 60.0 MiB";
    for view in ["report", "peak", "tree"] {
        let [one, other] = ["a.heaptide", "traced.heaptide"].map(|recording| {
            let text = ask(&place, &[view, recording]).stdout;
            let text = text.lines().take(2).collect::<String>();
            let words = text.split_whitespace().take_while(|word| *word != "after");
            words.filter(|word| !word.ends_with(')')).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(one, other, "{view}");
        assert!(view != "report" || one.contains(known), "{view}");
    }
    let events = ask(&place, &["report", "--by", "stack", "traced.heaptide"]).stdout;
    assert!(!events.contains("map_much"), "{events}");
}

/// A function's blocks of stacks that had none at the peak were not counted.
#[test]
fn what_a_function_allocates_after_the_peak_is_its_own() {
    let (place, _) = record("late", &["late"]);
    let said = sentences(&place);
    assert!(said.contains("`keep` (first_answers.c :"), "{said}");
    assert!(said.ends_with(", 2.86 MiB live at exit."), "{said}");
}

/// `heaptide run` and `heaptide report` named different functions of Python.
#[test]
fn the_summary_and_the_report_begin_with_the_same_sentence() {
    let Some(python) = python() else { return skip("python3") };
    let place = scratch("same-sentence");
    let recording = place.join("a.heaptide");
    let mut command = clean(heaptide());
    command.args(["run", "-o"]).arg(&recording).arg("--").arg(python).args(["-c", "pass"]);
    let summary = run(&mut command, &place);
    assert_eq!(summary.status, 0, "{}", summary.stderr);
    let said = sentences(&place);
    let (_, said) = said.split_once("-c pass ").expect("the command first");
    let first = summary.stderr.lines().next().unwrap_or_default();
    assert_eq!(first, format!("heaptide: {said}"));
}

/// The kernel states that the script does not exist.
#[test]
fn a_script_without_its_interpreter_is_named() {
    let place = scratch("no-interpreter");
    let script = place.join("script");
    fs::write(&script, "#!/no/such/interpreter -x\n").expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its rights");
    let outcome = ask(&place, &["run", "-o", "a.heaptide", "--", "./script"]);
    let expected =
        "cannot run ./script: /no/such/interpreter, which it names after `#!`, is missing";
    assert_eq!(outcome.status, 2, "{}", outcome.stderr);
    assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
}
