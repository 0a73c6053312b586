//! The views of scopes, labels and lanes as the command prints them, compared with known numbers;
//! and names that would control a terminal or break a picture.

use crate::harness::{Guest, Outcome, clean, heaptide, programs, recorded, report, run, scratch};
use crate::recording::{list, number};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Two lanes, recursion, a block freed in another scope and lane than it was allocated in, a label,
/// a pool of 4096 bytes with 1024 in use, a window; or, with an argument, that many nested scopes.
const PROGRAM: &str = r##"
#include "heaptide.h"
#include <pthread.h>
#include <stdlib.h>
static void *block(size_t bytes)
{
    void *made = malloc(bytes);
    __asm__ volatile("" : : "r"(made) : "memory");
    return made;
}
static void *release(void *given)
{
    pthread_setname_np(pthread_self(), "helper");
    heaptide_begin("release");
    free(given);
    block(3000);
    heaptide_end("release");
    return 0;
}
int main(int count, char **words)
{
    pthread_t thread;
    for (int i = 0; count > 1 && i < atoi(words[1]); i++) {
        heaptide_begin_int("level", i);
        block(64);
    }
    if (count > 1)
        return 0;
    heaptide_begin("A");
    block(1000);
    heaptide_begin("B");
    block(2000);
    heaptide_begin("A");
    void *given = block(50000);
    heaptide_end("A");
    heaptide_end("B");
    heaptide_end("A");
    uint32_t window = heaptide_window_open("hand over");
    pthread_create(&thread, 0, release, given);
    pthread_join(thread, 0);
    heaptide_window_close(window, 0);
    heaptide_begin("step 7");
    heaptide_label_block(block(7000), "named;\x1b[31m");
    heaptide_end("step 7");
    heaptide_begin("red\x1b[31m;\n\xff");
    void *chunk = block(4096);
    uint32_t pool = heaptide_pool_named("arena");
    heaptide_pool_add(pool, chunk, 4096);
    heaptide_pool_allocated(pool, chunk, 1000, 1024);
    heaptide_end("red\x1b[31m;\n\xff");
    heaptide_mark_now("done\x1b[0m");
    return 0;
}
"##;

struct Recorded {
    place: PathBuf,
    recording: PathBuf,
}

impl Recorded {
    /// Records the program in a mode.
    fn new(name: &str, options: &[&str], words: &[&str]) -> Recorded {
        let place = scratch(name);
        let (source, program) = (place.join("views.c"), place.join("views"));
        fs::write(&source, PROGRAM).expect("a source");
        let include = programs().join("../../include");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-g", "-fno-builtin", "-pthread", "-D_GNU_SOURCE", "-I"]);
        let built = compiler.arg(include).arg("-o").arg(&program).arg(&source).status();
        assert!(built.expect("a compiler").success());
        let recording = place.join("a.heaptide");
        let outcome = run(recorded(&recording, options).arg(&program).args(words), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        Recorded { place, recording }
    }

    fn command(&self, words: &str) -> Outcome {
        let mut command = heaptide();
        run(command.args(words.split_whitespace()).arg(&self.recording), &self.place)
    }

    /// Returns the output of a command, after checking that it does not control a terminal.
    fn prints(&self, words: &str) -> String {
        let Outcome { status, stdout, stderr } = self.command(words);
        assert_eq!((status, &*stderr), (0, ""), "{words}");
        let steers = |c: char| c.is_control() && c != '\n';
        assert!(!stdout.contains(steers), "{words}: {stdout:?}");
        stdout
    }

    fn json(&self, words: &str) -> Value {
        let outcome = self.command(&format!("report --format json {words}"));
        serde_json::from_str(&outcome.stdout).expect("JSON")
    }

    fn picture(&self, words: &str) -> String {
        let file = self.place.join("a.svg");
        self.prints(&format!("flamegraph --force {words} -o {}", file.display()));
        fs::read_to_string(file).expect("a picture in UTF-8")
    }
}

/// Returns the words of the line that ends with a name. Thread ids after the name are ignored.
fn row<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let end = format!("  {name}");
    let mut lines = text.lines().map(|line| line.split(" (tid").next().unwrap_or_default());
    let line = lines.find(|line| line.ends_with(&end));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).split_whitespace().collect()
}

