//! The findings of `heaptide advise` for small and real programs: those that are right, checked by
//! hand, and no others.
//!
//! A row has a program, how it runs, and its findings as `rule subject`. Names in real programs
//! depend on their versions, so a finding of those is only compared with the rules in the row.

use crate::advise::{found_in, recording};
use crate::harness::{Guest, clean, heaptide, programs, recorded, run, scratch};
use crate::programs::{is_installed, python};
use heaptide_fixtures::skips::skip;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::thread;

/// Guests: file, macro that is defined, findings.
const GUESTS: &[(&str, &str, &[&str])] = &[
    ("advise_service.cpp", "QUICK", &["temporary parse(int)"]),
    ("advise_fill.cpp", "FAULT", &["growth fill(std::vector<int>&)"]),
    ("advise_fill.cpp", "ALIKE", &[]),
    ("advise_fill.cpp", "SHORT", &[]),
    ("advise_trim.c", "FAULT", &[]),
    ("timesteps.c", "TABLE", &["per-iteration block"]),
    ("trace_lulesh.c", "TABLE", &[]),
    ("advise_cross_thread.c", "FAULT", &["cross-thread new_message"]),
    ("advise_cross_thread.c", "ALIKE", &[]),
    ("trace_cross.c", "TABLE", &["temporary contended"]),
    ("coroutines.c", "TABLE", &[]),
    ("leaks.c", "TABLE", &[]),
    ("deep.c", "TABLE", &[]),
    ("large.c", "TABLE", &[]),
    ("highest.c", "TABLE", &[]),
    ("temporary.c", "TABLE", &[]),
    ("owners.cpp", "TABLE", &[]),
    ("exceptions.cpp", "TABLE", &[]),
    ("wide.cpp", "TABLE", &[]),
];

/// Services that run for more than ten seconds, nearly all of which they wait.
const SERVICES: &[(&str, &str, &[&str])] = &[
    ("advise_service.cpp", "FAULT", &["unbounded ResponseCache::put(unsigned long)"]),
    ("advise_service.cpp", "LIMITED", &[]),
];

/// Programs in Rust: file, argument, findings.
const RUST: &[(&str, &str, &[&str])] = &[
    ("advise_fill.rs", "fault", &["growth advise_fill::fill"]),
    ("advise_fill.rs", "alike", &[]),
    ("owners.rs", "", &[]),
];

/// Programs in Python, as a file with an argument.
const PYTHON: &[(&str, &str, &[&str])] = &[
    ("advise_cache.py", "fault", &["python-cache render"]),
    ("advise_cache.py", "alike", &[]),
    ("advise_exceptions.py", "fault", &["python-exceptions parse"]),
    ("advise_exceptions.py", "alike", &[]),
    ("advise_fragmented.py", "fault", &["fragmentation the process"]),
    ("advise_fragmented.py", "alike", &[]),
];

/// Scripts of Python, none of which has a finding.
const PYTHON_SCRIPTS: &[(&str, &str)] = &[
    (
        "sort",
        "import random; random.seed(1); print(len(sorted(random.random() for _ in range(50000))))",
    ),
    (
        "json",
        "import json; d = [{'id': i, 't': ['a', str(i)]} for i in range(20000)]\n\
         print(len(json.loads(json.dumps(d))))",
    ),
    ("regex", "import re; print(len(re.findall('[0-9]+', 'abc 123 ' * 50000)))"),
    (
        "words",
        "import collections; c = collections.Counter(str(i % 5000) for i in range(100000))\n\
         print(len(c), c.most_common(1))",
    ),
    (
        "database",
        "import sqlite3; c = sqlite3.connect(':memory:'); c.execute('create table t(a)')\n\
         c.executemany('insert into t values(?)', ((i,) for i in range(30000)))\n\
         print(c.execute('select sum(a) from t').fetchone())",
    ),
    (
        "tasks",
        "import asyncio\n\
         async def one(n): await asyncio.sleep(0); return n\n\
         async def all(): return sum(await asyncio.gather(*[one(i) for i in range(3000)]))\n\
         print(asyncio.run(all()))",
    ),
    (
        "queue",
        "import queue, threading; q = queue.Queue(100); out = []\n\
         def take():\n\
         \x20   while (x := q.get()) is not None: out.append(len(x))\n\
         t = threading.Thread(target=take); t.start()\n\
         for i in range(10000): q.put(str(i) * 10)\n\
         q.put(None); t.join(); print(len(out))",
    ),
    (
        "errors",
        "def parse(i):\n\
         \x20   if i % 2: raise ValueError(i)\n\
         n = 0\n\
         for i in range(20000):\n\
         \x20   try: parse(i)\n\
         \x20   except ValueError as e: n += e.args[0]\n\
         print(n)",
    ),
];

