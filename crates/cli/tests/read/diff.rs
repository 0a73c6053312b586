//! Differences of recordings: two builds of a program with known rows, snapshots, limits, pictures,
//! and real programs with two inputs.

use crate::harness::{Outcome, heaptide, programs, recorded, run, scratch};
use crate::programs::python;
use crate::recording::list;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Macros set what `grown` allocates, and the names of `part` and of the function that exists in
/// only one build.
const PROGRAM: &str = r##"
#include "heaptide.h"
#include <stdlib.h>
#define APART __attribute__((noinline))
static void *kept[64];
static int count;
APART void keep(void *made)
{
    kept[count++] = made;
    __asm__ volatile("" : : : "memory");
}
APART void grown(void) { keep(malloc(GROWN)); }
APART void same(void) { keep(malloc(5000)); }
APART void ONLY(void) { keep(malloc(3000)); }
APART void part(void) __asm__(PART);
APART void part(void) { keep(malloc(700)); }
int main(void)
{
    grown();
    same();
    heaptide_snapshot_now("halfway");
    ONLY();
    part();
    part();
    heaptide_begin("load");
    same();
    heaptide_end("load");
    return 0;
}
"##;

struct Builds {
    place: PathBuf,
}

impl Builds {
    /// Records two builds: optimised or not, in two directories, with two names. Without debug
    /// information, so that the names are those of the compiler.
    fn new(name: &str, options: &[&str]) -> Builds {
        let builds = Builds { place: scratch(name) };
        let old = ["-O0", "-DGROWN=10000", "-DONLY=gone", "-DPART=\"part\""];
        let new = ["-O2", "-DGROWN=30000", "-DONLY=fresh", "-DPART=\"part.constprop.0\""];
        for (name, flags) in [("old", old), ("new", new)] {
            let place = builds.place.join(name);
            fs::create_dir_all(&place).expect("a directory");
            let (source, program) = (place.join("app.c"), place.join(format!("app-{name}")));
            fs::write(&source, PROGRAM).expect("a source");
            let mut compiler = Command::new("cc");
            compiler.args(["-fno-builtin", "-D_GNU_SOURCE", "-I"]);
            compiler.arg(programs().join("../../include")).args(flags);
            let built = compiler.arg("-o").arg(&program).arg(&source).status();
            assert!(built.expect("a compiler").success());
            let recording = builds.place.join(format!("{name}.heaptide"));
            let outcome = run(recorded(&recording, options).arg(&program), &builds.place);
            assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        }
        builds
    }

    fn diff(&self, words: &str) -> Outcome {
        let mut command = heaptide();
        command.arg("diff").args(words.split_whitespace()).current_dir(&self.place);
        run(&mut command, &self.place)
    }

    /// Returns the output of a difference, which must not report problems.
    fn prints(&self, words: &str) -> String {
        let Outcome { status, stdout, stderr } = self.diff(words);
        assert_eq!((status, &*stderr), (0, ""), "{words}");
        stdout
    }

    fn json(&self, words: &str) -> Value {
        let text = self.prints(&format!("{words} --format json"));
        serde_json::from_str(&text).expect("JSON")
    }
}

