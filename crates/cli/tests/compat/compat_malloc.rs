//! Programs written for malloc-tag and MallocProfiler, built with the headers of `include/compat`.

use crate::harness::{clean, heaptide, recorded, run, scratch};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Builds a program of `tests/compat` as C++11 with these flags.
fn build(name: &str, place: &Path, flags: &[&str]) -> PathBuf {
    let program = place.join(name);
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++11", "-O2", "-g", "-fno-builtin", "-Wall", "-Wextra", "-Wpedantic"]);
    compiler.args(["-Werror", "-pthread", "-I", "include/compat", "-o"]).arg(&program);
    compiler.arg(format!("tests/compat/{name}.cpp")).args(flags).current_dir(ROOT);
    let built = run(&mut compiler, place);
    assert_eq!(built.status, 0, "{name}: {}", built.stderr);
    program
}

fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).expect("JSON")
}

/// Makes the program write both files of malloc-tag into its directory.
fn with_variables(command: &mut Command) -> &mut Command {
    command.env("MTAG_STATS_OUTPUT_JSON", "out.json").env("MTAG_STATS_OUTPUT_GRAPHVIZ_DOT", "out")
}

/// Returns the only tree with this name in a snapshot of malloc-tag.
fn tree<'a>(snapshot: &'a Value, name: &str) -> &'a Value {
    let trees = snapshot.as_object().expect("an object").iter();
    let mut named =
        trees.filter(|(key, tree)| key.starts_with("tree_for_TID") && tree["ThreadName"] == name);
    let (_, tree) = named.next().unwrap_or_else(|| panic!("no tree {name}"));
    assert!(named.next().is_none(), "two trees {name}");
    tree
}

const SCOPES: &str = "recorded 0 1 1 1 1 5 10 6\n1 0 1 0\n";

fn assert_scopes(snapshot: &Value) {
    let tree = tree(snapshot, "malloc_tag_scop");
    assert_eq!(tree["TID"], snapshot["PID"]);
    assert_eq!((&tree["nTreeLevels"], &tree["nTreeNodesInUse"]), (&4.into(), &6.into()));
    let run = &tree["scope_malloc_tag_scop"]["nestedScopes"]["scope_run"];
    let (load, grid) =
        (&run["nestedScopes"]["scope_load"], &run["nestedScopes"]["scope_Grid::fill"]);
    let number = |scope: &Value, name: &str| scope[name].as_u64().expect("a number");
    // Usable bytes: 104, 200 and 504 with glibc.
    assert_eq!(number(load, "nBytesSelfAllocated"), 304);
    // As malloc-tag counts them: realloc frees nothing.
    assert_eq!(number(load, "nBytesSelfFreed"), 200);
    assert_eq!(number(load, "nBytesTotalAllocated"), 304 + 504);
    let calls = ["malloc", "realloc", "free"].map(|name| number(load, &format!("nCallsTo_{name}")));
    assert_eq!(calls, [1, 1, 1]);
    assert!(number(grid, "nBytesSelfAllocated") >= 1_000_000);
    assert_eq!(number(grid, "nBytesSelfFreed"), 0);
    let all: u64 = ["nBytesTotalAllocated", "nBytesTotalFreed"].map(|n| number(run, n))[0];
    assert_eq!(all, 304 + 2 * 504 + number(grid, "nBytesSelfAllocated"));
}