/// Real programs: program, arguments, and the rules that may have findings.
const REAL: &[(&str, &[&str], &[&str])] = &[
    ("gcc", &["-O2", "-c", "small.c", "-o", "small.o"], &[]),
    // The compiler visits each tree with a set of its own, which it frees at once.
    ("g++", &["-O1", "-c", "small.cpp", "-o", "small2.o"], &["temporary"]),
    ("rustc", &["-Copt-level=0", "small.rs", "-o", "small3"], &[]),
    ("sort", &["-n", "-r", "numbers"], &[]),
    (
        "awk",
        &["{ s[$1 % 1000] += $1; l[NR] = $0 } END { for (k in s) n++; print n }", "numbers"],
        &[],
    ),
    (
        "perl",
        &["-ne", "push @l, [split]; $c{$_}++ for split; END { print scalar keys %c }", "numbers"],
        &[],
    ),
    ("sed", &["-e", "s/1/2/g", "numbers"], &[]),
    ("grep", &["-c", "77", "numbers"], &[]),
    ("xz", &["-c", "numbers"], &[]),
    // Each value is a block of 20 bytes or less.
    ("jq", &["-n", "[range(30000)] | map({a: ., b: \"x\\(.)\"}) | length"], &["tiny-blocks"]),
    (
        "sqlite3",
        &[
            ":memory:",
            "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n \
             where i < 30000) insert into t select i, hex(i * 7919) from n; \
             create index x on t(b); select count(*) from t a join t b on a.b = b.b;",
        ],
        &[],
    ),
    // Its words and lists of words are blocks of 16 bytes.
    (
        "bash",
        &["-c", "a=(); for i in {1..20000}; do a+=(\"item $i\"); done; echo ${#a[@]}"],
        &["tiny-blocks"],
    ),
    ("dot", &["-Tsvg", "graph.dot"], &[]),
    (
        "node",
        &["-e", "const m = new Map(); for (let i = 0; i < 200000; i++) m.set(i, 'x' + i)"],
        &[],
    ),
    ("git", &["-C", "ROOT", "log", "--stat", "-n", "30"], &["temporary"]),
    ("tar", &["cf", "archive", "numbers"], &[]),
    ("find", &["ROOT/crates", "-name", "*.rs"], &[]),
    ("openssl", &["dgst", "-sha256", "numbers"], &[]),
];

const SMALL_C: &str =
    "#include <stdio.h>\nint main(int n, char **v) { return printf(\"%s\", v[n - 1]); }\n";
const SMALL_CPP: &str = "#include <map>\n#include <string>\n#include <vector>\n\
    int main() { std::map<std::string, std::vector<int>> m; m[\"a\"].push_back(1); return m.size(); }\n";
const SMALL_RUST: &str = "fn main() { let v: Vec<u32> = (0..9).collect(); println!(\"{v:?}\"); }\n";

/// Whether this rule finds something depends on the times of phases, which differ between machines.
const DEPENDS_ON_TIMES: &str = "short-peak ";

