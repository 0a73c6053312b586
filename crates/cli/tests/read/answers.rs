//! Sizes, leaks, timeline and peak: known numbers of guests, and invariants of real programs.

use crate::expectations::evaluate;
use crate::harness::{
    Guest, Outcome, check, clean, heaptide, programs, recorded, report, run, scratch,
};
use crate::programs::python;
use crate::recording::{function, list, number};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A recording to query.
struct Recorded {
    place: PathBuf,
    recording: PathBuf,
}

impl Recorded {
    /// Records a guest program.
    fn guest(program: &str, name: &str, options: &[&str]) -> Recorded {
        let program = Guest::read(program).build(program, &[]);
        let place = scratch(name);
        let recording = place.join("a.heaptide");
        let outcome = run(recorded(&recording, options).arg(program), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        Recorded { place, recording }
    }

    /// Records a real program, with periodic snapshots.
    fn real(name: &str, words: &[&str]) -> Recorded {
        let place = scratch(name);
        let recording = place.join("a.heaptide");
        let mut command = recorded(&recording, &["--snapshot-every", "100ms"]);
        let command = command.args(words).current_dir(&place).env("PYTHONMALLOC", "malloc");
        let Outcome { status, stderr, .. } = run(command, &place);
        assert_eq!((status, &*stderr), (0, ""));
        Recorded { place, recording }
    }

    fn ask(&self, words: &str) -> Outcome {
        let mut command = clean(heaptide());
        command.args(words.split_whitespace()).arg(&self.recording).env_remove("COLUMNS");
        run(&mut command, &self.place)
    }

    /// Returns the output of a command, which must have this status.
    fn says(&self, words: &str, status: i32) -> String {
        let outcome = self.ask(words);
        assert_eq!(outcome.status, status, "{words}: {}", outcome.stderr);
        let steers = |c: char| c.is_control() && c != '\n';
        assert!(!outcome.stdout.contains(steers), "{words}: {}", outcome.stdout);
        outcome.stdout
    }

    /// Returns the only process in the output of a command as JSON.
    fn one(&self, words: &str, status: i32) -> Value {
        let all = self.json(words, status);
        assert_eq!(list(&all, "processes").len(), 1);
        all["processes"][0].clone()
    }

    fn json(&self, words: &str, status: i32) -> Value {
        let text = self.says(&format!("{words} --format json"), status);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{words}: {e}"))
    }

    fn report(&self) -> Value {
        report(&self.recording, &self.place)
    }
}

/// Returns the innermost function of a leak.
fn innermost<'a>(process: &'a Value, leak: &Value) -> &'a str {
    let last = list(leak, "stack").last().and_then(Value::as_u64).expect("a stack");
    function(&list(process, "frames")[last as usize])
}

fn sum(rows: &[Value], measure: &str) -> i128 {
    rows.iter().map(|row| number(row, measure)).sum()
}

#[test]
fn leaks_by_stack() {
    let of = Recorded::guest("leaks.c", "answers-leaks", &[]);
    let process = of.one("leaks", 1);
    let report = of.report();
    let leaks = list(&process, "leaks");
    for (name, blocks, of_all) in [("leaky", 20, 20), ("forgetful", 10, 30), ("grows", 1, 9)] {
        let leak = leaks.iter().find(|leak| innermost(&process, leak) == name).expect(name);
        let found = ["live_blocks", "allocations"].map(|measure| number(leak, measure));
        assert_eq!(found, [blocks, of_all], "{name}");
        let selector = format!("leaf:{name}");
        if name != "grows" {
            assert_eq!(number(leak, "live_bytes"), evaluate(&report, &selector, "live_bytes"));
        }
    }
    assert_eq!(leaks.len(), 3, "the buffer of stdout is no leak");
    assert_eq!(number(&process, "leaked_blocks"), 31);
    let text = of.says("leaks", 1);
    let first = text.lines().nth(1).expect("a second line");
    assert!(first.starts_with("live at exit: ") && first.ends_with(" in 31 blocks from 3 stacks"));
    assert!(text.contains(" in 10 of 30 blocks\n      forgetful "), "{text}");
    assert_eq!(of.says("leaks --top 1", 1).matches("      main ").count(), 1);
    assert_eq!(of.one("leaks --focus ^leaky$", 1)["leaked_blocks"], 20);
    assert!(of.says("leaks --focus ^clean$", 0).contains("live at exit: nothing\n"));
    assert!(of.says("leaks --focus nobody", 0).contains("live at exit: nothing\n"));
    let all = of.one("leaks --no-built-in", 1);
    assert_eq!(number(&all, "leaked_bytes"), number(&all, "live_bytes"));
}