#[test]
fn malloc_tag_scopes() {
    let place = scratch("compat-malloc-tag-scopes");
    let program = build("malloc_tag_scopes", &place, &[]);
    let bare = run(with_variables(&mut clean(Command::new(&program))).current_dir(&place), &place);
    assert_eq!((bare.status, &*bare.stdout), (0, "bare 1 0 0 0 0 0 0 0\n0 1 1 0\n"));
    assert!(!place.join("out.json").exists());
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    let outcome = run(with_variables(&mut command).arg(&program).current_dir(&place), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    assert_eq!(outcome.stdout, SCOPES);
    assert_scopes(&json(&place.join("out.json")));
    let graph = fs::read_to_string(place.join("out.dot")).expect("the graph");
    assert_eq!(graph.matches("scope=parse").count(), 2, "{graph}");
    // The command exports the same from the recording.
    let mut export = heaptide();
    export.args(["export", "--format", "malloc-tag"]).arg(&recording);
    let exported: Value = serde_json::from_str(&run(&mut export, &place).stdout).expect("JSON");
    assert_eq!(tree(&exported, "malloc_tag_scop")["nTreeNodesInUse"], 6);
}

/// Linked like malloc-tag, without variables: the program starts the recorder itself.
#[test]
fn malloc_tag_linked() {
    let place = scratch("compat-malloc-tag-linked");
    let sdk = place.join("sdk");
    assert_eq!(run(heaptide().arg("sdk").arg(&sdk), &place).status, 0);
    let library = sdk.join("lib");
    let flags = ["compat", "."].map(|below| format!("-L{}", library.join(below).display()));
    let found = format!("-Wl,-rpath,{}", library.display());
    let program =
        build("malloc_tag_scopes", &place, &[&flags[0], &flags[1], "-lmalloc_tag", &found]);
    let mut command = clean(Command::new(program));
    command.env("HEAPTIDE_COMMAND", env!("CARGO_BIN_EXE_heaptide")).current_dir(&place);
    let outcome = run(with_variables(&mut command).env("TMPDIR", &place), &place);
    assert_eq!((outcome.status, &*outcome.stdout, &*outcome.stderr), (0, SCOPES, ""));
    assert_scopes(&json(&place.join("out.json")));
    let left = fs::read_dir(&place).expect("the directory").flatten();
    assert!(!left.into_iter().any(|e| e.file_name().to_string_lossy().ends_with(".heaptide")));
}

/// The recorder writes the statistics itself: no command, no PATH, no HOME, in a signal handler.
#[test]
fn malloc_tag_statistics_need_no_command() {
    let place = scratch("compat-malloc-tag-calls");
    let program = build("malloc_tag_calls", &place, &[]);
    let bare = run(clean(Command::new(&program)).current_dir(&place), &place);
    assert_eq!((bare.status, &*bare.stdout), (0, "bare\n"));
    let library = heaptide_library(&place);
    let mut command = Command::new(&program);
    command.env_clear().env("LD_PRELOAD", library).env("HEAPTIDE_OUTPUT", place.join("a.heaptide"));
    command.env("HEAPTIDE_COMMAND", "/nonexistent").current_dir(&place);
    let outcome = run(with_variables(&mut command), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    assert_eq!(outcome.stdout, "1 1 0 0 1\n");
    let snapshot = json(&place.join("out.json"));
    let scopes = &tree(&snapshot, "malloc_tag_call")["scope_malloc_tag_call"]["nestedScopes"];
    let calls = |scope: &str| {
        let scope = &scopes[format!("scope_{scope}")];
        ["malloc", "realloc", "calloc", "free"].map(|name| {
            scope[format!("nCallsTo_{name}")].as_u64().unwrap_or_else(|| panic!("{scope}"))
        })
    };
    assert_eq!(calls("calls"), [3, 2, 5, 3]);
    assert_eq!(scopes["scope_calls"]["nBytesSelfFreed"], 24 + 40);
    assert_eq!(calls("quote\"line\nbackslash\\"), [1, 0, 0, 0]);
    assert_eq!(calls("in the handler"), [1, 0, 0, 0], "of the scope that the handler interrupted");
    // 12 scopes with 15 scopes each, within the limits of nodes and siblings.
    let wide = &scopes["scope_wide"]["nestedScopes"];
    let inner = wide.as_object().expect("scopes").values().map(|scope| &scope["nestedScopes"]);
    let inner: Vec<usize> = inner.map(|scopes| scopes.as_object().expect("scopes").len()).collect();
    assert_eq!(inner, [15; 12]);
    assert_eq!(wide["scope_outer7"]["nestedScopes"]["scope_inner3"]["nBytesSelfAllocated"], 40);
    let own = snapshot["nBytesMallocTagSelfUsage"].as_u64().expect("a number");
    let resident = snapshot["vmRSSNowBytes"].as_u64().expect("a number");
    assert!((100_000..resident).contains(&own), "{own} of {resident}");
    let graph = fs::read_to_string(place.join("out.dot")).expect("the graph");
    assert!(graph.contains("num_calloc_self=5\\n") && graph.ends_with("}\n"), "{graph}");
}

/// Writes the library to a directory.
fn heaptide_library(place: &Path) -> PathBuf {
    let sdk = place.join("sdk");
    assert_eq!(run(heaptide().arg("sdk").arg(&sdk), place).status, 0);
    sdk.join("lib/libheaptide.so")
}

#[test]
fn malloc_tag_limits() {
    let place = scratch("compat-malloc-tag-limits");
    let program = build("malloc_tag_limits", &place, &[]);
    let bare = run(clean(Command::new(&program)).current_dir(&place), &place);
    assert_eq!((bare.status, &*bare.stdout), (0, "bare\n"));
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    let outcome = run(command.arg(&program).current_dir(&place), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    assert_eq!(outcome.stdout, "4 1 50 1 1 1 -1 4 8\n100 4 0\n");
    assert!(place.join("snap.0000.dot").exists() && !place.join("snap.0001.json").exists());
    let snapshot = json(&place.join("snap.0000.json"));
    let bare = &tree(&snapshot, "bare")["scope_bare"];
    let late = &tree(&snapshot, "late")["scope_late"];
    assert_eq!((&bare["nCallsTo_malloc"], &late["nCallsTo_malloc"]), (&3.into(), &3.into()));
    let frees = [bare, late].map(|scope| scope["nCallsTo_free"].as_u64().expect("a number"));
    assert_eq!(frees[1], frees[0] + 3, "null pointers, freed while the thread exits");
    let outer = &tree(&snapshot, "worker")["scope_worker"]["nestedScopes"]["scope_outer"];
    assert_eq!(outer["nBytesSelfAllocated"], 24);
}

#[test]
fn malloc_profiler_stacks() {
    let place = scratch("compat-malloc-profiler-stacks");
    let program = build("malloc_profiler_stacks", &place, &[]);
    let names = "0 std::vector<int >::push_back\nA::operator()\n(anonymous namespace)::f\nllvm\n\
                 main::{lambda()#1}::operator()\n";
    let bare = run(&mut clean(Command::new(&program)), &place);
    let empty = "0 000 0 0 0 0\n== lines\n== details\n== shouted\n";
    assert_eq!((bare.status, &*bare.stdout), (0, &*format!("{empty}{names}")));
    let mut command = recorded(&place.join("a.heaptide"), &["--start-off"]);
    let outcome = run(command.arg(&program), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let printed = outcome.stdout;
    assert!(printed.starts_with("1 000 3 120 3 0\n== lines\n"), "{printed}");
    assert!(printed.ends_with(names), "{printed}");
    let part = |from: &str, to: &str| {
        let rest = printed.split_once(from).unwrap_or_else(|| panic!("{from}: {printed}")).1;
        rest.split_once(to).expect("its end").0.to_owned()
    };
    let lines = part("== lines\n", "== details\n");
    // Calls, bytes, live bytes, highest live bytes; the peak of the process is the sum of the
    // three.
    let of_append = |line: &&str| line.contains(";main;instrumented;append $");
    let of_append: Vec<&str> = lines.lines().filter(of_append).collect();
    let (calls, max): (Vec<u64>, Vec<u64>) = of_append
        .iter()
        .map(|line| {
            let numbers: Vec<u64> =
                line.split('$').skip(1).filter_map(|n| n.parse().ok()).collect();
            let [calls, total, live, max] = numbers[..] else { panic!("{line}") };
            assert_eq!(total, calls * 40);
            assert!(live <= max && max <= total, "{line}");
            (calls, max)
        })
        .unzip();
    assert_eq!((calls.iter().sum::<u64>(), max.iter().sum::<u64>()), (3, 120), "{lines}");
    assert!(lines.lines().all(|line| line.starts_with("_mpTrace_;")), "{lines}");
    assert!(lines.ends_with("_mpTrace_;SmallAllocations $0$0$0$0\n"), "{lines}");
    let details = part("== details\n", "== shouted\n");
    assert!(details.starts_with("Stat 1 40 "), "{details}");
    assert!(details.contains("#0 append(int) ") && details.contains("_stacks.cpp:"), "{details}");
    let of_main = details.lines().any(|line| line.contains(" main"));
    assert!(details.contains("#1 instrumented() ") && !of_main, "{details}");
    let shouted = part("== shouted\n", "0 std::vector");
    assert!(shouted.contains(";APPEND  1 40 "), "{shouted}");
    assert!(shouted.contains("_mpTrace_;SmallAllocations  0 0 0 0\n"), "{shouted}");
}

/// The example in MallocProfiler's slides: calls, total, live and highest live bytes, all as
/// requested bytes.
#[test]
fn malloc_profiler_hash_table() {
    let place = scratch("compat-malloc-profiler-hash-table");
    let program = build("malloc_profiler_hash_table", &place, &[]);
    let recording = place.join("a.heaptide");
    let numbers = |calls: u64, columns: &str| {
        let format = format!("FORMAT format(\"{columns}\")");
        let query = format!("SELECT * FROM stacks WHERE allocations={calls} {format}");
        let outcome = run(heaptide().args(["query", &query]).arg(&recording), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        outcome.stdout.trim_end().to_owned()
    };
    let known = "%allocations% %requested_bytes% %live_requested_bytes%";
    assert_eq!(run(recorded(&recording, &[]).arg(&program), &place).status, 0);
    assert_eq!(numbers(15148, known), "15148 727104 727104");
    assert_eq!(run(recorded(&recording, &["--force"]).arg(&program).arg("r"), &place).status, 0);
    assert_eq!(numbers(15148, known), "15148 727104 727104");
    let mut command = recorded(&recording, &["--force", "--mode", "trace"]);
    assert_eq!(run(command.arg(&program), &place).status, 0);
    let highest = "%allocations% %requested_bytes% %live_requested_bytes% \
                   %max_live_requested_bytes%";
    assert_eq!(numbers(15148, highest), "15148 727104 727104 727104");
    assert_eq!(numbers(11, highest), "11 324840 166024 248208");
    let dump = heaptide().args(["export", "--format", "malloc-profiler"]).arg(&recording).output();
    let dump = String::from_utf8(dump.expect("a dump").stdout).expect("UTF-8");
    let line = |numbers: &str| dump.lines().filter(|line| line.ends_with(numbers)).count();
    assert_eq!(line(" $15148$727104$727104$727104"), 1, "{dump}");
    assert_eq!(line(" $11$324840$166024$248208"), 1, "{dump}");
}

/// Numbers that the counters do not determine are not printed: the maximum of live bytes of a
/// stack, and that of a thread. Blocks below the threshold are the small allocations.
#[test]
fn malloc_profiler_unknown() {
    let place = scratch("compat-malloc-profiler-unknown");
    let program = build("malloc_profiler_unknown", &place, &[]);
    let outcome = run(recorded(&place.join("a.heaptide"), &[]).arg(&program), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
    let known = "\
== both
kept $3$600$600$600
one_by_one $3$300$0$100
single $1$700$0$700
together $2$1000$0$1000
waves $4$10000$0$-
SmallAllocations $0$0$0$0
== threshold
SmallAllocations $5$50$50$50
== reverse
SmallAllocations $5$50$50$50
LargeAllocations $2$4000$4000$4000
== thread
1000 max 1000
0 max 18446744073709551615
";
    assert_eq!(outcome.stdout, known);
    // A trace has all of them.
    let recording = place.join("t.heaptide");
    let mut command = recorded(&recording, &["--mode", "trace"]);
    assert_eq!(run(command.arg(&program), &place).status, 0);
    let export = ["export", "--format", "malloc-profiler"];
    let lines = run(heaptide().args(export).arg(&recording), &place).stdout;
    assert!(lines.lines().any(|line| line.ends_with(";waves() $4$10000$0$5000")), "{lines}");
}

#[test]
fn malloc_profiler_threads() {
    let place = scratch("compat-malloc-profiler-threads");
    let program = build("malloc_profiler_threads", &place, &[]);
    let bare = run(clean(Command::new(&program)).current_dir(&place), &place);
    assert_eq!((bare.status, &*bare.stdout), (0, ""));
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    let outcome = run(command.arg(&program).current_dir(&place), &place);
    let dumps = outcome.stderr.matches(">>>> DUMPER DONE <<<<<\n").count();
    assert!(outcome.status == 0 && dumps > 0, "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().filter(|line| !line.contains("DUMPER")).count(), 0);
    let made: Vec<&str> = outcome.stdout.lines().filter(|line| line.contains(";make $")).collect();
    assert_eq!(made.len(), 1, "{}", outcome.stdout);
    assert!(made[0].contains(&format!("$1001${}$0$", 1001 * 400)), "{}", made[0]);
    let files = fs::read_dir(&place).expect("the directory").flatten();
    let names: Vec<String> =
        files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let statistics = names.iter().find(|name| name.starts_with("memstat_")).expect("statistics");
    let text = fs::read_to_string(place.join(statistics)).expect("the statistics");
    assert!(text.starts_with("MemStat Global Summary time: ncalls"), "{text}");
    assert!(text.contains("MemStat Global Summary 1: ") && text.contains("MemLive Global Hist "));
    assert!(names.iter().any(|name| name.starts_with("memdump_") && name.ends_with("_0.mdr")));
}

/// The output of MallocProfiler at exit, requested by a variable.
#[test]
fn malloc_profiler_at_exit() {
    let place = scratch("compat-malloc-profiler-at-exit");
    let program = build("malloc_profiler_stacks", &place, &[]);
    let mut command = recorded(&place.join("a.heaptide"), &["--report", "malloc-profiler:dump"]);
    assert_eq!(run(command.arg(&program).current_dir(&place), &place).status, 0);
    let dump = fs::read_to_string(place.join("dump")).expect("the dump");
    assert!(dump.starts_with("MemStat Global Summary for "), "{dump}");
    let histogram = dump.lines().find(|line| line.starts_with("MemTot Global Hist for "));
    assert_eq!(histogram.expect("a histogram").matches(',').count(), 64);
    assert!(dump.contains("_mpTrace_;") && dump.contains("_mpTrace_;SmallAllocations $"));
}

#[test]
fn scopes_of_two_tools_nest() {
    let place = scratch("compat-two-tools");
    let program = build("two_tools", &place, &[]);
    let bare = run(clean(Command::new(&program)).current_dir(&place), &place);
    assert_eq!((bare.status, &*bare.stdout), (0, "0 0\n"));
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    let outcome = run(command.arg(&program).current_dir(&place), &place);
    assert_eq!((outcome.status, &*outcome.stdout), (0, "1 1\n"));
    let snapshot = json(&place.join("tools.json"));
    let root = &tree(&snapshot, "two_tools")["scope_two_tools"];
    let inner = |scope: &Value, name: &str| scope["nestedScopes"][format!("scope_{name}")].clone();
    let below = inner(&inner(&inner(root, "run"), "load"), "parse");
    let beside = inner(&inner(root, "load"), "parse");
    assert_eq!([&below["nCallsTo_malloc"], &beside["nCallsTo_malloc"]], [1, 1]);
}

/// Returns a program with preloaded libraries, whose recording is in `place` while it runs.
fn preloaded(program: &Path, libraries: &[&Path], place: &Path) -> Command {
    let libraries: Vec<&str> = libraries.iter().filter_map(|library| library.to_str()).collect();
    let mut command = clean(Command::new(program));
    command.env("LD_PRELOAD", libraries.join(" ")).env("TMPDIR", place).current_dir(place);
    command.env("HEAPTIDE_COMMAND", env!("CARGO_BIN_EXE_heaptide"));
    command
}

/// The command lines of MallocProfiler: preloaded by its name, the recorder writes a dump at exit,
/// with stacks of at least 128 bytes.
#[test]
fn malloc_profiler_is_preloaded_by_its_name() {
    let place = scratch("compat-malloc-profiler-names");
    let program = build("malloc_profiler_names", &place, &[]);
    let library = heaptide_library(&place);
    let compat = library.with_file_name("compat");
    let start = |name: &str, argument: &str| {
        let mut command = preloaded(&program, &[&compat.join(name)], &place);
        let outcome = run(command.arg(argument), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{name} {argument}");
        outcome.stdout
    };
    let on = start("mallocProfiler.so", "");
    assert!(on.starts_with("1 1 128\n"), "{on}");
    assert!(on.contains(";main;large $3$3000$3000$3000\n"), "{on}");
    assert!(on.contains("_mpTrace_;SmallAllocations $1$100$100$100\n"), "{on}");
    let silent = start("mallocProfiler.so", "silent");
    assert!(silent.starts_with("1 1 128\nMemStat Global Summary"), "{silent}");
    assert!(silent.contains("MemLive Global Hist ") && !silent.contains("_mpTrace_"), "{silent}");
    let quick = start("mallocProfiler.so", "quick");
    assert!(quick.contains(";main;large $3$3000$3000$3000\n"), "{quick}");
    let off = start("mallocProfilerOFF.so", "");
    assert!(off.starts_with("1 0 128\n") && !off.contains("large"), "{off}");
}

/// Each process prints its dump, like MallocProfiler, also below a program that is recorded itself,
/// and nothing is left of their recordings.
#[test]
fn malloc_profiler_dumps_of_each_process() {
    let place = scratch("compat-malloc-profiler-each");
    let program = build("malloc_profiler_names", &place, &[]);
    let library = heaptide_library(&place).with_file_name("compat/mallocProfiler.so");
    let mut command = preloaded(Path::new("/usr/bin/env"), &[&library], &place);
    let twice = format!("{0} && {0}; exit 3", program.display());
    let outcome = run(command.args(["sh", "-c", &twice]), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (3, ""), "{}", outcome.stdout);
    let dumped = outcome.stdout.matches(";main;large $3$3000$3000$3000\n").count();
    assert_eq!(dumped, 2, "{}", outcome.stdout);
    let left = fs::read_dir(&place).expect("the directory").flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().ends_with(".heaptide"));
    assert_eq!(left.count(), 0);
}

/// Preloaded as mallocProfiler.so, the recorder knows the highest live bytes of each stack and
/// thread.
#[test]
fn malloc_profiler_highest_bytes_of_threads() {
    let place = scratch("compat-malloc-profiler-shared");
    let program = build("malloc_profiler_shared", &place, &[]);
    let library = heaptide_library(&place).with_file_name("compat/mallocProfiler.so");
    // Of each thread, and of the process at exit. Without room for all events, the highest bytes
    // are unknown, but for blocks that are all live at the peak of the process.
    let of_events = ["5$5000$0$3000", "5$5000$0$5000", "10$10000$0$5000"];
    let of_counters = ["5$5000$0$-", "5$5000$0$5000", "10$10000$0$-"];
    for (limit, expected) in [("", of_events), ("1", of_counters)] {
        let mut command = preloaded(&program, &[&library], &place);
        let outcome = run(command.env("HEAPTIDE_MAX_SIZE", limit), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{limit}");
        let lines = outcome.stdout.lines().filter_map(|line| line.split_once(";hold $"));
        let found: Vec<&str> = lines.map(|(_, numbers)| numbers).collect();
        assert_eq!(found, expected, "{limit}: {}", outcome.stdout);
    }
}

/// The settings of a program apply to a library that is preloaded, though it exports no function.
#[test]
fn malloc_profiler_settings_apply_to_preloaded_libraries() {
    let place = scratch("compat-malloc-profiler-traced");
    let program = build("malloc_profiler_traced", &place, &[]);
    let library = heaptide_library(&place);
    let compat = library.with_file_name("compat");
    let tracing = place.join("tracingThread.so");
    let mut compiler = Command::new("c++");
    compiler.args(["-O1", "-shared", "-fPIC", "-pthread", "-o"]).arg(&tracing);
    let source = library.with_file_name("../include/compat/tracingThread.cc");
    assert_eq!(run(compiler.arg(source), &place).status, 0);
    let libraries = [&*compat.join("mallocProfiler.so"), &*tracing];
    let outcome = run(&mut preloaded(&program, &libraries, &place), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let files = fs::read_dir(&place).expect("the directory").flatten();
    let mut files = files.map(|entry| entry.path());
    let first = files.find(|path| path.to_string_lossy().ends_with("_0.mdr"));
    let dump = fs::read_to_string(first.expect("a dump")).expect("the dump");
    assert!(dump.lines().any(|line| line.ends_with(";renamed $1$5000$5000$5000")), "{dump}");
}