/// Splits a tree at the heading of a thread, whose id varies.
fn below_thread<'a>(tree: &'a str, heading: &str) -> (&'a str, &'a str) {
    let (before, rest) = tree.split_once(heading).unwrap_or_else(|| panic!("{heading}: {tree}"));
    (before, rest.split_once('\n').expect("rows").1)
}

#[test]
fn scopes_labels_and_lanes_as_tables() {
    for mode in ["stacks", "scopes"] {
        let of = Recorded::new(&format!("views-tables-{mode}"), &["--mode", mode], &[]);
        let by_scope = of.prints("report --by scope --sort requested_bytes");
        assert_eq!(row(&by_scope, "A")[1..7], ["1000", "B", "51.8", "KiB", "1", "1"]);
        let inner = row(&by_scope, "A > B > A");
        assert_eq!(inner[1..7], ["48.8", "KiB", "48.8", "KiB", "1", "1"]);
        // Frees are counted where they are made: the block of `A > B > A` was freed in `release`.
        assert_eq!(inner[7..11], ["0", "B", "0", "B"]);
        assert_eq!(row(&by_scope, "release")[9..11], ["48.8", "KiB"]);
        row(&by_scope, r"red\x1b[31m;\x0a\xff");
        let by_label = of.prints("report --by label --sort requested_bytes");
        assert_eq!(row(&by_label, r"named;\x1b[31m")[3..5], ["1", "1"]);
        assert!(row(&by_label, "arena").len() > 5);
        let by_lane = of.prints("report --by thread");
        let helper = row(&by_lane, "helper");
        assert_eq!((helper[1], helper[2], helper[helper.len() - 2]), ("1", "1", "1"));
        let page = of.prints("report");
        assert!(page.contains("\nPools\n") && page.contains("  hand over\n"), "{page}");
        assert!(page.contains(r"done\x1b[0m"), "{page}");
        of.prints("info");
    }
}

#[test]
fn scopes_as_a_tree() {
    let of = Recorded::new("views-tree", &[], &[]);
    let tree = of.prints("tree --scopes --metric requested_bytes --min-percent 0");
    let own = |tree: &str, name: &str| row(tree, name)[4..6].join(" ");
    assert_eq!((own(&tree, "A"), own(&tree, "  B")), ("1000 B".into(), "1.95 KiB".into()));
    assert_eq!(own(&tree, "    A"), "48.8 KiB");
    let folded =
        of.prints("tree --scopes --fold-recursion --metric requested_bytes --min-percent 0");
    assert_eq!(own(&folded, "A"), "49.8 KiB");
    assert_eq!(row(&folded, "A")[6..8], ["2", "2"]);
    assert!(!folded.contains("    A\n"), "{folded}");
    let lanes = of.prints("tree --scopes --per-thread --metric requested_bytes --min-percent 0");
    let (main, helper) = below_thread(&lanes, "thread helper, 1 thread, tid ");
    assert!(main.contains("thread views, 1 thread, tid ") && !main.contains("release"), "{main}");
    assert_eq!(own(helper, "release"), "2.93 KiB");
}

