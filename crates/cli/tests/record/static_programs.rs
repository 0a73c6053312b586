//! Programs that no loader starts, into which the command puts the recorder: the known numbers of
//! programs that are otherwise linked dynamically, programs that a shell executes, and failures.

use crate::expectations::evaluate;
use crate::harness::{
    Guest, Trial, check_with, clean, heaptide, recorded, report, report_of_kind, run, scratch,
};
use crate::recording::{list, number};
use heaptide_fixtures::skips::{ROOT, is_root, skip};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Threads, children, signals, jumps and ends, mappings, and the interface. Not those that load
/// libraries.
const PROGRAMS: [&str; 32] = [
    "peak.c",
    "leaks.c",
    "temporary.c",
    "usable.c",
    "cross_thread.c",
    "fork.c",
    "vfork.c",
    "thread_churn.c",
    "signals.c",
    "exceptions.cpp",
    "longjmp.c",
    "coroutines.c",
    "exit_at_once.c",
    "spawn.c",
    "exec.c",
    "fork_exec.c",
    "map_break.c",
    "map_files.c",
    "map_fixed.c",
    "map_fork.c",
    "map_partial.c",
    "map_remap.c",
    "map_reserved.c",
    "map_shared.c",
    "map_signals.c",
    "map_threads.c",
    "api_names.c",
    "api_labels.c",
    "api_pools.c",
    "api_windows.c",
    "api_figures.c",
    "api_measure.cpp",
];

fn linked(flag: &str) {
    for program in PROGRAMS {
        check_with(program, &format!("{program}{flag}"), &[flag], &[]);
    }
}

#[test]
fn at_a_fixed_address() {
    linked("-static");
}

#[test]
fn position_independent() {
    linked("-static-pie");
}

/// What threads have freed is free memory of the allocator, not memory of which nothing is known.
#[test]
fn free_memory_of_the_arenas_of_threads() {
    for flag in ["-static", "-static-pie", "-O1"] {
        let name = format!("arenas{flag}");
        let trial = Trial::new("arenas.c", &name, &[flag], &[]);
        let recording = trial.recording(&[]).expect("a recording");
        let mut command = heaptide();
        command.args(["memory", "--format", "json"]).arg(&recording);
        let text = run(&mut command, &trial.scratch).stdout;
        let memory: Value = serde_json::from_str(&text).expect("JSON");
        let account = &memory["processes"][0]["account"];
        let heap = list(account, "rows").iter().find(|row| row["name"] == "heap").expect("a heap");
        let free = list(heap, "children").iter().find(|row| row["name"] == "free");
        let bytes = free.map_or(0, |row| number(row, "resident_bytes"));
        assert!((36 << 20..40 << 20).contains(&bytes), "{flag}: {text}");
    }
}

/// Returns the allocations of each process image whose program has this name.
fn allocations(report: &Value, name: &str) -> Vec<i128> {
    let of_it = |process: &&Value| {
        process["program"].as_str().is_some_and(|path| path.rsplit('/').next() == Some(name))
    };
    let processes = list(report, "processes").iter().filter(of_it);
    processes.map(|process| number(&process["totals"], "allocations")).collect()
}

/// A shell executes the program in a child, with an empty environment, and in its own process; each
/// has the same numbers, and behaves as bare. One that does not exist fails as bare.
#[test]
fn executed_by_recorded_programs() {
    let place = scratch("static-children");
    for (variant, flag) in [("fixed", "-static"), ("moved", "-static-pie")] {
        let program = Guest::read("plain.c").build(variant, &[flag]);
        let program = program.display();
        let script = format!("{program}; env -i {program}; ./missing; exec {program}");
        let bare = run(clean(Command::new("sh")).args(["-c", &script]), &place);
        assert_eq!(bare.status, 5, "{}", bare.stderr);
        let recording = place.join(format!("{variant}.heaptide"));
        let outcome = run(recorded(&recording, &[]).args(["sh", "-c", &script]), &place);
        assert_eq!(outcome, bare);
        let found = allocations(&report(&recording, &place), variant);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().all(|&count| count == found[0] && count >= 1), "{found:?}");
    }
}