#[test]
fn leaks_that_are_suppressed() {
    let of = Recorded::guest("leaks.c", "answers-suppressed", &[]);
    let known = of.place.join("known.txt");
    let with = |text: &str, status| {
        fs::write(&known, text).expect("suppressions");
        let words = format!("leaks --suppressions {}", known.display());
        (of.one(&words, status), of.says(&words, status))
    };
    let (process, text) =
        with("# known\nleak:^leaky$\nleak:forget*ful\n\nrace:main\nleak:nowhere\n", 1);
    let used = |i: usize| {
        let row = &list(&process, "suppressions")[i];
        (row["pattern"].as_str().expect("a pattern").to_owned(), number(row, "blocks"))
    };
    let expected = [("^leaky$", 20), ("forget*ful", 10), ("nowhere", 0)];
    assert_eq!([used(0), used(1), used(2)], expected.map(|(name, n)| (name.to_owned(), n)));
    assert_eq!(innermost(&process, &list(&process, "leaks")[0]), "grows");
    assert!(text.contains("\nSuppressions not used: nowhere\n"), "{text}");
    for all in ["leak:main", "leak:leaks.c$", "leak:/leaks-c$\n", "leak:^m*n$"] {
        let (process, text) = with(all, 0);
        assert_eq!(number(&list(&process, "suppressions")[0], "blocks"), 31, "{all}");
        assert!(text.contains("live at exit: nothing that is not suppressed\n"), "{text}");
    }
    for wrong in ["leak:main\nmain\n", "leak:\n"] {
        fs::write(&known, wrong).expect("suppressions");
        let outcome = of.ask(&format!("leaks --suppressions {}", known.display()));
        assert_eq!((outcome.status, outcome.stderr.lines().count()), (2, 1));
        assert!(outcome.stderr.contains("known.txt: line "), "{}", outcome.stderr);
    }
    assert_eq!(of.ask("leaks --suppressions no/such/file").status, 2);
    assert_eq!(of.ask("leaks --process 1").status, 1);
}

#[test]
fn leaks_without_stacks() {
    let of = Recorded::guest("leaks.c", "answers-counters", &["--mode", "counters"]);
    let process = of.one("leaks", 1);
    assert_eq!(list(&process, "leaks").len(), 1);
    assert_eq!(sum(list(&process, "leaks"), "live_bytes"), number(&process, "live_bytes"));
    assert!(of.says("leaks", 1).contains("Recorded with --mode counters: by thread, not by stack"));
    let of = Recorded::guest("leaks.c", "answers-scopes", &["--mode", "scopes"]);
    assert!(of.says("leaks", 1).contains("      (no scope)\n"));
    assert!(of.says("peak", 0).contains("  live at exit "));
}

/// Memory that libraries keep is suppressed: a C++ program that frees all its blocks has no leaks.
#[test]
fn leaks_of_libraries() {
    for (compiler, source, text) in [
        (
            "c++",
            "clean.cpp",
            "#include <iostream>\n#include <locale>\n#include <vector>\n\
             int main() { std::vector<int> v(9); std::cout << v.size() << std::endl; }\n",
        ),
        ("rustc", "clean.rs", "fn main() { println!(\"{:?}\", vec![1, 2]); }\n"),
    ] {
        let place = scratch(&format!("answers-{compiler}"));
        fs::write(place.join(source), text).expect("a source");
        let mut command = Command::new(compiler);
        let built = run(command.args(["-g", "-o", "clean", source]).current_dir(&place), &place);
        assert_eq!(built.status, 0, "{}", built.stderr);
        let recording = place.join("a.heaptide");
        run(recorded(&recording, &[]).arg(place.join("clean")), &place);
        let of = Recorded { place, recording };
        let found = of.one("leaks", 0);
        assert!(number(&found, "live_blocks") > 0 && number(&found, "leaked_blocks") == 0);
        assert!(of.says("leaks", 0).contains("built in: "));
        of.says("leaks --no-built-in", 1);
    }
}