/// Returns the rows of a page, with single spaces.
fn rows(page: &str) -> Vec<String> {
    let (_, rows) = page.rsplit_once("change  function\n").expect("rows");
    rows.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Returns `function before after` for each change of a function itself, or `outer;inner before
/// after`.
fn values(found: &Value) -> Vec<String> {
    let name = |entry: &Value| entry["function"].as_str().unwrap_or("-").to_owned();
    let called = |row: &Value| match row["stack"].as_array() {
        Some(stack) => {
            let entry =
                |n: &Value| name(&found["functions"][n.as_u64().expect("a number") as usize]);
            let names: Vec<String> = stack.iter().map(entry).collect();
            let main = names.iter().position(|name| name == "main").expect("main");
            names[main..].join(";")
        }
        None => name(row),
    };
    let own = |row: &&Value| row["own"]["change"] != 0;
    let value =
        |row: &Value| format!("{} {} {}", called(row), row["own"]["before"], row["own"]["after"]);
    list(found, "rows").iter().filter(own).map(value).collect()
}

#[test]
fn builds_differ_by_what_they_allocate_and_by_nothing_else() {
    let of = Builds::new("diff-builds", &[]);
    let requested = "old.heaptide new.heaptide --metric requested_bytes";
    let page = of.prints(requested);
    let rows = rows(&page);
    // Each row is followed by the caller. `main` only calls them and has no row.
    let expected = [
        "9.77 KiB 29.3 KiB +19.5 KiB +200.0% +19.5 KiB +200.0% grown [app-old]",
        "main",
        "2.93 KiB - -2.93 KiB gone -2.93 KiB gone gone [app-old]",
        "main",
        "- 2.93 KiB +2.93 KiB new +2.93 KiB new fresh [app-new]",
        "main",
    ];
    assert_eq!(rows, expected, "{page}");
    assert!(!page.contains("part") && !page.contains("same ") && !page.contains("keep"), "{page}");
    assert!(
        page.contains("\n  requested_bytes       23.8 KiB    43.4 KiB    +19.5 KiB   +82.0%\n"),
        "{page}"
    );
    let known = ["grown 10000 30000", "gone 3000 0", "fresh 0 3000"];
    assert_eq!(values(&of.json(requested)), known);
    let found = of.json(&format!("{requested} --by stack"));
    assert_eq!(values(&found), known.map(|row| format!("main;{row}")));
    let total = json!({"before": 24_400, "after": 44_400, "change": 20_000});
    assert_eq!(found["totals"]["requested_bytes"], total);
    let page = of.prints(&format!("{requested} --by stack --top 1"));
    assert!(
        page.contains("\n    +19.5 KiB  +200.0%   9.77 KiB before, 29.3 KiB after\n      grown "),
        "{page}"
    );
    assert!(page.ends_with("\n  2 more; --top 3 shows all\n"), "{page}");
    let same = of.prints("old.heaptide old.heaptide --metric requested_bytes");
    assert!(same.ends_with("\nnothing changed: requested_bytes is the same in every function\n"));
    assert_eq!(of.json("old.heaptide old.heaptide --by stack")["rows"], json!([]));
}

#[test]
fn scopes_differ_by_their_paths() {
    for mode in ["stacks", "scopes"] {
        let of = Builds::new(&format!("diff-scopes-{mode}"), &["--mode", mode]);
        let found = of.json("old.heaptide new.heaptide --by scope --metric requested_bytes");
        let own = json!({"before": 19_400, "after": 39_400, "change": 20_000});
        assert_eq!(list(&found, "rows").len(), 1);
        assert_eq!((&found["rows"][0]["scope"], &found["rows"][0]["own"]), (&json!([]), &own));
        let back = of.prints("new.heaptide old.heaptide --by scope --metric requested_bytes");
        assert!(back.ends_with(" (no scope)\n") && !back.contains("load"), "{back}");
    }
    let of = Builds { place: scratch("diff-scopes-scopes").with_file_name("diff-scopes-stacks") };
    assert!(of.prints("old.heaptide new.heaptide").contains(" by function"));
}

#[test]
fn snapshots_of_one_recording() {
    let of = Builds::new("diff-snapshots", &[]);
    let since = "old.heaptide@1 old.heaptide --metric live_bytes";
    let functions: Vec<String> = values(&of.json(since));
    let names: Vec<&str> = functions.iter().filter_map(|row| row.split(' ').next()).collect();
    assert_eq!(names, ["same", "gone", "part"]);
    assert!(functions[1].starts_with("gone 0 30"), "{functions:?}");
    let page = of.prints(since);
    assert!(page.contains("\n        snapshot 1, "), "{page}");
    // Without a name, the newest recording is meant, which is named once.
    let named = of.prints("new.heaptide@1 new.heaptide --by function");
    let rows = |page: &str| page.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
    for line in ["@1 new.heaptide --by function", "@1 @1 --by function"] {
        let Outcome { status, stdout, stderr } = of.diff(line);
        assert_eq!(status, 0, "{line}: {stderr}");
        let expected = "heaptide: reading new.heaptide, the newest recording in this directory\n";
        assert_eq!(stderr, expected, "{line}");
        assert_eq!(rows(&stdout) == rows(&named), line.contains("new"), "{stdout}\n{named}");
    }
    let Outcome { status, stdout, stderr } = of.diff("old.heaptide@2 old.heaptide");
    assert_eq!((status, &*stdout), (2, ""));
    assert_eq!(stderr, "heaptide: old.heaptide: no snapshot 2; available: 1\n");
}

#[test]
fn a_limit_is_held() {
    let of = Builds::new("diff-limits", &[]);
    let status = |words: &str| {
        let outcome = of.diff(&format!("{words} --metric requested_bytes"));
        (outcome.status, outcome.stderr)
    };
    for (limit, expected) in [("82%", 0), ("81%", 1), ("20000", 0), ("19999", 1), ("19K", 1)] {
        let (found, why) = status(&format!("old.heaptide new.heaptide --fail-above {limit}"));
        assert_eq!(found, expected, "{limit}: {why}");
    }
    let (_, why) = status("old.heaptide new.heaptide --fail-above 5%");
    let says = "heaptide: requested_bytes grew from 23.8 KiB to 43.4 KiB: +19.5 KiB, +82.0%, \
                more than 5%\n";
    assert_eq!(why, says);
    assert_eq!(status("new.heaptide old.heaptide --fail-above 0%"), (0, String::new()));
    assert_eq!(status("old.heaptide old.heaptide --fail-above 0"), (0, String::new()));
    for bad in ["x", "5x", "%", "1e3%"] {
        let (found, why) = status(&format!("old.heaptide new.heaptide --fail-above {bad}"));
        assert!(found == 2 && why.contains("expected a percentage or bytes"), "{why}");
    }
    // If the value was 0, no growth is allowed.
    let outcome = of.diff("old.heaptide@1 old.heaptide --by function --metric allocations");
    assert_eq!(outcome.status, 0);
    let counters = Builds::new("diff-counters", &["--mode", "counters"]);
    let outcome = counters.diff("old.heaptide new.heaptide --fail-above 5%");
    assert!(outcome.status == 1 && outcome.stderr.contains("peak_bytes grew from 23."));
    let says = "\nold.heaptide: recorded with --mode counters, so there are no stacks\n";
    assert!(outcome.stdout.ends_with(says), "{}", outcome.stdout);
}

#[test]
fn a_graph_of_what_grew() {
    let of = Builds::new("diff-graph", &[]);
    let words = "old.heaptide new.heaptide --metric requested_bytes --format svg -o change.svg";
    assert_eq!(of.prints(words), "");
    let svg = fs::read_to_string(of.place.join("change.svg")).expect("a picture");
    let has = |text: &str, title: &str, red: &str, width: u64| {
        let start = format!("<title>{title}</title><rect ");
        let (_, rest) = text.split_once(&start).unwrap_or_else(|| panic!("no {title}"));
        let of_box = rest.split('>').next().expect("a box");
        assert!(of_box.contains(&format!("fill=\"rgb({red})\"")), "{of_box}");
        assert!(of_box.ends_with(&format!("fg:w=\"{width}\"/")), "{of_box}");
    };
    has(&svg, "grown (30,000 bytes, 67.57%; +45.05%)", "255,100,100", 30_000);
    has(&svg, "fresh (3,000 bytes, 6.76%; +6.76%)", "255,227,227", 3000);
    has(&svg, "same (10,000 bytes, 22.52%; 0.00%)", "250,250,250", 10_000);
    let again = of.diff(words);
    assert!(again.status == 2 && again.stderr.contains("change.svg: exists"), "{}", again.stderr);
    of.prints(&format!("{words} --force --widths before"));
    let svg = fs::read_to_string(of.place.join("change.svg")).expect("a picture");
    has(&svg, "gone (3,000 bytes, 12.30%; -12.30%)", "227,227,255", 3000);
    let outcome = of.diff("old.heaptide new.heaptide --widths before");
    assert!(outcome.status == 2 && outcome.stderr.contains("--format svg"), "{}", outcome.stderr);
}

/// Records a command.
fn record(place: &Path, name: &str, command: &[&str]) {
    let recording = place.join(format!("{name}.heaptide"));
    let mut recorded = recorded(&recording, &[]);
    let outcome = run(recorded.args(command).current_dir(place), place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
}

#[test]
fn a_compiler_on_two_inputs() {
    let of = Builds { place: scratch("diff-compiler") };
    let source = |name: &str, text: &str| fs::write(of.place.join(name), text).expect("a source");
    source("small.cc", "#include <vector>\nint f(std::vector<int> &v) { return v.size(); }\n");
    source(
        "large.cc",
        "#include <map>\n#include <regex>\nstd::regex r(\"a+\"); std::map<int, int> m;\n",
    );
    for name in ["small", "large"] {
        record(&of.place, name, &["g++", "-O1", "-c", &format!("{name}.cc"), "-o", "out.o"]);
    }
    let outcome = of.diff("small.heaptide large.heaptide --metric usable_bytes --format json");
    assert!(outcome.status == 0 && outcome.stderr.lines().count() == 2, "{}", outcome.stderr);
    let found: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    for side in ["before", "after"] {
        let program = found[side]["program"].as_str().expect("a program");
        assert!(program.ends_with("/cc1plus"), "the largest is compared: {program}");
    }
    // The changes of exclusive values add up to the change of the total.
    let change = |values: &Value| values["change"].as_i64().expect("a change");
    for by in ["function", "stack"] {
        let words = format!("small.heaptide large.heaptide --metric usable_bytes --by {by}");
        let outcome = of.diff(&format!("{words} --format json"));
        let found: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        let rows: i64 = list(&found, "rows").iter().map(|row| change(&row["own"])).sum();
        assert_eq!(rows, change(&found["totals"]["usable_bytes"]), "{by}");
        assert!(rows > 0 && list(&found, "rows").len() > 100);
        let page = of.diff(&words).stdout;
        assert!(page.lines().count() > 30 && page.ends_with(" shows all\n"), "{page}");
    }
}

#[test]
fn a_python_program_that_keeps_more() {
    let Some(python) = python() else { return };
    let of = Builds { place: scratch("diff-python") };
    let program = |n: usize| format!("kept = [bytearray(3000) for _ in range({n})]");
    for (name, n) in [("few", 100), ("many", 900)] {
        record(&of.place, name, &[&python, "-c", &program(n)]);
    }
    let found = of.diff("few.heaptide many.heaptide --metric at_peak_bytes --format json");
    let found: Value = serde_json::from_str(&found.stdout).expect("JSON");
    let first = &found["rows"][0];
    let change = first["own"]["change"].as_i64().expect("a change");
    assert!((2_400_000..2_500_000).contains(&change), "{first}");
    let outcome = of.diff("few.heaptide many.heaptide --fail-above 2M");
    assert!(outcome.status == 1 && outcome.stderr.contains("more than 2.00 MiB"));
}

/// A trace has no events of mappings; they are compared all the same, as with other modes.
#[test]
fn a_trace_is_compared_with_its_mappings() {
    let place = scratch("diff-trace");
    let source = "#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n\
        void *volatile kept;\n\
        int main(void) {\n\
        memset(kept = malloc(1 << 20), 1, 1 << 20);\n\
        memset(mmap(0, 4 << 20, 3, 0x22, -1, 0), 1, 4 << 20);\n\
        return 0;\n}\n";
    fs::write(place.join("both.c"), source).expect("a source");
    let mut compiler = Command::new("cc");
    compiler.args(["-O0", "-o", "both", "both.c"]).current_dir(&place);
    assert!(compiler.status().expect("a compiler").success());
    let program = place.join("both");
    for (name, mode) in [("stacks", "stacks"), ("trace", "trace")] {
        let recording = place.join(format!("{name}.heaptide"));
        let outcome = run(recorded(&recording, &["--mode", mode]).arg(&program), &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    }
    for pair in [["stacks", "trace"], ["trace", "stacks"]] {
        let names = pair.map(|name| format!("{name}.heaptide"));
        let mut command = heaptide();
        let command = command.arg("diff").args(names).args(["--fail-above", "0"]);
        let outcome = run(command.current_dir(&place), &place);
        assert_eq!(outcome.status, 0, "{}{}", outcome.stdout, outcome.stderr);
        assert!(!outcome.stderr.contains("comparing the heap"), "{}", outcome.stderr);
        assert!(outcome.stdout.contains("nothing changed: "), "{}", outcome.stdout);
        assert!(outcome.stdout.contains("5.0"), "{}", outcome.stdout);
    }
}
