//! The findings of `heaptide advise` and the first sentences of `heaptide report` for small and
//! real programs: those that are right, checked by hand, and no others.
//!
//! A row has a program, how it runs, and its findings as `rule subject`. Names in real programs
//! depend on their versions, so a finding of those is only compared with the rules in the row.
//! Another table has parts of the sentences, in their order.

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

/// Guests that are searched when they end. Blocks that are never freed are reported once.
const SEARCHED: &[(&str, &str, &[&str])] = &[
    ("advise_lost.c", "SEARCHED", &["lost open_session"]),
    ("advise_never_freed.c", "SEARCHED", &["lost open_session"]),
    ("owners.cpp", "SEARCHED", &[]),
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
        "sorted",
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
    (
        "luajit",
        &["-e", "local t = {} for i = 1, 200000 do t[i] = {i} end print(#t) os.exit(0)"],
        &[],
    ),
    (
        "ruby",
        &["-e", "a = []; 300_000.times { |i| a << \"item number #{i} of a list\" }; puts a.size"],
        &[],
    ),
    (
        "php",
        // The first account of memory is due after 50 ms.
        &["-r", "usleep(60000); for ($i = 0; $i < 300000; $i++) $a[] = \"x$i\"; echo count($a);"],
        &[],
    ),
    ("java", &["Small.java"], &[]),
    ("ocaml", &["small.ml"], &[]),
    ("git", &["-C", "ROOT", "log", "--stat", "-n", "30"], &["temporary"]),
    ("tar", &["cf", "archive", "numbers"], &[]),
    ("find", &["ROOT/crates", "-name", "*.rs"], &[]),
    ("openssl", &["dgst", "-sha256", "numbers"], &[]),
];