#[test]
fn sizes_of_blocks() {
    let known = [(0, 1), (10, 5), (100, 1), (500, 1), (800, 1), (1000, 3), (1600, 1), (4000, 1)];
    for mode in ["stacks", "scopes"] {
        let options = ["--mode", mode, "--by-size"];
        let of = Recorded::guest("by_size.c", &format!("answers-sizes-{mode}"), &options);
        let process = of.one("histogram", 0);
        assert_eq!(process["exact"]["recorded"], true);
        let sizes = list(&process["exact"], "sizes");
        for (size, allocations) in known {
            let row = sizes.iter().find(|row| number(row, "size") == size).expect("the size");
            let found = [number(row, "allocations"), number(row, "requested_bytes")];
            assert_eq!(found, [allocations, size * allocations], "{size} in {mode}");
        }
        assert_eq!(sum(sizes, "allocations"), number(&process, "allocations"));
        for class in list(&process, "classes") {
            assert_eq!(class["requested_bytes"]["exact"], true, "{class}");
        }
        assert!(of.says("report --by size", 0).contains("recorded for 100% of the allocations"));
    }
    let of = Recorded::guest("temporary.c", "answers-one-size", &[]);
    let process = of.one("histogram", 0);
    let sizes = list(&process["exact"], "sizes");
    let of_size = |size| sizes.iter().find(|row| number(row, "size") == size).expect("the size");
    // `brief` allocates every size from 0 to 999 at one site; each other site allocates a single
    // size.
    assert!(sizes.iter().all(|row| number(row, "size") != 999), "{sizes:?}");
    assert_eq!(number(of_size(27), "temporary"), 10);
    assert_eq!(number(of_size(20), "allocations"), 100);
    assert_eq!(number(of_size(11), "live_blocks"), 5);
    assert!(of.says("histogram --top 1", 0).contains("`heaptide run --by-size` records"));
}

#[test]
fn the_peak_and_who_held_it() {
    let of = Recorded::guest("peak.c", "answers-peak", &[]);
    let (process, report) = (of.one("peak", 0), of.report());
    for name in ["first", "second", "third"] {
        let row = list(&process, "functions").iter().find(|row| row["function"] == name);
        for measure in ["at_peak_bytes", "at_peak_blocks"] {
            let known = evaluate(&report, &format!("leaf:{name}"), measure);
            assert_eq!(row.map_or(0, |row| number(row, measure)), known, "{name} {measure}");
        }
    }
    for rows in ["functions", "scopes", "lanes", "sites", "kinds"] {
        let found = sum(list(&process, rows), "at_peak_bytes");
        assert_eq!(found, number(&process, "at_peak_bytes"), "{rows}");
    }
    let text = of.says("peak --top 2", 0);
    assert!(text.contains("\nBy function\n") && text.contains("other function"), "{text}");
}