/// A static program with the signal of breakpoints ignored, and with a pending stop signal, keeps
/// both.
#[test]
fn signals_are_as_before() {
    let place = scratch("static-signals");
    let source = "\
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    struct sigaction action;
    sigset_t mask;
    free(malloc(10));
    sigaction(SIGTRAP, NULL, &action);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    printf(\"%d %d %d\\n\", action.sa_handler == SIG_IGN, sigismember(&mask, SIGUSR1),
           sigismember(&mask, SIGUSR2));
    return 6;
}
";
    std::fs::write(place.join("signals.c"), source).expect("a source");
    let mut compiler = Command::new("cc");
    compiler.args(["-static", "signals.c", "-o", "signals"]).current_dir(&place);
    assert!(compiler.status().expect("a compiler").success());
    for ignored in ["", "trap '' TRAP; "] {
        let script = format!("{ignored}exec ./signals");
        let mut command = clean(Command::new("sh"));
        let bare = run(command.args(["-c", &script]).current_dir(&place), &place);
        assert_eq!(bare.status, 6, "{}", bare.stderr);
        let recording = place.join(format!("a{}.heaptide", ignored.len()));
        let mut command = recorded(&recording, &[]);
        let outcome = run(command.args(["sh", "-c", &script]).current_dir(&place), &place);
        assert_eq!(outcome, bare);
        assert_eq!(allocations(&report(&recording, &place), "signals").len(), 1);
    }
}

/// A program is recorded that a second thread executes, or that `posix_spawn` starts in the first
/// or second one. If that fails, it fails as bare.
#[test]
fn started_by_spawn_and_by_threads() {
    let place = scratch("static-starts");
    let program = Guest::read("plain.c").build("started", &["-static"]);
    let starts = Guest::read("starts_static.c").build("starts-static", &["-pthread"]);
    let bare = run(clean(Command::new(&starts)).arg(&program), &place);
    assert_eq!(bare.status, 5, "{}", bare.stderr);
    let recording = place.join("recording.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(&starts).arg(&program), &place);
    assert_eq!(outcome, bare);
    let found = allocations(&report(&recording, &place), "started");
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().all(|&count| count == found[0] && count >= 1), "{found:?}");
}

/// A program that never calls the nothrow form of an operator lacks it. Its throwing form then
/// allocates by `malloc`, and nothing has failed.
#[test]
fn operators_without_nothrow_forms_do_not_fail() {
    let place = scratch("static-operators");
    let source = "\
int main() {
    static char *kept[100];
    for (int i = 0; i < 100; i++)
        (kept[i] = new char[1000])[0] = 1;
    for (char *block : kept)
        delete[] block;
    return 3;
}
";
    std::fs::write(place.join("operators.cpp"), source).expect("a source");
    let mut compiler = Command::new("c++");
    compiler.args(["-static", "operators.cpp", "-o", "operators"]).current_dir(&place);
    assert!(compiler.status().expect("a compiler").success());
    let recording = place.join("a.heaptide");
    let outcome = run(recorded(&recording, &[]).arg(place.join("operators")), &place);
    assert_eq!(outcome.status, 3, "{}", outcome.stderr);
    let report = report(&recording, &place);
    let totals = &list(&report, "processes")[0]["totals"];
    assert_eq!(number(totals, "failed"), 0);
    assert!((100..110).contains(&number(totals, "allocations")), "{totals}");
}

