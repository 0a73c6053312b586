//! Filters and rules on the command line: each option with several commands, compared with known
//! numbers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{Outcome, heaptide, programs, recorded, run, scratch};
use crate::programs::python;
use crate::recording::{counted, frames, function, list, number};

/// Requested bytes: load 10 × 1000 in scope load, live; the same in phase=2 > load, with label
/// image; parse 5 × 3000 in phase=2, temporary; a worker 4 × 50, from a template.
const PROGRAM: &str = r##"
#include "heaptide.h"
#include <pthread.h>
#include <stdlib.h>
#include <string>
#include <vector>
namespace app {
__attribute__((noinline)) void *block(size_t bytes)
{
    void *made = malloc(bytes);
    __asm__ volatile("" : : "r"(made) : "memory");
    return made;
}
__attribute__((noinline)) void load(bool labelled)
{
    heaptide_begin("load");
    for (int i = 0; i < 10; i++) {
        void *made = block(1000);
        if (labelled)
            heaptide_label_block(made, "image");
    }
    heaptide_end("load");
}
__attribute__((noinline)) void parse()
{
    for (int i = 0; i < 5; i++)
        free(block(3000));
    __asm__ volatile("");
}
template <class T> __attribute__((noinline)) void work(const T &)
{
    for (int i = 0; i < 4; i++)
        block(50);
    __asm__ volatile("");
}
void *worker(void *)
{
    pthread_setname_np(pthread_self(), "worker");
    work(std::vector<std::string>());
    return 0;
}
}
int main()
{
    pthread_t thread;
    app::load(false);
    heaptide_begin_int("phase", 2);
    app::parse();
    app::load(true);
    heaptide_end_int("phase", 2);
    pthread_create(&thread, 0, app::worker, 0);
    pthread_join(thread, 0);
    return 0;
}
"##;

struct Recorded {
    place: PathBuf,
    recording: PathBuf,
}

impl Recorded {
    fn new(name: &str, options: &[&str]) -> Recorded {
        let place = scratch(name);
        let program = built(&place, PROGRAM);
        let program = program.to_str().expect("a path in UTF-8");
        Recorded::of(place, options, &[program])
    }

