//! `heaptide retain`: what keeps the blocks of a running program, and which are lost.

use crate::harness::{Guest, heaptide, profiles, recorded, run, scratch, until};
use crate::python_frames::pythons;
use crate::recording::{list, number};
use heaptide_fixtures::skips::skip;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

/// A recorded program that waits for the end of its standard input.
struct Waiting {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    recording: PathBuf,
    place: PathBuf,
}

impl Waiting {
    /// Starts `retained.c`, and waits until its blocks are in place.
    fn start(name: &str, options: &[&str]) -> Waiting {
        let program = Guest::read("retained.c").build("retained.c", &["-pthread"]);
        Waiting::of(name, options, &[program.to_str().expect("a path")])
    }

    /// Does the same for another program.
    fn of(name: &str, options: &[&str], program: &[&str]) -> Waiting {
        let place = scratch(name);
        let recording = place.join("a.heaptide");
        let mut command = recorded(&recording, options);
        command.args(program).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("heaptide");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        assert_eq!(next_line(&mut output), "ready\n");
        Waiting { child, output, recording, place }
    }

    /// Returns the answer as JSON.
    fn retain(&self) -> Value {
        self.answer(&["retain", "--format", "json", "a.heaptide"])
    }

    /// Returns what a command prints about the process as JSON.
    fn answer(&self, arguments: &[&str]) -> Value {
        let answer: Value = serde_json::from_str(&self.printed(arguments)).expect("JSON");
        list(&answer, "processes")[0].clone()
    }

    /// Returns what a command prints.
    fn printed(&self, arguments: &[&str]) -> String {
        let outcome = run(heaptide().args(arguments).current_dir(&self.place), &self.place);
        assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{arguments:?}");
        outcome.stdout
    }

    /// Lets `growing_cache.cpp` run some rounds.
    fn rounds(&mut self, count: usize) {
        for _ in 0..count {
            self.child.stdin.as_mut().expect("its input").write_all(b"x\n").expect("it reads");
            assert_eq!(next_line(&mut self.output), "done\n");
        }
    }

    /// Lets the program end.
    fn stop(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("its status").success());
    }

    /// Lets the program end, which checks that its blocks are unchanged, and that it has no child.
    fn end(mut self) {
        drop(self.child.stdin.take());
        assert_eq!(next_line(&mut self.output), "no child\n");
        assert!(self.child.wait().expect("its status").success());
    }
}

fn next_line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    line
}

/// Returns the blocks of the program with this size, by state.
fn of_size(answer: &Value, bytes: i128) -> Vec<(&str, i128)> {
    let is_own = |row: &&Value| {
        let file = row["owner"]["file"].as_str();
        let files = ["retained.c", "lost_at_exit.cpp", "thread_locals_plugin.c"];
        file.is_some_and(|file| files.iter().any(|own| file.ends_with(own)))
    };
    let rows = list(answer, "sites").iter().filter(is_own);
    let rows = rows.filter(|row| number(row, "bytes") == bytes * number(row, "blocks"));
    let mut found: Vec<(&str, i128)> =
        rows.map(|row| (row["state"].as_str().expect("a state"), number(row, "blocks"))).collect();
    found.sort_unstable();
    found
}

/// Asserts the states of the program's blocks of these sizes.
fn assert_states(answer: &Value, expected: &[(i128, &[(&str, i128)])]) {
    for (bytes, states) in expected {
        assert_eq!(of_size(answer, *bytes), *states, "blocks of {bytes} bytes");
    }
}

/// Returns what was found when a process of a recording ended: the one with most memory, or that
/// with this id.
fn at_exit(recording: &Path, process: Option<u32>) -> Value {
    let mut command = heaptide();
    command.args(["retain", "--format", "json"]).arg(recording);
    if let Some(pid) = process {
        command.args(["--process", &pid.to_string()]);
    }
    let outcome = run(&mut command, recording.parent().expect("a place"));
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));
    let answer: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    list(&answer, "processes")[0].clone()
}

