//! The known numbers of a guest program: read from its header and its output, and compared with a
//! report.
//!
//! A header line `// expect SELECTOR CONDITION…` or an output line `known SELECTOR CONDITION…`; a
//! condition is `MEASURE=N`, `MEASURE>=N` or `MEASURE<=N`. Values are summed over all processes of
//! the recording.
//!
//! ```text
//! totals                 the totals
//! recording              processes, lanes (the maximum per process), lost_events
//! function:A             sites with A anywhere on the stack
//! function:A>B>C         sites with A, B and C in this order, outermost first, others allowed
//! leaf:A                 sites whose innermost frame is A
//! depth:A                count: the maximum number of frames of A in a stack
//! lane:A                 lanes of this name
//! class:A                mappings of this class, with `_` for a space, in the sums of the report
//! device:API/N           the memory of a device, or of all with the number N (`device:N`), in the
//!                        sums of the report
//! scope:A>B              the scope path of exactly these values, outermost first; also `entered`
//! scope:                 no scope
//! scope+:A>B             the same including all paths inside it
//! label:A                blocks and memory with this label, or of this pool
//! label:A/KIND           one kind of these: heap, outside, pool_block, pool_chunk, …
//! window:A               the windows of this name: live_bytes and live_blocks are net changes,
//!                        peak_bytes is the maximum; `count` is their number
//! mark:A                 count: marks of this name and kind `mark`; `snapshot:A` and so on for the
//!                        other kinds of marks
//! ```
//!
//! A site counts in `function` and `leaf` as it does in the totals; in `label` including the blocks
//! that were moved to it by labelling. `largest_bytes` and `peak_bytes` of several sites are their
//! maximum.
//!
//! Other header lines: `// build: FLAGS` (`%` stands for the build directory), `// compiler: NAME`,
//! `// plugin: FILE.so SOURCE FLAGS`, `// args: …`, `// order: varies` (threads or timers decide
//! which stacks occur), `// losses: allowed` (the danger can lose events), `// trace: may end`
//! (there can be more events than are moved out in time).

use crate::recording::{counted, frames, function, list, number, sites};
use serde_json::Value;

/// A line of known numbers.
#[derive(Debug)]
pub struct Expectation {
    selector: String,
    conditions: Vec<(String, Relation, i128)>,
}

/// The relation of a metric to its known number.
#[derive(Clone, Copy, Debug)]
enum Relation {
    Equal,
    AtLeast,
    AtMost,
}

/// Returns the expectations in a text, each on a line that starts with `prefix`.
pub fn parse(text: &str, prefix: &str) -> Vec<Expectation> {
    text.lines().filter_map(|line| line.strip_prefix(prefix)).map(parse_line).collect()
}

fn parse_line(line: &str) -> Expectation {
    let mut words = line.split_whitespace();
    let selector = words.next().expect("a selector").to_owned();
    let conditions: Vec<_> = words.map(parse_condition).collect();
    assert!(!conditions.is_empty(), "no condition in: {line}");
    Expectation { selector, conditions }
}

fn parse_condition(word: &str) -> (String, Relation, i128) {
    let relations = [(">=", Relation::AtLeast), ("<=", Relation::AtMost), ("=", Relation::Equal)];
    for (sign, relation) in relations {
        if let Some((measure, value)) = word.split_once(sign) {
            let value = value.parse().unwrap_or_else(|_| panic!("not a number: {word}"));
            return (measure.to_owned(), relation, value);
        }
    }
    panic!("not a condition: {word}")
}

/// Checks a report against the expectations, and lists all that fail.
pub fn assert_met(report: &Value, expectations: &[Expectation]) {
    let failures: Vec<String> = expectations.iter().flat_map(|e| failures(report, e)).collect();
    assert!(failures.is_empty(), "known numbers differ:\n  {}", failures.join("\n  "));
}

fn failures(report: &Value, expectation: &Expectation) -> Vec<String> {
    let mut failures = Vec::new();
    for (measure, relation, known) in &expectation.conditions {
        let found = evaluate(report, &expectation.selector, measure);
        let (met, sign) = match relation {
            Relation::Equal => (found == *known, "="),
            Relation::AtLeast => (found >= *known, ">="),
            Relation::AtMost => (found <= *known, "<="),
        };
        if !met {
            let selector = &expectation.selector;
            failures.push(format!("{selector} {measure}: known {sign}{known}, found {found}"));
        }
    }
    failures
}