/// Returns findings as `rule subject`.
fn short(advice: &Value) -> Vec<String> {
    let text = |finding: &Value, key: &str| finding[key].as_str().expect("a text").to_owned();
    let findings = advice["findings"].as_array().expect("a list");
    let short = findings.iter().map(|f| ["rule", "subject"].map(|key| text(f, key)).join(" "));
    short.filter(|finding| !finding.starts_with(DEPENDS_ON_TIMES)).collect()
}

/// Compares findings; the subject of a row may be the beginning of a name.
fn compare(what: &str, advice: &Value, expected: &[&str]) {
    let found = short(advice);
    let is_same = found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, row)| found.starts_with(row));
    assert!(is_same, "{what}: {found:?} instead of {expected:?}\n{:#}", advice["findings"]);
}

#[test]
fn findings_of_small_programs() {
    for (file, variant, expected) in GUESTS {
        compare(&format!("{file} {variant}"), &found_in(&recording(file, variant, &[])), expected);
    }
}

#[test]
fn findings_of_services() {
    thread::scope(|scope| {
        for (file, variant, expected) in SERVICES {
            scope.spawn(move || {
                let what = format!("{file} {variant}");
                compare(&what, &found_in(&recording(file, variant, &[])), expected);
            });
        }
    });
}

#[test]
fn findings_of_rust_programs() {
    for (file, argument, expected) in RUST {
        let name = format!("table-{}-{argument}", file.replace('.', "-"));
        let place = scratch(&name);
        let program = Guest::read(file).build(&file.replace('.', "-"), &[]);
        let advice = record(&place, program.to_str().expect("a path"), &[argument]);
        compare(&name, &advice, expected);
    }
}

#[test]
fn findings_of_python_programs() {
    let python = python().expect("python3 is installed");
    for (file, argument, expected) in PYTHON {
        let name = format!("table-{file}-{argument}");
        let script = programs().join(file);
        let arguments = [script.to_str().expect("a path"), argument];
        compare(&name, &record(&scratch(&name), &python, &arguments), expected);
    }
    for (name, script) in PYTHON_SCRIPTS {
        let place = scratch(&format!("table-python-{name}"));
        compare(name, &record(&place, &python, &["-c", script]), &[]);
    }
}

#[test]
fn findings_of_real_programs() {
    let root = programs().join("../..");
    let root = root.to_str().expect("a path");
    for (program, arguments, rules) in REAL {
        if !is_installed(program) {
            skip(program);
            continue;
        }
        let place = scratch(&format!("table-{program}"));
        write_inputs(&place);
        let arguments: Vec<String> =
            arguments.iter().map(|word| word.replace("ROOT", root)).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let advice = record(&place, program, &arguments);
        let found = short(&advice);
        let is_right = |finding: &String| rules.iter().any(|rule| finding.starts_with(rule));
        assert!(found.iter().all(is_right), "{program}: {found:?}\n{:#}", advice["findings"]);
    }
}

fn write_inputs(place: &Path) {
    let numbers: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    let inputs = [
        ("numbers", &*numbers),
        ("small.c", SMALL_C),
        ("small.cpp", SMALL_CPP),
        ("small.rs", SMALL_RUST),
        ("graph.dot", "digraph { a -> b; b -> c; c -> a; a -> d; d -> e }\n"),
    ];
    for (name, text) in inputs {
        std::fs::write(place.join(name), text).expect("an input");
    }
}

/// Records a program, which must succeed, and returns the findings of its largest process.
fn record(place: &Path, program: &str, arguments: &[&str]) -> Value {
    let recording: PathBuf = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    command.arg(program).args(arguments).current_dir(place).env("LC_ALL", "C");
    let outcome = run(&mut command, place);
    assert_eq!(outcome.status, 0, "{program}: {}", outcome.stderr);
    let mut command = clean(heaptide());
    command.current_dir(place).args(["advise", "a.heaptide", "--format", "json"]);
    let outcome = run(&mut command, place);
    assert_eq!(outcome.status, 0, "{program}: {}", outcome.stderr);
    let json: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    json["processes"][0].clone()
}