/// Asserts that a root is the variable that a line of a guest program declares.
fn assert_declared(answer: &Value, name: &str, program: &str, declaration: &str) {
    let guest = Guest::read(program);
    let lines = &mut guest.text().lines();
    let line = lines.position(|line| line.contains(declaration)).expect("a declaration");
    let is_it = |keeper: &&Value| keeper["by"]["name"] == name;
    let keeper = list(answer, "keepers").iter().find(is_it).expect("a keeper");
    let file = keeper["by"]["file"].as_str().expect("a file");
    assert!(file.ends_with(program), "{file}");
    assert_eq!(number(&keeper["by"], "line"), line as i128 + 1);
}

/// Returns the blocks and bytes that a root keeps.
fn keeps(answer: &Value, name: &str) -> (i128, i128) {
    let is_it = |keeper: &&Value| keeper["by"]["name"] == name;
    let keeper = list(answer, "keepers").iter().find(is_it);
    keeper.map_or((0, 0), |keeper| (number(keeper, "blocks"), number(keeper, "bytes")))
}

/// The states of the blocks of `retained.c`, by size.
const KNOWN: [(i128, &[(&str, i128)]); 12] = [
    (200, &[("reachable", 1000)]),
    (8024, &[("reachable", 1)]),
    (216, &[("only_by_interior", 100)]),
    (328, &[("reachable", 10)]),
    (232, &[("reachable", 50)]),
    (248, &[("reachable", 10)]),
    (264, &[("only_from_stack", 100)]),
    (280, &[("only_from_mapping", 20)]),
    (296, &[("lost", 300)]),
    (312, &[("lost_indirectly", 300)]),
    (344, &[("lost", 1), ("lost_indirectly", 99)]),
    (360, &[("lost", 10)]),
];

#[test]
fn blocks_are_kept_or_lost_as_known() {
    let waiting = Waiting::start("retained", &[]);
    // Repeated, because the program must be the same after each.
    for _ in 0..3 {
        let answer = waiting.retain();
        assert_eq!(answer["copied"], true);
        assert_eq!((number(&answer, "estimated_sizes"), number(&answer, "busy_threads")), (0, 0));
        assert_eq!(keeps(&answer, "cache"), (1001, 200_000 + 8024));
        assert_eq!(keeps(&answer, "interior"), (100, 21_600));
        assert_eq!(keeps(&answer, "large"), (11, (1 << 20) + 4080 + 3280));
        assert_states(&answer, &KNOWN);
        assert_declared(&answer, "large", "retained.c", "static void **cache");
        let path = list(&answer, "sites").iter().find(|row| number(row, "bytes") == 200_000);
        let path = list(path.expect("the blocks of the cache"), "path");
        assert_eq!((path[0]["name"].as_str(), number(&path[1], "count")), (Some("cache"), 1));
    }
    waiting.end();
}

/// Makes 500 cycles of objects, keeps 700 blocks, and waits for the end of its standard input.
const CYCLES: &str = "
import gc, sys
class Node: pass
def cycles():
    for _ in range(500):
        a, b = Node(), Node()
        a.other, b.other = b, a
def fill():
    return [bytes(1000) for _ in range(700)]
gc.disable()
cycles()
kept = fill()
print('ready', flush=True)
sys.stdin.read()
print('no child')
";

/// Makes 100 cycles of a list and itself, each with 100 kB. The interpreter keeps freed lists,
/// whose old pointers lead to the memory of new ones.
const LISTS: &str = "
import gc
def lists():
    for _ in range(100):
        a = [bytearray(100000)]
        a.append(a)
freed = [[i] for i in range(1000)]
gc.disable()
del freed
lists()
";

/// Returns the number of blocks by a function in a state.
fn of_function(answer: &Value, name: &str, state: &str) -> i128 {
    let rows = list(answer, "sites").iter();
    let rows = rows.filter(|row| row["owner"]["function"] == name && row["state"] == state);
    rows.map(|row| number(row, "blocks")).sum()
}

/// Returns the process id in the name of a profile.
fn pid(profile: &Path) -> u32 {
    let name = profile.file_name().and_then(|name| name.to_str()).expect("a name");
    name.split('-').next().and_then(|pid| pid.parse().ok()).expect("a process id")
}

