//! Folded stacks of a real program: every line has a path and a value, and the values add up to the
//! totals. Also the dump of all stacks with exact values.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::{Guest, Outcome, heaptide, recorded, run, scratch};
use crate::programs::python;
use crate::recording::{list, number};
use heaptide_fixtures::skips::skip;
use serde_json::Value;

/// Parses lines into functions and a value.
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

/// Parses the paragraphs of a dump into values by name, and lines of functions.
fn paragraphs(dump: &str) -> Vec<(BTreeMap<&str, i128>, Vec<&str>)> {
    fn value(word: &str) -> (&str, i128) {
        let (name, value) = word.split_once('=').expect("a name");
        (name, value.parse().expect("a number"))
    }
    fn paragraph(text: &str) -> (BTreeMap<&str, i128>, Vec<&str>) {
        let mut lines = text.lines();
        let values = lines.next().and_then(|line| line.strip_prefix("stack ")).expect("values");
        (values.split(' ').map(value).collect(), lines.collect())
    }
    let (_, stacks) = dump.split_once("\n\n").expect("a heading");
    stacks.split("\n\n").map(paragraph).collect()
}

#[test]
fn a_dump_has_all_stacks_with_exact_values() {
    let place = scratch("dump");
    let recording = place.join("a.heaptide");
    let program = Guest::read("timesteps.c").build("dump", &[]);
    let outcome = run(recorded(&recording, &[]).arg(program), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let prints = |words: &str| {
        let outcome = run(heaptide().args(words.split(' ')).arg(&recording), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{words}");
        outcome.stdout
    };
    let dump = prints("export --format stacks --metric allocations");
    let stacks = paragraphs(&dump);
    let report: Value = serde_json::from_str(&prints("report --format json")).expect("JSON");
    let totals = &report["processes"][0]["totals"];
    for metric in ["allocations", "frees", "requested_bytes", "usable_bytes", "live_bytes"] {
        let sum: i128 = stacks.iter().map(|(values, _)| values[metric]).sum();
        assert_eq!(sum, number(totals, metric), "{metric}");
    }
    let of = |function: &str| {
        let has = |line: &&str| line.contains(&format!(" {function} at "));
        let found = stacks.iter().filter(|(_, lines)| lines.iter().any(has));
        found.collect::<Vec<_>>()
    };
    let [(values, lines)] = of("TimeIncrement")[..] else { panic!("one stack: {dump}") };
    let named = ["allocations", "frees", "requested_bytes", "live_bytes", "largest_bytes"];
    assert_eq!(named.map(|name| values[name]), [50, 50, 5000, 0, 100], "{values:?}");
    assert!(lines[0].starts_with("#0 block at ") && lines[0].contains(".h:"), "{lines:?}");
    assert!(lines[1].contains("/timesteps.c:") && lines[1].contains(" from /"), "{lines:?}");
    // What stays live: 8000 and 24,000 bytes, on different stacks.
    let kept = prints("export --format stacks --metric live_blocks");
    let kept = paragraphs(&kept);
    let values: Vec<_> =
        kept.iter().map(|(v, _)| (v["live_blocks"], v["requested_bytes"])).collect();
    assert_eq!(values.len(), 2, "{kept:?}");
    assert!(values.contains(&(1, 8000)) && values.contains(&(1, 24_000)), "{values:?}");
    let table = prints("report --by stack --metric allocations");
    assert!(table.contains("allocations       frees      requested"), "{table}");
}