/// Returns the value of a selector and a metric.
pub fn evaluate<'a>(report: &'a Value, selector: &str, measure: &str) -> i128 {
    let (kind, argument) = selector.split_once(':').unwrap_or((selector, ""));
    let processes = list(report, "processes");
    match kind {
        "totals" => processes.iter().map(|p| number(&p["totals"], measure)).sum(),
        "recording" => recording(report, measure),
        "function" => {
            let path: Vec<&str> = argument.split('>').collect();
            sum_where(report, measure, |stack| contains_path(stack, &path))
        }
        "leaf" => sum_where(report, measure, |stack| stack.last() == Some(&argument)),
        "depth" => depth(report, argument),
        "lane" => {
            let lanes = processes.iter().flat_map(|p| list(p, "lanes"));
            lanes.filter(|l| l["name"] == argument).map(|l| number(l, measure)).sum()
        }
        "class" => {
            let mapped = processes.iter().map(|p| &p["mapped"]).filter(|m| !m.is_null());
            let classes = mapped.flat_map(|mapped| list(mapped, "classes"));
            let name = argument.replace('_', " ");
            classes.filter(|c| c["class"] == *name).map(|c| number(c, measure)).sum()
        }
        "device" => {
            let devices = processes.iter().filter_map(|p| p["device"].get("devices"));
            let devices = devices.flat_map(|devices| devices.as_array().expect("a list"));
            let is_it = |device: &&Value| {
                let number = device["device"].as_u64().map(|number| number.to_string());
                let number = number.unwrap_or_default();
                let api = device["api"].as_str().expect("a name").replace(' ', "_");
                argument == number || argument == format!("{api}/{number}")
            };
            devices.filter(is_it).map(|device| number(device, measure)).sum()
        }
        "scope" | "scope+" => {
            let path: Vec<&str> = argument.split('>').filter(|name| !name.is_empty()).collect();
            let scopes = processes.iter().flat_map(|p| scopes_at(p, &path));
            let row = |s: &'a Value| if kind == "scope+" { &s["inclusive"] } else { s };
            let of = |s| if measure == "entered" { s } else { row(s) };
            combine(scopes.map(|s| number(of(s), measure)), measure)
        }
        "label" => {
            let (name, kind) = match argument.rsplit_once('/') {
                Some((name, kind)) => (name, Some(kind)),
                None => (argument, None),
            };
            let labels = processes.iter().flat_map(|p| list(p, "labels"));
            let chosen =
                labels.filter(|l| l["label"] == name && kind.is_none_or(|kind| l["kind"] == kind));
            combine(chosen.map(|l| number(l, measure)), measure)
        }
        "window" => {
            let windows = processes.iter().flat_map(|p| list(p, "windows"));
            let chosen = windows.filter(|w| w["name"] == argument);
            match measure {
                "count" => chosen.count() as i128,
                _ => combine(chosen.map(|w| number(w, measure)), measure),
            }
        }
        "mark" | "snapshot" | "reset" | "on" | "off" => {
            assert_eq!(measure, "count", "unknown figure of marks: {measure}");
            let marks = processes.iter().flat_map(|p| list(p, "marks"));
            marks.filter(|m| m["kind"] == kind && m["name"] == argument).count() as i128
        }
        _ => panic!("unknown selector {selector}"),
    }
}

fn recording(report: &Value, measure: &str) -> i128 {
    let processes = list(report, "processes");
    match measure {
        "processes" => processes.len() as i128,
        "lanes" => processes.iter().map(|p| list(p, "lanes").len()).max().unwrap_or(0) as i128,
        "unmatched_frees" => processes.iter().map(|p| number(p, "unmatched_frees")).sum(),
        "lost_events" => processes.iter().map(|p| number(&p["totals"], "lost_events")).sum(),
        _ => panic!("unknown figure of a recording: {measure}"),
    }
}

fn sum_where(report: &Value, measure: &str, wanted: impl Fn(&[&str]) -> bool) -> i128 {
    let chosen = sites(report).filter(|(process, site)| {
        let stack: Vec<&str> = frames(process, site).into_iter().map(function).collect();
        wanted(&stack)
    });
    if measure == "sites" {
        return chosen.count() as i128;
    }
    combine(chosen.map(|(_, site)| counted(site, measure)), measure)
}

/// Combines the values of several rows.
fn combine(values: impl Iterator<Item = i128>, measure: &str) -> i128 {
    match measure {
        "largest_bytes" | "peak_bytes" => values.max().unwrap_or(0),
        _ => values.sum(),
    }
}

/// Returns the scopes of a process with exactly this path; the root for an empty path.
fn scopes_at<'a>(process: &'a Value, path: &[&str]) -> Vec<&'a Value> {
    let all = list(process, "scopes");
    let mut at = vec![0];
    for name in path {
        let inside = |i: &usize| {
            let scope = &all[*i];
            let parent = scope["parent"].as_u64().map(|parent| parent as usize);
            scope["value"] == *name && parent.is_some_and(|parent| at.contains(&parent))
        };
        at = (0..all.len()).filter(inside).collect();
    }
    at.into_iter().filter_map(|i| all.get(i)).collect()
}

fn contains_path(stack: &[&str], path: &[&str]) -> bool {
    let mut frames = stack.iter();
    path.iter().all(|name| frames.any(|frame| frame == name))
}

fn depth(report: &Value, name: &str) -> i128 {
    let count = |(process, site)| {
        frames(process, site).into_iter().filter(|frame| function(frame) == name).count()
    };
    sites(report).map(count).max().unwrap_or(0) as i128
}
