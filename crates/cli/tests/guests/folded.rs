//! Folded stacks of a real program: every line has a path and a value, and the values are the
//! totals.

use std::collections::BTreeSet;

use crate::harness::{Outcome, heaptide, recorded, run, scratch};
use crate::real::python;
use crate::recording::{list, number};
use heaptide_fixtures::skips::skip;
use serde_json::Value;

/// What a line says: functions, and a value.
fn lines(out: &str) -> Vec<(Vec<&str>, i128)> {
    let line = |line: &'_ str| -> (usize, i128) {
        let at = line.rfind(' ').expect("a value");
        (at, line[at + 1..].parse().expect("a number"))
    };
    let parted = out.lines().map(|whole| {
        let (at, value) = line(whole);
        (whole[..at].split(';').collect(), value)
    });
    parted.collect()
}

#[test]
fn folded_stacks_of_python_add_up() {
    let Some(python) = python() else {
        return skip("python3");
    };
    let place = scratch("folded-python");
    let recording = place.join("a.heaptide");
    let script = "import json, threading\n\
        def work(): return json.dumps([{'a': i} for i in range(3000)])\n\
        kept = [threading.Thread(target=work) for _ in range(3)]\n\
        [t.start() for t in kept]; [t.join() for t in kept]";
    let outcome = run(
        recorded(&recording, &[]).env("PYTHONMALLOC", "malloc").args([&python, "-c", script]),
        &place,
    );
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let prints = |words: &str| {
        let words = words.split_whitespace();
        let mut command = heaptide();
        let Outcome { status, stdout, stderr } =
            run(command.args(words).arg(&recording).args(["--process", "all"]), &place);
        assert_eq!((status, &*stderr), (0, ""));
        stdout
    };
    let report: Value = serde_json::from_str(&prints("report --format json")).expect("JSON");
    let process = &report["processes"][0];
    let lanes: BTreeSet<&str> =
        list(process, "lanes").iter().filter_map(|lane| lane["name"].as_str()).collect();
    for measure in ["at_peak_bytes", "allocations", "usable_bytes", "live_blocks"] {
        let total = number(&process["totals"], measure);
        let mut counts = BTreeSet::new();
        for words in ["", "--annotate", "--per-thread", "--scopes-and-stacks"] {
            let out = prints(&format!("export --format folded --metric {measure} {words}"));
            let lines = lines(&out);
            assert_eq!(lines.iter().map(|line| line.1).sum::<i128>(), total, "{measure} {words}");
            assert!(lines.iter().all(|(path, _)| path.iter().all(|name| !name.is_empty())));
            match words {
                "--per-thread" => assert!(lines.iter().all(|(path, _)| lanes.contains(path[0]))),
                "--annotate" => assert!(lines.iter().all(|(path, _)| {
                    path.last()
                        .is_some_and(|note| note.starts_with('[') && note.ends_with(" each]"))
                })),
                _ => {}
            }
            counts.extend((words != "--per-thread").then_some(lines.len()));
        }
        assert_eq!(counts.len(), 1, "{measure}: a stack is a line, whatever stands in it");
    }
}