/// Parts of the sentences about a program, in their order.
const SENTENCES: &[(&str, &[&str])] = &[
    (
        "advise_service.cpp QUICK",
        &[
            "`ResponseCache::put(unsigned long)` (advise_service.cpp :32 24.4, :36 1.59 MiB) holds 26.0 MiB, 99.7% of peak usage (26.1 MiB after ",
            "), freed before exit.",
        ],
    ),
    (
        "advise_service.cpp FAULT",
        &[
            "`ResponseCache::put(unsigned long)` (advise_service.cpp:32) holds 16.",
            " of peak usage (16.6 MiB after ",
            "freed before exit. Live memory grew from ",
            " per second.",
        ],
    ),
    (
        "advise_service.cpp LIMITED",
        &[
            "`ResponseCache::put(unsigned long)` (advise_service.cpp:32) holds 808 KiB, 91.5% of peak usage (883 KiB after ",
            "), freed before exit.",
        ],
    ),
    (
        "advise_fill.cpp FAULT",
        &[
            "`fill(std::vector<int>&)` (advise_fill.cpp:21) holds 328 KiB of `std::vector<int>`, 82.2% of peak usage (399 KiB ",
        ],
    ),
    (
        "advise_fill.cpp ALIKE",
        &[
            "`fill(std::vector<int>&)` (advise_fill.cpp:18) holds 156 KiB of `std::vector<int>`, 68.8% of peak usage (227 KiB ",
        ],
    ),
    (
        "advise_fill.cpp SHORT",
        &[
            "C++ emergency pool (libstdc++) holds 71.0 KiB, 99.9% of peak usage (71.1 KiB ",
            "all live at exit.",
        ],
    ),
    (
        "advise_trim.c FAULT",
        &[
            "`trim` (advise_trim.c:14) holds 6.26 MiB, 100% of peak usage (6.26 MiB ",
            "), freed before exit.",
        ],
    ),
    (
        "timesteps.c TABLE",
        &["`block` (api_guest.h:16) holds 45.3 KiB, 100% of peak usage", "31.3 KiB live at exit."],
    ),
    (
        "trace_lulesh.c TABLE",
        &[
            "`take` (trace_lulesh.c:33) holds 27.0 MiB, 100% of peak usage",
            "4.86 MiB live at exit.",
        ],
    ),
    (
        "advise_cross_thread.c FAULT",
        &[
            "`new_message` (advise_cross_thread.c:15) holds ",
            " of peak usage",
            "), freed before exit.",
        ],
    ),
    (
        "advise_cross_thread.c ALIKE",
        &[
            "`new_message` (advise_cross_thread.c:15) holds ",
            " of peak usage",
            "), freed before exit.",
        ],
    ),
    (
        "trace_cross.c TABLE",
        &["`contended` (trace_cross.c:22) holds ", " of peak usage", "), freed before exit."],
    ),
    (
        "coroutines.c TABLE",
        &[
            "`even` (coroutines.c:16) holds 96 B, 41.4% of peak usage (232 B ",
            "), freed before exit; then `odd` (coroutines.c:17) 96 B, `in_main` (coroutines.c:18) 40 B.",
        ],
    ),
    (
        "leaks.c TABLE",
        &[
            "`grows` (leaks.c:18) holds 9.77 KiB, 63.7% of peak usage (15.3 KiB ",
            "), all live at exit.",
        ],
    ),
    (
        "deep.c TABLE",
        &[
            "`down` (deep.c :12 5.88, :16 5.88 KiB) holds 11.8 KiB, 100% of peak usage (11.8 KiB ",
            "), all live at exit.",
        ],
    ),
    (
        "large.c TABLE",
        &[
            "`five` (large.c:13) holds 5.00 GiB, 100% of peak usage (5.00 GiB ",
            "), freed before exit.",
        ],
    ),
    (
        "highest.c TABLE",
        &[
            "`chunk` (highest.c:25) holds 4.01 KiB, 86.8% of peak usage (4.62 KiB ",
            "), freed before exit.",
        ],
    ),
    (
        "temporary.c TABLE",
        &[
            "`resizes` (temporary.c:20) holds 4.88 KiB, 99.2% of peak usage (4.92 KiB ",
            "), freed before exit.",
        ],
    ),
    (
        "owners.cpp TABLE",
        &[
            "`user6()` (owners.cpp:53) holds 71.2 KiB, 26.2% of peak usage (272 KiB ",
            "), all live at exit; then C++ emergency pool (libstdc++) 71.0 KiB, `Cache::get(int)` (owners.cpp:28) 62.8 KiB.",
        ],
    ),
    (
        "exceptions.cpp TABLE",
        &[
            "C++ emergency pool (libstdc++) holds 71.0 KiB, 99.7% of peak usage",
            "all live at exit.",
        ],
    ),
    (
        "wide.cpp TABLE",
        &[
            "`leaf<",
            "()` (wide.cpp:8) holds 504 B, 100% of peak usage (504 B ",
            "), freed before exit.",
        ],
    ),
    (
        "advise_fill.rs fault",
        &[
            "`advise_fill::fill` (advise_fill.rs:14) holds 128 KiB of `Vec<u32>`, 99.",
            " of peak usage",
            "), freed before exit.",
        ],
    ),
    (
        "advise_fill.rs alike",
        &[
            "`advise_fill::fill` (advise_fill.rs:12) holds 78.1 KiB of `Vec<u32>`, 99.",
            " of peak usage",
            "), freed before exit.",
        ],
    ),
    (
        "owners.rs ",
        &[
            "`owners::Store::insert` (owners.rs :22 200, :25 6.01, :24 4.70 KiB) holds 210 KiB (92.9% of it `Box<owners::Session>`), 99.",
            " of peak usage",
            "), all live at exit.",
        ],
    ),
    (
        "advise_cache.py fault",
        &["`render` (advise_cache.py:14) holds 5.8", " of peak usage", "), freed before exit"],
    ),
    ("advise_cache.py alike", &["No function holds more than ", " of peak usage", "; largest: "]),
    (
        "advise_exceptions.py fault",
        &["`parse` (advise_exceptions.py :13 ", " of peak usage", "), freed before exit."],
    ),
    (
        "advise_exceptions.py alike",
        &["No function holds more than ", " of peak usage", "; largest: "],
    ),
    (
        "advise_fragmented.py fault",
        &["`load", "(advise_fragmented.py:14) holds 4", " of peak usage", "), freed before exit."],
    ),
    (
        "advise_fragmented.py alike",
        &["`load", "(advise_fragmented.py:14) holds 4", " of peak usage", "), freed before exit."],
    ),
    ("sorted", &["No function holds more than ", " of peak usage", "; largest: `<genexpr>` "]),
    ("sort", &["code without names in sort holds 36.5 MiB, >99.9% of peak usage (36.5 MiB "]),
    (
        "json",
        &[
            "`JSONDecoder.raw_decode` (decoder.py:",
            " holds ",
            " of peak usage",
            "), freed before exit; then `",
            "(<string>:1)",
        ],
    ),
    ("regex", &["`findall` (__init__.py:", " holds ", " of peak usage", "), freed before exit"]),
    ("words", &["No function holds more than ", " of peak usage", "; largest: "]),
    ("database", &["No function holds more than ", " of peak usage", "; largest: "]),
    (
        "tasks",
        &[
            "No function holds more than ",
            " of peak usage",
            "; largest: `BaseEventLoop.create_task` (base_events.py:",
        ],
    ),
    ("queue", &["No function holds more than ", " of peak usage", "; largest: "]),
    ("errors", &["No function holds more than ", " of peak usage", "; largest: "]),
    ("gcc", &["cc1 -quiet", " holds ", " of "]),
    ("g++", &["cc1plus -quiet", " holds ", " of "]),
    ("rustc", &["rustc -Copt-level=0", " of "]),
    ("awk", &["mawk holds 8.04 MiB, 100% of peak usage (8.04 MiB ", "8.04 MiB live at exit."]),
    (
        "perl",
        &[
            "`Perl_more_sv` holds 9.24 MiB, 30.5% of peak usage (30.3 MiB ",
            "), all live at exit; then code without names in perl ",
        ],
    ),
    ("sed", &["code without names in sed holds ", " of peak usage", "live at exit."]),
    ("grep", &["code without names in grep holds ", " of "]),
    (
        "xz",
        &[
            "code without names in liblzma.so",
            "holds 93.1 MiB, >99.9% of peak usage (93.1 MiB ",
            "), all live at exit. Of 93.1 MiB in blocks, at most ",
            " were resident.",
        ],
    ),
    (
        "jq",
        &[
            "code without names in libjq.so",
            " holds 12.8 MiB, 91.0% of peak usage (14.1 MiB ",
            "), freed before exit.",
        ],
    ),
    (
        "sqlite3",
        &[
            "code without names in libsqlite3.so",
            " holds 3.64 MiB, 99.9% of peak usage (3.65 MiB ",
            "), freed before exit.",
        ],
    ),
    (
        "bash",
        &[
            "code without names in bash holds 2.30 MiB, 49.",
            "% of peak usage (4.6",
            "live at exit; then `alloc_word_desc` 938 KiB, `make_word_list` 938 KiB.",
        ],
    ),
    ("dot", &["code without names in libfontconfig.so", " holds ", " of peak usage", "; then "]),
    // Whether an account has much of the heap depends on when it is taken.
    ("node", &["JavaScript's own heap holds ", " outside of it"]),
    ("luajit", &["LuaJIT's own heap holds ", " MiB resident after ", "it uses malloc."]),
    ("ruby", &["ode without names in libruby-", " holds ", " of peak usage", "live at exit."]),
    (
        "php",
        &[
            "PHP's own heap holds ",
            " MiB resident after ",
            "uses malloc for its objects. Code without names in php",
        ],
    ),
    (
        "java",
        &[
            "Java's own heap holds ",
            " MiB resident after ",
            "; `java -XX:",
            "show it. No function holds",
        ],
    ),
    (
        "ocaml",
        &["OCaml's own heap (`caml_alloc_for_heap`) holds ", " of peak usage", "memtrace show it."],
    ),
    ("git", &["code without names in git holds ", " of peak usage"]),
    ("tar", &["code without names in tar holds ", " of peak usage"]),
    ("find", &[" holds ", " of peak usage"]),
    ("openssl", &["code without names in libcrypto.so.3 holds ", " of peak usage"]),
];