/// Python's garbage collector lists all objects that can be in a cycle. That keeps none of them.
#[test]
fn cycles_that_python_has_not_freed() {
    let pythons = pythons();
    if pythons.is_empty() {
        return skip("python3");
    }
    for python in pythons {
        let python = python.to_str().expect("a path");
        let waiting = Waiting::of("retained-python", &[], &[python, "-c", CYCLES]);
        let answer = waiting.retain();
        let cycles = of_function(&answer, "cycles", "only_by_collector");
        // An old word on a stack can keep the last ones.
        assert!(cycles >= 980, "{python}: {cycles} blocks of cycles");
        for state in ["only_by_collector", "lost", "lost_indirectly"] {
            assert_eq!(of_function(&answer, "fill", state), 0, "{python}: {state}");
        }
        waiting.end();
    }
}

#[test]
fn freed_lists_of_python_keep_nothing() {
    let pythons = pythons();
    if pythons.is_empty() {
        return skip("python3");
    }
    for python in pythons {
        let python = python.to_str().expect("a path");
        // Before 3.11, the arrays are in a block; in 3.8 they are variables.
        let version = "import sys; print(sys.version_info[1] in (9, 10))";
        let version = Command::new(python).args(["-c", version]).output().expect("python");
        if version.stdout.starts_with(b"True") {
            continue;
        }
        let (_, recording) = searched("retained-lists", &[python, "-c", LISTS]);
        let answer = at_exit(&recording, None);
        let of_state = |state| of_function(&answer, "lists", state);
        let rows = list(&answer, "sites").iter();
        let rows = rows.filter(|row| row["owner"]["function"] == "lists");
        let all: i128 = rows.map(|row| number(row, "blocks")).sum();
        let cycles = of_state("only_by_collector");
        // Old words in other memory can keep some. With those of the interpreter's arrays, less
        // than a third of the blocks are in this state.
        assert!(all >= 300 && cycles * 100 >= all * 75, "{python}: {cycles} of {all}");
        assert_eq!(of_state("lost") + of_state("lost_indirectly"), 0, "{python}");
    }
}

/// Kills the command while it has a copy of the program; `None` if it ended before.
fn killed_with_copy(waiting: &Waiting, pid: u32) -> Option<()> {
    let mut command = heaptide();
    command.arg("retain").arg(&waiting.recording).stdout(Stdio::null()).stderr(Stdio::null());
    let mut killed = command.spawn().expect("heaptide");
    let copy = loop {
        let is_over = killed.try_wait().expect("its status").is_some();
        // Any thread of the program can be the one that forks.
        let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten();
        let children = threads
            .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
            .collect::<String>();
        match children.split_whitespace().next() {
            Some(copy) => break copy.to_owned(),
            None if is_over => return None,
            None => {}
        }
    };
    killed.kill().expect("its end");
    killed.wait().expect("its status");
    // A copy that runs never becomes a zombie.
    while !fs::read_to_string(format!("/proc/{copy}/stat")).ok()?.contains(") Z ") {
        thread::yield_now();
    }
    Some(())
}

#[test]
fn a_killed_command_leaves_no_second_program() {
    let mut waiting = Waiting::start("retained-killed", &[]);
    let pid = pid(&profiles(&waiting.recording)[0]);
    while killed_with_copy(&waiting, pid).is_none() {}
    let input = waiting.child.stdin.as_mut().expect("its input");
    input.write_all(b"k").expect("it reads");
    waiting.end();
}

#[test]
fn the_page_begins_with_what_keeps_most() {
    let waiting = Waiting::start("retained-page", &["--mode", "trace"]);
    let mut command = heaptide();
    let outcome = run(command.arg("retain").arg(&waiting.recording), &waiting.place);
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));
    let sentences = outcome.stdout.split("\n\n").next().unwrap_or_default().replace('\n', " ");
    let kept = "`large` (retained.c:17) keeps 1.01 MiB, ";
    assert!(sentences.starts_with(kept), "{sentences}");
    let lost = " KiB in 710 blocks are lost, partly by `lose` (retained.c:";
    assert!(sentences.contains(lost), "{sentences}");
    waiting.end();
}