#[test]
fn a_known_course_over_time() {
    check("over_time.c");
    let of = Recorded::guest("over_time.c", "answers-time", &[]);
    let process = of.one("timeline", 0);
    let names = |rows: &str, key: &str| -> Vec<String> {
        let name = |row: &Value| row[key].as_str().unwrap_or_default().to_owned();
        list(&process, rows).iter().map(name).collect()
    };
    assert_eq!(names("snapshots", "name"), ["half", "full", "freed"]);
    assert_eq!(names("windows", "name"), ["build"]);
    assert_eq!(process["live_bytes"], of.report()["processes"][0]["totals"]["live_bytes"]);
    let text = of.says("timeline", 0);
    for lane in ["\n  windows   ", "\n    marks   ", "\nsnapshots   ", "  window build\n"] {
        assert!(text.contains(lane), "{lane}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.lines().nth(3).expect("a line").contains("peak 978 KiB after "), "{text}");
    let blocks = |csv: &str| -> Vec<String> {
        csv.lines().skip(1).map(|line| line.split(',').nth(2).expect("blocks").to_owned()).collect()
    };
    let held = of.says("timeline --site ^held$ --format csv", 0);
    assert_eq!(blocks(&held), ["50", "100", "20", "20"]);
    let held = of.one("timeline --site file:over_time --min-size 1000", 0);
    assert_eq!(sum(list(&held, "moments"), "live_blocks"), 190);
    assert!(of.says("timeline --site held", 0).contains("        20  "));
    assert_eq!(of.ask("timeline --site nobody").status, 1);
    assert_eq!(of.ask("timeline --site (").status, 2);
}

#[test]
fn short_programs_have_a_chart_too() {
    let of = Recorded::guest("leaks.c", "answers-short", &[]);
    let text = of.says("timeline --width 70", 0);
    assert!(text.contains(" ▼") && text.contains("█"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 70), "{text}");
    let outcome = of.ask("timeline --site leaky");
    assert_eq!((outcome.status, outcome.stderr.lines().count()), (1, 1));
    assert!(outcome.stderr.contains("heaptide run --snapshot-every 1s"), "{}", outcome.stderr);
}

/// Checks the output of every command against the report.
fn hold(of: &Recorded, site: &str) {
    let report = of.report();
    let total = |i: usize, measure: &str| number(&list(&report, "processes")[i]["totals"], measure);
    let each = |words: &str, status: i32| {
        let all = of.json(words, status);
        let processes = list(&all, "processes").to_vec();
        assert_eq!(processes.len(), list(&report, "processes").len(), "{words}");
        processes.into_iter().enumerate()
    };
    for (i, process) in each("histogram", 0) {
        let classes = list(&process, "classes");
        assert_eq!(sum(classes, "requested"), total(i, "allocations"));
        let bound = |of: &str, end: &str| -> i128 {
            classes.iter().map(|class| number(&class[of], end)).sum()
        };
        for measure in ["requested_bytes", "usable_bytes", "live_bytes"] {
            let bounds = bound(measure, "least")..=bound(measure, "most");
            assert!(bounds.contains(&total(i, measure)), "{measure}: {bounds:?}");
        }
    }
    for (i, process) in each("leaks", 1) {
        let suppressed = sum(list(&process, "suppressions"), "bytes");
        assert_eq!(number(&process, "leaked_bytes") + suppressed, total(i, "live_bytes"));
    }
    for (i, process) in each("peak", 0) {
        for rows in ["functions", "sites", "lanes"] {
            let found = sum(list(&process, rows), "at_peak_bytes");
            assert_eq!(found, total(i, "at_peak_bytes"), "{rows}");
        }
    }
    for (i, process) in each("timeline", 0) {
        assert_eq!(number(&process, "peak_bytes"), total(i, "peak_bytes"));
    }
    let exact = "report --by size --top 3";
    for words in ["histogram", "histogram --top 3 --sort live_bytes", exact, "peak", "timeline"] {
        let text = of.says(words, 0);
        assert!(text.lines().count() > 8, "{words}: {text}");
    }
    of.says("leaks --top 2", 1);
    of.says("timeline --format csv", 0);
    let text = of.says(&format!("timeline --site {site}"), 0);
    assert!(text.contains("\n         1 ") && text.contains("\n       end "), "{text}");
}

#[test]
fn answers_about_a_compiler() {
    let source = programs().join("backtrace.cpp");
    let source = source.to_str().expect("a path in UTF-8");
    let of = Recorded::real("answers-cc1plus", &["g++", "-O1", "-S", "-o", "a.s", source]);
    hold(&of, "xmalloc|xcalloc");
}

#[test]
fn answers_about_python() {
    let python = python().expect("python3 is installed");
    let script = "import json\nd = {str(i): [i, {'x': [str(i)]}] for i in range(30000)}\n\
                  assert json.loads(json.dumps(d)) == d";
    let of = Recorded::real("answers-python", &[&python, "-c", script]);
    hold(&of, "module:python");
}