const SMALL_C: &str =
    "#include <stdio.h>\nint main(int n, char **v) { return printf(\"%s\", v[n - 1]); }\n";
const SMALL_CPP: &str = "#include <map>\n#include <string>\n#include <vector>\n\
    int main() { std::map<std::string, std::vector<int>> m; m[\"a\"].push_back(1); return m.size(); }\n";
const SMALL_JAVA: &str = "class Small { public static void main(String[] a) {\n\
    var l = new java.util.ArrayList<String>(); for (int i = 0; i < 200000; i++) l.add(\"x\" + i);\n\
    System.out.println(l.size()); } }\n";
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

/// Returns the command and the sentences with which the report of a recording begins.
fn sentences(recording: &Path) -> String {
    let place = recording.parent().expect("a directory");
    let outcome = run(clean(heaptide()).arg("report").arg(recording), place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{}", recording.display());
    let (heading, _) = outcome.stdout.split_once("\n\n").expect("a blank line");
    heading.lines().collect::<Vec<_>>().join(" ")
}

/// Compares the sentences about a program with its row.
fn compare_sentences(what: &str, recording: &Path) {
    let found = sentences(recording);
    let row = SENTENCES.iter().find(|row| row.0 == what);
    let parts = row.unwrap_or_else(|| panic!("{what} has no row; its sentences: {found}")).1;
    let mut rest = &*found;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{what}: no {part:?} in: {found}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn findings_of_small_programs() {
    for (file, variant, expected) in GUESTS {
        let recording = recording(file, variant, &[]);
        compare(&format!("{file} {variant}"), &found_in(&recording), expected);
        compare_sentences(&format!("{file} {variant}"), &recording);
    }
}

#[test]
fn findings_of_searched_programs() {
    for (file, variant, expected) in SEARCHED {
        let recording = recording(file, variant, &["--retain"]);
        compare(&format!("{file} {variant}, searched"), &found_in(&recording), expected);
    }
}

#[test]
fn findings_of_services() {
    thread::scope(|scope| {
        for (file, variant, expected) in SERVICES {
            scope.spawn(move || {
                let what = format!("{file} {variant}");
                let recording = recording(file, variant, &[]);
                compare(&what, &found_in(&recording), expected);
                compare_sentences(&what, &recording);
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
        let what = format!("{file} {argument}");
        let advice = record(&what, &place, program.to_str().expect("a path"), &[argument]);
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
        let what = format!("{file} {argument}");
        compare(&name, &record(&what, &scratch(&name), &python, &arguments), expected);
    }
    for (name, script) in PYTHON_SCRIPTS {
        let place = scratch(&format!("table-python-{name}"));
        compare(name, &record(name, &place, &python, &["-c", script]), &[]);
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
        let advice = record(program, &place, program, &arguments);
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
        ("Small.java", SMALL_JAVA),
        (
            "small.ml",
            "let l = List.init 500000 string_of_int\nlet () = print_int (List.length l)\n",
        ),
        ("small.rs", SMALL_RUST),
        ("graph.dot", "digraph { a -> b; b -> c; c -> a; a -> d; d -> e }\n"),
    ];
    for (name, text) in inputs {
        std::fs::write(place.join(name), text).expect("an input");
    }
}

/// Records a program, which must succeed, and returns the findings of its largest process.
fn record(what: &str, place: &Path, program: &str, arguments: &[&str]) -> Value {
    let recording: PathBuf = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    command.arg(program).args(arguments).current_dir(place).env("LC_ALL", "C");
    let outcome = run(&mut command, place);
    assert_eq!(outcome.status, 0, "{program}: {}", outcome.stderr);
    let mut command = clean(heaptide());
    command.current_dir(place).args(["advise", "a.heaptide", "--format", "json"]);
    let outcome = run(&mut command, place);
    assert_eq!(outcome.status, 0, "{program}: {}", outcome.stderr);
    compare_sentences(what, &recording);
    let json: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    json["processes"][0].clone()
}