#[test]
fn the_tree_of_scopes_drops_nothing_silently() {
    let (place, program) =
        (scratch("views-values"), Guest::read("scope_values.c").build("views-values", &[]));
    let recording = place.join("values.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(program), &place);
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let of = Recorded { place, recording };
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let tree = |words: &str| {
        let page = of.prints(&format!("tree --scopes {words}"));
        let (_, rows) = page.split_once("allocs  scope\n").expect("a heading");
        rows.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let names = |rows: &[String]| rows.iter().map(|row| row[60..].to_owned()).collect::<Vec<_>>();
    let rows = tree("--metric requested_bytes");
    let expected = [
        "loop",
        "  iteration=0…99, 100 values",
        "    solve",
        "names",
        "  … 60 more scopes",
        "… 2 more scopes",
    ];
    assert_eq!(names(&rows), expected);
    assert_eq!(cells(&rows[2])[1..3], ["97.7", "KiB"]);
    assert_eq!(cells(&rows[2])[6..8], ["100", "100"], "entered and allocations of solve");
    assert_eq!(cells(&rows[4])[1..3], ["3.75", "KiB"]);
    assert_eq!(cells(&rows[4])[6..8], ["60", "60"], "entered and allocations of the names");
    // Scopes whose blocks were all freed are shown unless another metric is selected.
    assert_eq!(names(&tree("")), expected);
    let all = tree("--min-percent 0");
    assert_eq!(all.len(), 3 + 1 + 1 + 60 + 1, "{all:?}");
    assert_eq!(names(&all)[3..6], ["wait", "names", "  name 0"]);
    assert_eq!(cells(&all[3]), ["1", "0", "wait"], "entered once, without allocations");
    let largest = names(&tree("--min-percent 0 --metric freed_here_bytes --order value"));
    assert_eq!(largest[..2], ["loop", "  iteration=0…99, 100 values"]);
    assert_eq!(largest[3], "clean");
    assert_eq!(tree("--unfold-values --min-percent 0").len(), 1 + 200 + 1 + 1 + 60 + 1);
    let unfolded = tree("--unfold-values --metric requested_bytes --min-percent 3");
    assert_eq!(names(&unfolded)[..3], ["loop", "  … 200 more scopes", "names"]);
    assert_eq!(names(&tree("--depth 1 --metric requested_bytes")).len(), 5);
    // A scope without matching sites has no row.
    assert_eq!(names(&tree("--focus scope:solve")), expected[..3]);
    let by_scope = of.prints("report --by scope --top 100");
    assert!(by_scope.contains(" loop > iteration=0…99, 100 values > solve\n"), "{by_scope}");
    assert!(by_scope.contains(" clean\n") && by_scope.contains(" wait\n"), "{by_scope}");
    let graph = of.prints("export --format dot --scopes");
    let boxes = |graph: &str| graph.matches("tooltip=").count();
    assert_eq!(boxes(&graph), 3 + 1 + 1 + 60 + 1, "{graph}");
    assert!(graph.contains("[label=\"wait\\nentered once\", "), "{graph}");
    assert!(graph.contains("[label=\"clean\\nentered once\\nfreed 4.22 KiB in 60 blocks\", "));
    let cut = of.prints("export --format dot --scopes --min-percent 3");
    assert_eq!(boxes(&cut), 6, "{cut}");
    assert!(cut.contains("\\nbelow 3.0%: 62 scopes in dashed boxes\""), "{cut}");
    assert!(cut.contains("label=\"… 60 more scopes\\n"), "{cut}");
    let json = of.json("");
    assert_eq!(list(&json["processes"][0], "scopes").len(), 1 + 1 + 200 + 1 + 1 + 60 + 1);
}

#[test]
fn groups_of_threads() {
    crate::harness::check("thread_groups.c");
    let groups = "--group-threads io=^io-,workers=^wrk";
    for mode in ["stacks", "scopes", "counters", "trace"] {
        let (place, program) = (
            scratch(&format!("views-groups-{mode}")),
            Guest::read("thread_groups.c").build("views-groups", &[]),
        );
        let recording = place.join("a.heaptide");
        let outcome = run(recorded(&recording, &["--mode", mode]).arg(program), &place);
        assert_eq!(outcome.status, 0, "{outcome:?}");
        let of = Recorded { place, recording };
        let json = of.json(groups);
        let process = &json["processes"][0];
        let lanes = list(process, "lanes");
        let lane = |name: &str| {
            let index = lanes.iter().position(|lane| lane["name"] == name).expect("a group");
            let values = ["threads", "allocations", "requested_bytes"];
            (index, values.map(|key| number(&lanes[index], key)))
        };
        let (io, workers) = (lane("io"), lane("workers"));
        assert_eq!((lanes.len(), io.1), (3, [2, 20, 2000]), "{mode}");
        assert_eq!(workers.1, [3, 60, 12_000], "{mode}");
        let total = lanes.iter().map(|lane| number(lane, "allocations")).sum::<i128>();
        assert_eq!(total, number(&process["totals"], "allocations"), "{mode}");
        let table = of.prints(&format!("report --by thread {groups}"));
        assert!(!table.contains("wrk-"), "{table}");
        let of_group = table.lines().find_map(|line| line.split_once("  workers (tids ")?.1.into());
        assert_eq!(of_group.expect("a group").split(", ").count(), 3, "{table}");
        if mode == "counters" {
            continue;
        }
        let of_io = list(process, "sites").iter().filter(|site| site["lane"] == "io");
        let of_io: Vec<_> = of_io.map(|site| number(site, "lane_index")).collect();
        assert!(!of_io.is_empty() && of_io.iter().all(|&index| index == io.0 as i128));
        let tree = of.prints(&format!("tree --scopes --per-thread {groups}"));
        let (_, of_workers) = below_thread(&tree, "\nthread workers, 3 threads, tids ");
        assert_eq!(row(of_workers.split("\n\n").next().expect("rows"), "task")[6..8], ["3", "60"]);
        let graph = of.prints(&format!("export --format dot --scopes --per-thread {groups}"));
        assert!(graph.contains("(io), 2 threads, tids "), "{graph}");
        let mut query = heaptide();
        let text = "SELECT thread,sum(requested_bytes) GROUP BY thread WHERE thread=io";
        query.arg("query").args(groups.split(' ')).args(["--exact", text]).arg(&of.recording);
        let answer = run(&mut query, &of.place).stdout;
        assert_eq!(
            answer.split_whitespace().skip(2).collect::<Vec<_>>(),
            ["io", "2000"],
            "{answer}"
        );
        let focus = of.json(&format!("{groups} --focus thread:^io$"));
        assert_eq!(number(&focus["processes"][0]["totals"], "requested_bytes"), 2000, "{mode}");
    }
    let of = Recorded::new("views-groups", &[], &[]);
    for words in ["^io-", "io=(", "=x"] {
        let Outcome { status, stderr, .. } = of.command(&format!("report --group-threads {words}"));
        assert_eq!(status, 2, "{words}");
        assert!(stderr.starts_with("heaptide: --group-threads ") && stderr.lines().count() == 1);
    }
    // A comma inside an expression does not end it; threads without a match keep their rows.
    let json = of.json("--group-threads rest=^he.{1,9}$");
    let lanes = list(&json["processes"][0], "lanes");
    assert_eq!((&lanes[0]["name"], &lanes[1]["name"]), (&"views".into(), &"rest".into()));
}

#[test]
fn scopes_as_json() {
    for mode in ["stacks", "scopes"] {
        let of = Recorded::new(&format!("views-json-{mode}"), &["--mode", mode], &[]);
        report(&of.recording, &of.place);
        let json = of.json("");
        let process = &json["processes"][0];
        let scopes = list(process, "scopes");
        let sum = |measure| scopes.iter().map(|scope| number(scope, measure)).sum::<i128>();
        for measure in ["allocations", "frees", "live_bytes", "frees_here", "freed_here_bytes"] {
            assert_eq!(sum(measure), number(&process["totals"], measure), "{measure}");
        }
        for site in list(process, "sites") {
            let mut at = &scopes[number(site, "scope_index") as usize];
            for named in list(site, "scope").iter().rev() {
                assert_eq!(
                    (&named["attribute"], &named["value"]),
                    (&at["attribute"], &at["value"])
                );
                at = &scopes[number(at, "parent") as usize];
            }
            assert!(at["parent"].is_null() && site.get("scope_cut").is_none());
        }
        let lanes = list(process, "lanes");
        let visits = lanes.iter().flat_map(|lane| list(lane, "scopes"));
        let mut entered = vec![0; scopes.len()];
        visits.for_each(|v| entered[number(v, "scope_index") as usize] += number(v, "entered"));
        assert_eq!(entered, scopes.iter().map(|s| number(s, "entered")).collect::<Vec<_>>());
        for (index, lane) in lanes.iter().enumerate() {
            let own = list(process, "sites").iter().filter(|site| site["lane_index"] == index);
            let frees: i128 = own.map(|site| number(site, "frees_here")).sum();
            assert_eq!(frees, number(lane, "frees_here"), "{lane}");
        }
        let labels = list(process, "labels");
        let chunk = labels.iter().find(|row| row["kind"] == "pool_chunk").expect("a chunk");
        assert_eq!(number(chunk, "lent_bytes"), 1024);
        let chunks = number(chunk, "live_bytes") + number(chunk, "lent_bytes");
        assert!((4096..=4112).contains(&chunks), "idle and in use are {chunks}");
        let window = &list(process, "windows")[0];
        assert_eq!(window["name"], "hand over");
        assert_eq!(number(window, "frees"), 1);
        assert_eq!(list(process, "marks")[0]["name"], "done\u{1b}[0m");
    }
}

#[test]
fn scopes_as_pictures() {
    let of = Recorded::new("views-pictures", &[], &[]);
    for words in ["--scopes", "--scopes-and-stacks", "--scopes --fold-recursion"] {
        let svg = of.picture(&format!("{words} --metric requested_bytes"));
        assert!(!svg.contains(|c: char| c.is_control() && !"\n\t\r".contains(c)), "{words}");
        // A number at the end of a name is not a value, and a semicolon not a separator.
        assert!(svg.contains("step\u{a0}7 (") && svg.contains(r"red\x1b[31m:\x0a"), "{words}");
    }
}

#[test]
fn ten_thousand_scopes_inside_each_other() {
    let of = Recorded::new("views-deep", &["--mode", "scopes"], &["10000"]);
    let json = of.json("");
    let process = &json["processes"][0];
    assert_eq!(list(process, "scopes").len(), 10_001);
    let deepest = list(process, "sites").iter().find(|site| number(site, "scope_index") == 10_000);
    let deepest = deepest.expect("a site in the innermost scope");
    assert_eq!((list(deepest, "scope").len(), &deepest["scope_cut"]), (100, &Value::Bool(true)));
    assert_eq!(deepest["scope"][99]["value"], "9999");
    let tree = of.prints("tree --scopes --min-percent 0");
    assert!(tree.contains("  level=9999\n"));
    of.prints("report --by scope --top 20000");
    let folded = of.prints("tree --scopes --fold-recursion --min-percent 0 --per-thread");
    assert!(folded.contains("  level=9999\n"));
    let svg = of.picture("--scopes");
    assert!(svg.contains("level=59 (") && !svg.contains("level=60 ("));
    assert!(svg.contains("<title>… 1 deeper branch ("));
}

#[test]
fn views_of_what_was_not_recorded() {
    let of = Recorded::new("views-counters", &["--mode", "counters"], &[]);
    for words in ["tree --scopes", "report --by scope", "report --by label", "flamegraph --scopes"]
    {
        let Outcome { status, stdout, stderr } = of.command(words);
        assert_eq!((status, &*stdout, stderr.lines().count()), (1, "", 1), "{words}: {stderr}");
        assert!(stderr.contains("recorded with --mode counters"), "{stderr}");
    }
    for words in
        ["report --by colour", "tree --per-thread", "flamegraph --scopes --scopes-and-stacks"]
    {
        let Outcome { status, stderr, .. } = of.command(words);
        assert_eq!(status, 2, "{words}: {stderr}");
        assert!(stderr.starts_with("error: "), "{stderr}");
    }
}

/// A shell that runs the program twice: the largest process is shown, the others can be selected.
#[test]
fn scopes_of_several_processes() {
    let of = Recorded::new("views-several", &[], &[]);
    let recording = of.place.join("several.heaptide");
    let program = of.place.join("views");
    let line = format!("'{0}' & '{0}' 100; wait", program.display());
    let outcome = run(recorded(&recording, &[]).args(["sh", "-c", &line]), Path::new(&of.place));
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let of = Recorded { recording, ..of };
    let json = of.json("");
    for process in list(&json, "processes").iter().filter(|p| list(p, "scopes").len() > 1) {
        let pid = number(process, "pid");
        let words = format!("report --by scope --sort requested_bytes --process {pid} --top 200");
        let mut command = clean(heaptide());
        command.args(words.split_whitespace()).arg(&of.recording);
        let outcome = run(&mut command, &of.place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        let deep = list(process, "scopes").len() == 101;
        let name = if deep { "level=99" } else { "release" };
        assert!(outcome.stdout.contains(name), "{}", outcome.stdout);
    }
}

/// Requests that the threshold excludes are one row, which belongs to no file.
#[test]
fn stacks_by_threshold() {
    for (option, name) in [
        ("--stacks-from", "[below the stack threshold]"),
        ("--stacks-below", "[not below the stack threshold]"),
    ] {
        let of = Recorded::new(&format!("views{option}"), &[option, "2K"], &[]);
        for words in ["report --by function --sort allocations", "tree --metric allocations"] {
            let text = of.prints(words);
            assert!(text.contains(&format!("{name}\n")), "{words}: {text}");
        }
        assert!(!of.prints("report").contains("[?]"));
    }
}