/// Asserts that a stripped program of `map_threads.c` is recorded: the command starts it, with
/// these words before, and so does a recorded shell. Its mappings are known, and none of them is
/// one of the C library itself. `is_named`: its functions have names in the recording.
fn assert_mappings(program: &Path, place: &Path, before: &[&str], is_named: bool) {
    let script = format!("{0} && exec {0}", program.display());
    for (started, words) in [(1, vec![]), (2, vec!["sh", "-c", &script])] {
        let name = program.file_name().and_then(OsStr::to_str).expect("a name");
        let recording = place.join(format!("{name}-{started}.heaptide"));
        let mut command = clean(Command::new("env"));
        command.args(before).args([env!("CARGO_BIN_EXE_heaptide"), "run", "-q", "-o"]);
        command.arg(&recording).arg("--");
        if words.is_empty() {
            command.arg(program);
        } else {
            command.args(words);
        }
        let outcome = run(&mut command, place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{name}");
        let found = allocations(&report(&recording, place), name);
        assert_eq!(found.len(), started, "{name}");
        assert!(found.iter().all(|&count| count == found[0]), "{name}: {found:?}");
        let mapped = report_of_kind("mapped", &recording, place);
        let all = evaluate(&mapped, "totals", "allocations");
        assert_eq!(all, 4400 * started as i128, "{name}");
        for (selector, count) in [("function:mine", 4000), ("function:handed", 400)] {
            let expected = if is_named { count * started as i128 } else { 0 };
            let found = evaluate(&mapped, selector, "allocations");
            assert_eq!(found, expected, "{name} {selector}");
        }
    }
}

/// Removes the C library of a compiler, in a mount namespace of its own, gives a program a debug
/// file for its build-id, removes its symbol table, and executes a command.
const STRIPPED: &str = "\
set -e
program=$1
mount --bind /dev/null \"$(realpath \"$(cc -print-file-name=libc.a)\")\"
mount -t tmpfs none /usr/lib/debug
id=$(readelf -n \"$program\" | sed -n 's/.*Build ID: //p')
file=${id#??}
directory=/usr/lib/debug/.build-id/${id%\"$file\"}
mkdir -p \"$directory\"
objcopy --only-keep-debug \"$program\" \"$directory/$file.debug\"
strip \"$program\" -o \"$program.stripped\"
mount --bind \"$program.stripped\" \"$program\"
shift
exec \"$@\"
";

/// The table of symbols is that of the debug file, for the program that `run` starts and for those
/// that a recorded shell executes; mappings of the C library itself are known by it, too.
#[test]
fn stripped_programs_with_a_debug_file() {
    if !is_root() {
        return skip(ROOT);
    }
    let place = scratch("static-debug-files");
    let source = Guest::read("map_threads.c");
    for (name, flag) in [("fixed", "-static"), ("moved", "-static-pie")] {
        let program = place.join(name);
        let built = source.build(&format!("debug-{name}"), &[flag, "-pthread"]);
        std::fs::copy(built, &program).expect("a copy");
        let text = program.to_str().expect("a path");
        let before = ["unshare", "--mount", "sh", "-c", STRIPPED, "sh", text];
        assert_mappings(&program, &place, &before, true);
    }
}

/// The functions of the C library in a program without symbols are recognised by their code.
#[test]
fn stripped_programs_with_a_known_c_library() {
    let place = scratch("static-recognised");
    let source = Guest::read("map_threads.c");
    for (name, flag) in [("fixed", "-static"), ("moved", "-static-pie")] {
        let program = source.build(&format!("recognised-{name}"), &[flag, "-pthread", "-s"]);
        assert_mappings(&program, &place, &[], false);
    }
    // Several functions of musl's allocator are single jumps to others.
    let text = "\
#include <stdlib.h>
int main(void) {
    void *blocks[100];
    for (int i = 0; i < 100; i++)
        blocks[i] = realloc(malloc(100), 5000);
    for (int i = 0; i < 90; i++)
        free(blocks[i]);
    return calloc(10, 10) && aligned_alloc(64, 640) ? 0 : 1;
}
";
    std::fs::write(place.join("musl.c"), text).expect("a source");
    for flags in [&["-O2"][..], &["-O2", "-Wl,--gc-sections"]] {
        let mut compiler = Command::new("musl-gcc");
        compiler.args(["-static", "-s", "musl.c", "-o", "musl"]).args(flags).current_dir(&place);
        assert!(compiler.status().expect("musl-gcc").success());
        let recording = place.join("musl.heaptide");
        let outcome = run(recorded(&recording, &["--force"]).arg(place.join("musl")), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        let report = report(&recording, &place);
        for (field, count) in
            [("allocations", 202), ("reallocations", 100), ("frees", 190), ("live_blocks", 12)]
        {
            assert_eq!(evaluate(&report, "totals", field), count, "{field} {flags:?}");
        }
    }
}