#[test]
fn what_cannot_be_answered_is_one_line() {
    let refused = |arguments: &[&str], place: &Path, expected: &str| {
        let outcome = run(heaptide().arg("retain").args(arguments), place);
        assert_eq!((outcome.status, &*outcome.stdout), (2, ""), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    };
    for (mode, expected) in [
        ("counters", "no blocks are known in mode counters; record with --mode stacks"),
        ("sampled", "only some blocks are known in mode sampled; record with --mode stacks"),
    ] {
        let waiting = Waiting::start(&format!("retained-{mode}"), &["--mode", mode]);
        let (recording, place) = (waiting.recording.clone(), waiting.place.clone());
        let recording = recording.to_str().expect("a path");
        refused(&[recording], &place, expected);
        waiting.end();
        refused(&[recording], &place, "no process is recording into it any more");
    }
}

/// Runs a program that is searched when it ends. Returns its place and its recording.
fn searched(name: &str, program: &[&str]) -> (PathBuf, PathBuf) {
    let place = scratch(name);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &["--retain"]);
    let outcome = run(command.args(program).stdin(Stdio::null()), &place);
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));
    (place, recording)
}

/// The program ends by `_exit`, while another thread waits.
#[test]
fn a_program_is_searched_when_it_ends() {
    let program = Guest::read("retained.c").build("retained.c", &["-pthread"]);
    let (place, recording) = searched("retained-end", &[program.to_str().expect("a path")]);
    assert_states(&at_exit(&recording, None), &KNOWN);
    let leaks = |options: &[&str]| {
        let outcome =
            run(heaptide().args(["leaks", "--lost"]).args(options).arg(&recording), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (1, ""), "{}", outcome.stdout);
        outcome.stdout
    };
    let answer: Value = serde_json::from_str(&leaks(&["--format", "json"])).expect("JSON");
    let process = &list(&answer, "processes")[0];
    let lost = (number(process, "leaked_blocks"), number(process, "leaked_bytes"));
    assert_eq!(lost, (710, 300 * (296 + 312) + 100 * 344 + 10 * 360));
    let text = leaks(&["--by", "function"]);
    assert!(text.contains(": 220,400 bytes in 710 blocks from 5 stacks"), "{text}");
    let merged = place.join("merged.heaptide");
    let outcome = run(heaptide().arg("merge").arg("-o").arg(&merged).arg(&recording), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert_states(&at_exit(&merged, None), &KNOWN);
    for (limit, status) in [("lost=0", 1), ("lost=220400", 0)] {
        let outcome = run(heaptide().args(["check", "--max", limit]).arg(&recording), &place);
        assert_eq!(outcome.status, status, "{}{}", outcome.stdout, outcome.stderr);
        assert!(outcome.stdout.contains("  lost  215 KiB, limit "), "{}", outcome.stdout);
    }
}

/// Exit handlers and destructors have run by then. A forked child does not know the blocks of its
/// parent, and nothing that such a block refers to is lost.
#[test]
fn exit_handlers_children_and_launchers() {
    let program = Guest::read("lost_at_exit.cpp").build("lost_at_exit.cpp", &["-pthread"]);
    let words = format!("{}; true", program.display());
    let (_, recording) = searched("lost-at-exit", &["sh", "-c", &words]);
    let answer = at_exit(&recording, None);
    assert_declared(&answer, "leaky", "lost_at_exit.cpp", "static std::vector<void *> *leaky");
    assert_declared(&answer, "Shelf::books", "lost_at_exit.cpp", "void *Shelf::books[4];");
    assert_states(
        &answer,
        &[
            (408, &[("reachable", 10)]),
            (424, &[("lost", 7)]),
            (456, &[("lost", 20)]),
            (472, &[("lost", 5)]),
            (488, &[]),
            (536, &[("only_from_stack", 1)]),
            (552, &[("reachable", 1)]),
        ],
    );
    let profiles = profiles(&recording);
    let has_result = |profile: &&PathBuf| profile.with_extension("retained").exists();
    let searched: Vec<u32> =
        profiles.iter().filter(has_result).map(|profile| pid(profile)).collect();
    assert_eq!((searched.len(), profiles.len()), (2, 3), "the shell is not searched");
    let main = number(&answer, "pid") as u32;
    let child = searched.into_iter().find(|pid| *pid != main).expect("a child");
    assert_states(
        &at_exit(&recording, Some(child)),
        &[(504, &[("only_from_unrecorded", 6)]), (520, &[("lost", 8)])],
    );
}

/// Handlers of `quick_exit` have run by then; destructors do not run.
#[test]
fn handlers_of_quick_exit() {
    let flags = ["-pthread", "-DQUICK"];
    let program = Guest::read("lost_at_exit.cpp").build("lost_at_exit.cpp-quick", &flags);
    let (_, recording) = searched("lost-at-quick-exit", &[program.to_str().expect("a path")]);
    let states: [(i128, &[(&str, i128)]); 7] = [
        (408, &[("reachable", 10)]),
        (424, &[("reachable", 7)]),
        (456, &[("lost", 20)]),
        (472, &[("lost", 5)]),
        (488, &[]),
        (536, &[("only_from_stack", 1)]),
        (552, &[("reachable", 1)]),
    ];
    assert_states(&at_exit(&recording, None), &states);
}

/// Before Python ends, which would free the cycles.
#[test]
fn a_python_program_is_searched_before_python_ends() {
    let pythons = pythons();
    if pythons.is_empty() {
        return skip("python3");
    }
    for python in pythons {
        let (place, recording) =
            searched("retained-python-end", &[python.to_str().expect("a path"), "-c", CYCLES]);
        let answer = at_exit(&recording, None);
        assert_eq!(answer["moment"], "python_ends");
        let blocks = of_function(&answer, "cycles", "only_by_collector");
        assert!(blocks >= 980, "{}: {blocks} blocks", python.display());
        let page = run(heaptide().arg("retain").arg(&recording), &place).stdout;
        // Importing a module makes cycles, too.
        let sentence = " Python objects are kept only by reference cycles, ";
        let (_, rest) = page.split_once(sentence).expect(&page);
        assert!(rest.starts_with("partly by `cycles` (") || rest.starts_with("most by `cycles` ("));
    }
}

#[test]
fn a_killed_program_was_not_searched() {
    let words = "exec 2>/dev/null; sh -c 'kill -KILL $$'; true";
    let (place, recording) = searched("retained-not", &["sh", "-c", words]);
    for (arguments, expected) in [
        (&["retain"][..], "none was searched when it ended; `heaptide run --retain` searches"),
        (&["leaks", "--lost"], "no process was searched when it ended"),
        (&["check", "--max", "lost=0"], "the process was not searched when it ended"),
    ] {
        let outcome = run(heaptide().args(arguments).arg(&recording), &place);
        assert_eq!((outcome.status, &*outcome.stdout), (2, ""), "{}", outcome.stderr);
        let last = outcome.stderr.lines().last().unwrap_or_default();
        assert!(last.contains(expected), "{}", outcome.stderr);
    }
}

/// A damaged file is reported by each view that reads it, in one line.
#[test]
fn a_search_with_a_root_that_does_not_exist_is_damaged() {
    let program = Guest::read("retained.c").build("retained.c", &["-pthread"]);
    let (place, recording) = searched("retained-damaged", &[program.to_str().expect("a path")]);
    let file = profiles(&recording)[0].with_extension("retained");
    let stored: Value = serde_json::from_slice(&fs::read(&file).expect("a file")).expect("JSON");
    let [keepers, sites] = ["keepers", "sites"].map(|key| format!("/result/Ok/{key}"));
    let roots = stored["result"]["Ok"]["roots"].as_array().expect("roots").len();
    let first = |list: &str, at: &str| {
        let rows = stored.pointer(list).and_then(Value::as_array).expect("rows");
        let has_root = |row: &Value| row.pointer(at).is_some_and(|root| root.is_u64());
        let row = rows.iter().position(has_root).expect("a root");
        format!("{list}/{row}{at}")
    };
    let places = [first(&keepers, "/node/Root"), first(&sites, "/path/0/Root")];
    let reason = format!(
        "{}: it refers to a root that it does not contain; the file is damaged",
        file.display()
    );
    let ask = |words: &[&str]| run(heaptide().args(words).arg(&recording), &place);
    for (at, number) in places.iter().flat_map(|at| [(at, roots), (at, 99_999)]) {
        let mut damaged = stored.clone();
        *damaged.pointer_mut(at).expect("a root") = number.into();
        fs::write(&file, damaged.to_string()).expect("the file");
        let path = recording.to_str().expect("a path");
        for words in [&["retain"][..], &["retain", "--format", "json"], &["retain", path]] {
            let outcome = ask(words);
            let expected = format!("heaptide: {reason}\n");
            let found = (outcome.status, &*outcome.stdout, &*outcome.stderr);
            assert_eq!(found, (2, "", &*expected), "{at}: {words:?}");
        }
        let skipped = format!("heaptide: skipped: {reason}");
        for (words, status) in [
            (&["leaks", "--lost"][..], 2),
            (&["check", "--max", "lost=0"], 2),
            (&["query", "SELECT owner FROM retained"], 0),
            (&["query", "SELECT keeper FROM keepers"], 0),
            (&["tree"], 0),
        ] {
            let outcome = ask(words);
            assert_eq!(outcome.status, status, "{at}: {words:?}: {}", outcome.stderr);
            let lines = outcome.stderr.lines().filter(|line| line.contains("is damaged"));
            assert_eq!(lines.collect::<Vec<_>>(), [&skipped], "{at}: {words:?}");
        }
    }
    fs::write(&file, stored.to_string()).expect("the file");
    assert_eq!(ask(&["retain"]).status, 0);
}

/// Programs of an inner command without the option would wait in vain.
#[test]
fn an_inner_command_without_the_option_does_not_search() {
    let place = scratch("retained-inner");
    let inner = heaptide();
    let mut command = recorded(&place.join("a.heaptide"), &["--retain"]);
    command.arg(inner.get_program()).args(["run", "-q", "-o"]).arg(place.join("b.heaptide"));
    let outcome = run(command.args(["sh", "-c", "echo \"[$HEAPTIDE_RETAIN]\""]), &place);
    assert_eq!((outcome.status, &*outcome.stdout, &*outcome.stderr), (0, "[]\n", ""));
}

/// Debian's packages have compressed debug information in files of their own.
#[test]
fn variables_of_separate_debug_files() {
    let place = scratch("retained-separate");
    let program = Guest::read("retained.c").build("retained.c", &["-pthread", "-Wl,--build-id"]);
    let program = program.to_str().expect("a path");
    let objcopy = |arguments: &[&str]| {
        let done = Command::new("objcopy").args(arguments).current_dir(&place).status();
        assert!(done.expect("objcopy").success(), "{arguments:?}");
    };
    objcopy(&["--only-keep-debug", "--compress-debug-sections", program, "app.debug"]);
    objcopy(&["--strip-all", "--add-gnu-debuglink=app.debug", program, "app"]);
    let stripped = place.join("app");
    let waiting = Waiting::of("retained-separate-run", &[], &[stripped.to_str().expect("a path")]);
    assert_declared(&waiting.retain(), "large", "retained.c", "static void **cache");
    waiting.end();
}

/// A search stops threads; one of them makes the copy in the middle of a wait, which continues.
#[test]
fn waits_are_not_ended_by_a_search() {
    let program = Guest::read("timed_waits.c").build("timed_waits.c", &["-pthread"]);
    let program = program.to_str().expect("a path");
    let mut waiting = Waiting::of("retained-waits", &[], &[program]);
    let pid = pid(&profiles(&waiting.recording)[0]);
    let expected = ["nanosleep 0\n", "poll 0\n", "futex ETIMEDOUT\n", "condition ETIMEDOUT\n"];
    for (index, result) in expected.into_iter().enumerate() {
        if index > 0 {
            assert_eq!(next_line(&mut waiting.output), "ready\n");
        }
        let state = || fs::read_to_string(format!("/proc/{pid}/stat")).expect("its state");
        until("the wait", || state().contains(") S "));
        waiting.retain();
        assert_eq!(next_line(&mut waiting.output), result);
    }
    assert!(waiting.child.wait().expect("its status").success());
}

/// Pages that were never written are not read: that would make them in shared memory, and take
/// hours in a large reservation.
#[test]
fn untouched_memory_stays_untouched() {
    let program = Guest::read("sparse_memory.c").build("sparse_memory.c", &[]);
    let program = program.to_str().expect("a path");
    let mut waiting = Waiting::of("retained-sparse", &[], &[program]);
    let answer = waiting.retain();
    let states = |bytes: i128| -> Vec<(&str, i128)> {
        let rows = list(&answer, "sites").iter();
        let rows = rows.filter(|row| number(row, "bytes") == bytes * number(row, "blocks"));
        rows.map(|row| (row["state"].as_str().expect("a state"), number(row, "blocks"))).collect()
    };
    assert_eq!(states(1000).iter().map(|(_, blocks)| blocks).sum::<i128>(), 2);
    assert!(states(1000).iter().all(|(state, _)| *state == "only_from_mapping"));
    assert_eq!(states(2008), [("only_from_mapping", 1)]);
    assert_eq!(states(3000), [("reachable", 1)]);
    waiting.stop();
    assert_eq!(next_line(&mut waiting.output), "4096\n");
}

/// Variables of a library that was loaded late belong to the thread that has them.
#[test]
fn thread_local_variables_of_late_libraries() {
    let program = Guest::read("thread_locals.c").build("thread_locals.c", &["-pthread", "-ldl"]);
    let program = program.to_str().expect("a path");
    let mut waiting = Waiting::of("retained-thread-locals", &[], &[program]);
    let answer = waiting.retain();
    assert_states(&answer, &[(232, &[("reachable", 1000); 3]), (8008, &[("reachable", 1); 3])]);
    let is_of_library = |keeper: &&Value| keeper["by"]["module"] == "thread_locals_plugin.so";
    let keepers: Vec<&Value> = list(&answer, "keepers").iter().filter(is_of_library).collect();
    assert_eq!(keepers.len(), 3, "{answer:#}");
    for keeper in &keepers {
        assert_eq!(
            (&keeper["by"]["kind"], &keeper["also_from"]),
            (&"thread_local".into(), &Value::Null)
        );
        // The last one is that of the variables themselves, which the loader allocated.
        assert_eq!(number(keeper, "blocks"), 1002);
    }
    let name = |keeper: &&Value| keeper["by"]["name"].as_str().expect("a name").to_owned();
    let mut names: Vec<String> = keepers.iter().map(name).collect();
    names.dedup();
    assert_eq!(names.len(), 3, "{names:?}: one of each thread");
    assert!(names.iter().all(|name| name.starts_with("thread-local variables of thread ")));
    let text = waiting.printed(&["retain", "a.heaptide"]);
    let sentence = text.lines().next().unwrap_or_default();
    assert!(sentence.starts_with("Thread-local variables of thread "), "{sentence}");
    assert!(sentence.contains(") [thread_locals_plugin.so] keep 239 KiB, "), "{sentence}");
    waiting.stop();
    assert_eq!(next_line(&mut waiting.output), "done\n");
}

/// Snapshots contain what a search found; two are compared by what keeps the blocks.
#[test]
fn what_grew_between_two_snapshots() {
    let program = Guest::read("growing_cache.cpp").build("growing_cache.cpp", &[]);
    let program = program.to_str().expect("a path");
    let mut waiting = Waiting::of("retained-grown", &["--retain"], &[program]);
    waiting.rounds(2);
    let said = waiting.printed(&["ctl", "a.heaptide", "retain", "two"]);
    assert!(said.contains(": snapshot 1, searched, its threads stopped for "), "{said}");
    waiting.rounds(5);
    waiting.printed(&["ctl", "a.heaptide", "retain"]);
    let first = waiting.answer(&["retain", "--format", "json", "a.heaptide@1"]);
    assert_eq!(first["moment"], "snapshot");
    assert_eq!(keeps(&first, "cache").0, 400, "the nodes and their strings");
    assert_eq!(keeps(&first, "buffers").0, 3);
    let changes = waiting.answer(&["retain", "--format", "json", "a.heaptide@two", "a.heaptide@2"]);
    let of = |name: &str| {
        let keepers = list(&changes, "keepers");
        let keeper = keepers.iter().find(|keeper| keeper["name"] == name).expect("it grew");
        let number = |key| number(keeper, key);
        (number("blocks") - number("blocks_before"), number("bytes") - number("bytes_before"))
    };
    assert_eq!(of("cache").0, 1000);
    assert_eq!(of("buffers"), (5, 5 * 312));
    let lost = &changes["lost"];
    let [before, after] = ["blocks_before", "blocks"].map(|key| number(lost, key));
    assert!((6..=7).contains(&after) && (1..=2).contains(&before), "{lost}: one may be on a stack");
    let text = waiting.printed(&["retain", "a.heaptide@1", "a.heaptide@2"]);
    let sentence = text.lines().next().unwrap_or_default();
    assert!(sentence.starts_with("`cache` (growing_cache.cpp:"), "{sentence}");
    assert!(sentence.contains(" more than before, by "), "{sentence}");
    assert!(sentence.ends_with(", blocks by `fill(int)`."), "{sentence}");
    let now = waiting.printed(&["retain", "a.heaptide@2", "a.heaptide"]);
    assert!(now.starts_with("Nothing keeps more or less than before.\n"), "{now}");
    waiting.stop();
    let ended = waiting.printed(&["retain", "a.heaptide@2", "a.heaptide"]);
    assert!(ended.starts_with("`cache` ("), "{ended}");
    assert!(ended.lines().next().unwrap_or_default().contains(" less than before, "), "{ended}");
}

/// The tables `retained` and `keepers` contain what the view shows.
#[test]
fn searches_are_tables() {
    let program = Guest::read("growing_cache.cpp").build("growing_cache.cpp", &[]);
    let program = program.to_str().expect("a path");
    let mut waiting = Waiting::of("retained-tables", &["--retain"], &[program]);
    waiting.rounds(3);
    waiting.printed(&["ctl", "a.heaptide", "retain"]);
    let answer = waiting.answer(&["retain", "--format", "json", "a.heaptide@1"]);
    let rows = |query: &str| -> Vec<Value> {
        let text = waiting.printed(&["query", query, "a.heaptide@1", "--format", "json"]);
        serde_json::from_str(&text).expect("JSON")
    };
    let sums = "SELECT state,sum(live_blocks) AS n,sum(live_bytes) AS b GROUP BY state";
    let states = rows(&format!("{sums} FROM retained"));
    let expected = list(&answer, "states").iter().filter(|state| state["blocks"] != 0);
    assert_eq!(states.len(), expected.clone().count());
    for state in expected {
        let row = states.iter().find(|row| row["state"] == state["state"]).expect("a row");
        assert_eq!((&row["n"], &row["b"]), (&state["blocks"], &state["bytes"]));
    }
    let keepers = rows(
        "SELECT keeper,keeper_kind,sum(live_blocks) AS n WHERE keeper=cache \
         GROUP BY keeper,keeper_kind FROM keepers",
    );
    let [cache] = &keepers[..] else { panic!("{keepers:?}") };
    assert_eq!((&cache["keeper_kind"], cache["n"].as_u64()), (&"variable".into(), Some(600)));
    let without = run(
        heaptide().args(["query", "SELECT keeper FROM keepers"]).arg(&waiting.recording),
        &waiting.place,
    );
    assert!(without.stderr.contains("no process was searched for what"), "{}", without.stderr);
    let paths = rows("SELECT owner,root,root_path WHERE root=buffers FROM retained");
    let ways: Vec<&str> = paths.iter().filter_map(|row| row["root_path"].as_str()).collect();
    assert!(ways.contains(&"buffers → a block by main"), "{ways:?}");
    waiting.stop();
}

#[test]
fn modes_without_all_blocks_are_refused() {
    for mode in ["counters", "sampled"] {
        let place = scratch(&format!("retained-mode-{mode}"));
        let mut command = recorded(&place.join("a.heaptide"), &["--retain", "--mode", mode]);
        let outcome = run(command.arg("true"), &place);
        let expected = "heaptide: --retain requires --mode stacks, scopes or trace\n";
        assert_eq!((outcome.status, &*outcome.stderr), (2, expected));
    }
}