    /// Records a command line.
    fn of(place: PathBuf, options: &[&str], line: &[&str]) -> Recorded {
        let recording = place.join("a.heaptide");
        let outcome = run(recorded(&recording, options).args(line), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        Recorded { place, recording }
    }

    fn command(&self, words: &str) -> Outcome {
        let mut command = heaptide();
        command.args(words.split_whitespace()).arg(&self.recording);
        run(command.current_dir(&self.place), &self.place)
    }

    fn prints(&self, words: &str) -> String {
        let Outcome { status, stdout, stderr } = self.command(words);
        assert_eq!((status, &*stderr), (0, ""), "{words}");
        stdout
    }

    /// Returns the process as JSON, after checking that sites and lanes add up to the totals.
    fn process(&self, words: &str) -> Value {
        let text = self.prints(&format!("report --format json {words}"));
        let mut report: Value = serde_json::from_str(&text).expect("JSON");
        let process = report["processes"][0].take();
        for measure in ["allocations", "frees", "requested_bytes", "live_bytes", "frees_here"] {
            let total = number(&process["totals"], measure);
            let sites: i128 = list(&process, "sites").iter().map(|s| counted(s, measure)).sum();
            let lanes: i128 =
                list(&process, "lanes").iter().map(|lane| number(lane, measure)).sum();
            let scopes: i128 = list(&process, "scopes").iter().map(|s| number(s, measure)).sum();
            assert_eq!((sites, lanes, scopes), (total, total, total), "{words}: {measure}");
        }
        process
    }

    /// Returns stacks with requested bytes, sorted.
    fn folded(&self, words: &str) -> Vec<String> {
        let process = self.process(words);
        let mut sums = BTreeMap::<String, i128>::new();
        for site in list(&process, "sites") {
            let names: Vec<&str> = frames(&process, site).into_iter().map(function).collect();
            *sums.entry(names.join(";")).or_default() += counted(site, "requested_bytes");
        }
        sums.into_iter().map(|(stack, bytes)| format!("{stack} {bytes}")).collect()
    }

    /// Returns requested allocations and bytes of the selection.
    fn requested(&self, words: &str) -> (i128, i128) {
        let totals = &self.process(words)["totals"];
        (number(totals, "allocations"), number(totals, "requested_bytes"))
    }
}

/// Builds a program from a source.
fn built(place: &Path, source: &str) -> PathBuf {
    let (file, program) = (place.join("filters.cc"), place.join("filters"));
    fs::write(&file, source).expect("a source");
    let include = programs().join("../../include");
    let mut compiler = Command::new("c++");
    compiler.args(["-O1", "-g", "-fno-builtin", "-fno-optimize-sibling-calls", "-pthread"]);
    let built = compiler.arg("-I").arg(include).arg("-o").arg(&program).arg(&file).status();
    assert!(built.expect("a compiler").success());
    program
}

#[test]
fn each_word_leaves_what_it_says() {
    let of = Recorded::new("filters-words", &[]);
    for (words, left) in [
        ("--focus app::load", (20, 20_000)),
        ("--focus app:: --ignore app::load", (9, 15_200)),
        ("--focus app:: --ignore load --ignore thread:worker", (5, 15_000)),
        ("--focus app::block --focus scope:phase=2", (15, 25_000)),
        ("--focus scope:load", (20, 20_000)),
        ("--focus scope:load --ignore scope:^2$", (10, 10_000)),
        ("--focus label:image", (10, 10_000)),
        ("--focus app:: --ignore label:image --ignore app::parse --live-only", (14, 10_200)),
        ("--focus thread:worker --focus function:app::", (4, 200)),
        ("--focus file:filters.cc --min-size 1001", (5, 15_000)),
        ("--focus app:: --max-size 999", (4, 200)),
        ("--focus app:: --min-size 50 --max-size 1K", (24, 20_200)),
        ("--focus app:: --temporary-only", (5, 15_000)),
        ("--focus module:/filters$ --ignore lane:worker --ignore pthread", (25, 35_000)),
        ("--focus app:: --hide . --hide scope:. --hide label:. --hide thread:.", (29, 35_200)),
        ("--focus app:: --depth 1", (29, 35_200)),
        ("--focus app:: --rules std,regex", (29, 35_200)),
    ] {
        assert_eq!(of.requested(words), left, "{words}");
    }
    let part = of.process("--focus app::load --min-size 2")["part"].take();
    let said = "only --focus app::load --min-size 2, sizes by mean request size of each stack; \
                timeline, windows and unmatched frees are not filtered";
    assert_eq!(part, said);
}

#[test]
fn exact_sizes_where_they_were_recorded() {
    let of = Recorded::new("filters-sizes", &["--by-size"]);
    assert_eq!(of.requested("--focus app:: --min-size 1001 --max-size 3000"), (5, 15_000));
    let process = of.process("--focus app:: --max-size 1000");
    assert!(!process["part"].as_str().expect("said").contains("mean"));
    let classes: Vec<_> = list(&process, "histogram")
        .iter()
        .map(|class| (number(class, "size_min"), number(class, "requested")))
        .filter(|&(_, requested)| requested > 0)
        .collect();
    assert_eq!(classes, [(32, 4), (512, 20)]);
}

#[test]
fn every_command_takes_the_same_words() {
    let of = Recorded::new("filters-commands", &[]);
    let words = "--focus app::load --hide block";
    let counts = "  counts   only --focus app::load, ";
    for command in [
        "report",
        "report --by function --sort requested_bytes",
        "report --by scope --sort requested_bytes",
        "report --by thread",
        "tree --metric requested_bytes",
        "tree --scopes --metric requested_bytes",
    ] {
        let text = of.prints(&format!("{command} {words}"));
        assert!(text.contains(counts), "{command}: {text}");
        assert!(!text.contains("parse") && !text.contains("app::block"), "{command}: {text}");
    }
    let folded = of.folded(words);
    assert!(folded.last().is_some_and(|line| line.ends_with("main;app::load 20000")));
    let cut = of.prints("tree --metric requested_bytes --focus app:: --rules std --depth 2");
    assert!(cut.contains("app::load(bool)") && !cut.contains("app::block"), "{cut}");
    let up = of.prints("tree --bottom-up --metric requested_bytes --focus app::load --depth 2");
    assert!(up.contains("app::load(bool)") && !up.contains("main"), "{up}");
    let picture = of.place.join("a.svg");
    of.prints(&format!("flamegraph {words} --metric requested_bytes -o {}", picture.display()));
    let svg = fs::read_to_string(picture).expect("a picture");
    assert!(svg.contains("app::load(bool) (20,000 bytes, 100") && !svg.contains("app::parse"));
}

#[test]
fn rules_of_a_file_and_built_in() {
    let of = Recorded::new("filters-rules", &[]);
    let text = "# ours\nsignature ^.*app::\nshorten ^app:: => my:\ndrop ^my:block$\n\
                cut-below ^my:work => [work]\nfold ^_start$ .. ^main$ => [start]\nignore ^my:parse$\n\
                drop ^(start_thread|(__GI_)?(__)?clone3?)$\nfold worker => [work]\n";
    fs::write(of.place.join("my.rules"), text).expect("rules");
    let words = "--focus function:my:|work";
    let folded = of.folded(&format!("--rules my.rules {words}"));
    assert_eq!(folded, ["[start];my:load 20000", "[work] 200"]);
    // A built-in set before a file: the file applies to the result of the set.
    let folded = of.folded(&format!("--rules std,my.rules {words}"));
    assert_eq!(folded, ["[work] 200", "main;my:load 20000"]);
    let part = of.process("--rules my.rules")["part"].take();
    let said = part.as_str().expect("a part");
    assert!(said.starts_with("only --rules my.rules, "), "{said}");
    let tree = of.prints("tree --rules std --metric requested_bytes --min-percent 0");
    assert!(
        tree.contains("void app::work<std::vector<std::string>>(") || tree.contains("app::work<")
    );
}

#[test]
fn mistakes_are_one_line() {
    let of = Recorded::new("filters-mistakes", &[]);
    fs::write(of.place.join("bad.rules"), "drop ^a$\n\nshorten b\n").expect("rules");
    fs::write(of.place.join("worse.rules"), "drop ^a(b$\n").expect("rules");
    let sets = "std boost tbb tokio rust qt cpython python regex cling mallocprofiler";
    for (words, status, told) in [
        ("--focus a(b", 2, "--focus `a(b`: unclosed group, at character 2".to_owned()),
        ("--hide scope:[", 2, "--hide `[`: unclosed character class, at character 1".to_owned()),
        ("--ignore modul:x", 2, "--ignore `modul:x`: unknown kind `modul`; ".to_owned()),
        (
            "--rules bad.rules",
            2,
            "bad.rules:3: expected `shorten REGEX => TEXT`, found `b`".to_owned(),
        ),
        (
            "--rules worse.rules",
            2,
            "worse.rules:1: `^a(b$`: unclosed group, at character 3".to_owned(),
        ),
        (
            "--rules std,nothing",
            2,
            format!("--rules nothing: no such file or built-in set; sets are {sets}"),
        ),
        ("--focus nowhere", 1, "a.heaptide: no allocations match --focus nowhere".to_owned()),
        ("--focus app:: --min-size 1G", 1, "match --focus app:: --min-size 1073741824".to_owned()),
    ] {
        for command in ["report", "report --by function", "tree", "export --format folded"] {
            let Outcome { status: found, stdout, stderr } =
                of.command(&format!("{command} {words}"));
            assert_eq!((found, &*stdout), (status, ""), "{command} {words}: {stderr}");
            assert!(stderr.starts_with("heaptide: ") && stderr.contains(&told), "{stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
        }
    }
}

/// Of a misspelled name, nothing leaks and no limit is exceeded.
#[test]
fn what_holds_because_nothing_matches_is_said_to() {
    let of = Recorded::new("filters-nothing", &[]);
    let says = "no allocations match ";
    for (words, part) in [
        ("leaks a.heaptide --focus nowhere", "--focus nowhere"),
        ("diff a.heaptide a.heaptide --focus nowhere", "--focus nowhere"),
        ("check a.heaptide --max leaked=0 --focus nowhere", "--focus nowhere"),
        ("check a.heaptide --max leaked=0 --scope nowhere", "scope nowhere"),
        ("check a.heaptide --max peak=1 --owner ^nowhere$", "owner ^nowhere$"),
        ("check a.heaptide --max usable_bytes=1 --thread nowhere", "thread nowhere"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let outcome = run(heaptide().current_dir(&of.place).args(&words), &of.place);
        assert_eq!(outcome.status, 0, "{words:?}: {}", outcome.stderr);
        let all = outcome.stdout + &outcome.stderr;
        assert!(all.contains(&format!("{says}{part}")), "{words:?}: {all}");
    }
    let known = "check a.heaptide --max leaked=1G --owner app::";
    let known: Vec<&str> = known.split(' ').collect();
    let outcome = run(heaptide().current_dir(&of.place).args(&known), &of.place);
    assert!(!(outcome.stdout + &outcome.stderr).contains(says));
}

/// Sums are unchanged, and the frames that a set removes are gone.
#[test]
fn built_in_sets_on_real_programs() {
    let python = python().expect("python3 is installed");
    let script = "import json; json.dumps(sorted([[2], [1]], key=lambda x: str(x)))";
    let line = [&*python, "-c", script];
    let of = Recorded::of(scratch("filters-python"), &[], &line);
    let (plain, folded) = (of.requested(""), of.folded("--rules cpython"));
    assert_eq!(of.requested("--rules cpython"), plain);
    assert!(folded.iter().any(|line| line.contains("[Python]")), "{folded:?}");
    let glue = ["_PyEval_EvalFrameDefault", "_PyFunction_Vectorcall", "[Python];[Python]"];
    assert!(!folded.iter().any(|line| glue.iter().any(|glue| line.contains(glue))), "{folded:?}");
    let source = "#include <regex>\n#include <string>\nint main() { std::regex word(\"a(b|c)*\"); \
                  return !std::regex_search(std::string(\"xxabcbc\"), word); }\n";
    let place = scratch("filters-regex");
    let program = built(&place, source);
    let of = Recorded::of(place, &[], &[program.to_str().expect("a path in UTF-8")]);
    let folded = of.folded("--rules std,regex --focus main");
    assert_eq!(of.requested("--rules std,regex"), of.requested(""));
    assert_eq!(folded.len(), 1, "{folded:?}");
    assert!(folded[0].starts_with("main;std::regex "), "{folded:?}");
}
