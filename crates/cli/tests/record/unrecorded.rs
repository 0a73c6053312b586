//! Programs that cannot be recorded run as without `heaptide run`, and one line gives the reason.

use crate::harness::{
    NOBODY, Outcome, clean, heaptide, profiles, recorded, report, run, scratch, unknown_allocator,
};
use crate::recording::{list, number};
use heaptide_fixtures::skips::{ROOT, is_root, skip};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Allocates, prints, and exits with status 3.
const PROGRAM: &str = "\
#include <stdio.h>
#include <stdlib.h>
int main(void) { printf(\"%d\\n\", malloc(100) != NULL); return 3; }
";

/// Builds the program with these flags; none if the compiler cannot.
fn build(place: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let (source, program) = (place.join(format!("{name}.c")), place.join(name));
    fs::write(&source, PROGRAM).expect("a source");
    let mut compiler = Command::new("cc");
    compiler.arg("-w").arg(&source).arg("-o").arg(&program).args(flags);
    compiler.output().expect("a compiler").status.success().then_some(program)
}

/// Runs a program bare and recorded: the results are the same except for one line, which contains
/// these words.
fn assert_told(program: &Path, place: &Path, words: &[&str]) {
    let bare = run(&mut clean(Command::new(program)), place);
    let recording = place.join("a");
    let outcome = run(recorded(&recording, &["--force"]).arg(program), place);
    let own = outcome.stderr.lines().filter(|line| line.starts_with("heaptide: "));
    let own: Vec<&str> = own.collect();
    let others = outcome.stderr.lines().filter(|line| !line.starts_with("heaptide: "));
    assert_eq!((bare.status, &bare.stdout), (outcome.status, &outcome.stdout), "{program:?}");
    // The output of sanitizers contains process ids.
    assert_eq!(bare.stderr.lines().count(), others.count(), "{}", outcome.stderr);
    assert!(own.len() == 1 && own[0].starts_with("heaptide: not recorded: "), "{}", outcome.stderr);
    let unrecorded = unrecorded(&recording);
    for word in words {
        assert!(own[0].contains(word), "{}", own[0]);
        assert!(unrecorded.contains(word), "{unrecorded}");
    }
    assert!(profiles(&recording).is_empty());
}

/// Returns the reason in the recording.
fn unrecorded(recording: &Path) -> String {
    let text = fs::read(recording.join("recording.json")).expect("the metadata");
    let metadata: Value = serde_json::from_slice(&text).expect("JSON");
    metadata["unrecorded"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn sanitizers_that_replace_the_allocator() {
    let place = scratch("sanitizers");
    let mut found = 0;
    for (flag, name) in [
        ("address", "AddressSanitizer"),
        ("thread", "ThreadSanitizer"),
        ("leak", "LeakSanitizer"),
        ("hwaddress", "HWAddressSanitizer"),
    ] {
        let option = format!("-fsanitize={flag}");
        let Some(program) = build(&place, flag, &[&option]) else { continue };
        assert_told(&program, &place, &[name, &option, flag]);
        let script = place.join(format!("{flag}.script"));
        fs::write(&script, format!("#!{}\n", program.display())).expect("a script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a mode");
        assert_told(&script, &place, &[name]);
        found += 1;
    }
    assert!(found > 0, "the compiler has no sanitizers");
}

#[test]
fn a_sanitizer_that_leaves_the_allocator_alone_is_recorded() {
    let place = scratch("ubsan");
    let Some(program) = build(&place, "undefined", &["-fsanitize=undefined"]) else {
        return skip("-fsanitize=undefined");
    };
    let outcome = run(recorded(&place.join("a"), &[]).arg(&program), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (3, ""));
    assert_eq!(profiles(&place.join("a")).len(), 1);
    assert_eq!(unrecorded(&place.join("a")), "");
}

#[test]
fn static_programs_without_symbols() {
    let place = scratch("static-programs");
    for flag in ["-static", "-static-pie"] {
        let unknown = unknown_allocator(flag);
        let flags = unknown.each_ref().map(String::as_str);
        let program = build(&place, &flag[1..], &flags).expect("a static program");
        let words = ["is statically linked", "no symbol table", "--strip-debug"];
        assert_told(&program, &place, &words);
    }
}

/// A program that maps 64 MiB with a system call, without the C library.
const FROM_THE_KERNEL: &str = "\
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
extern const char *const MESSAGE;
const char *const MESSAGE = TEXT;
int main(int count, char **words) {
    char *memory = (char *)syscall(SYS_mmap, 0, 64l << 20, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    memset(memory, 1, 64 << 20);
    usleep(100000); /* a sample of resident memory */
    return count > 1 && write(2, MESSAGE, 3) < 0;
}
";

/// Records that program, with a constant text and these flags. Returns the output of `heaptide
/// run`, and the report.
fn from_the_kernel(place: &Path, text: &str, flags: &[&str]) -> (String, String) {
    fs::write(place.join("kernel.c"), FROM_THE_KERNEL).expect("a source");
    let mut compiler = Command::new("cc");
    compiler.arg(format!("-DTEXT=\"{text}\"")).args(["-w", "kernel.c", "-o", "kernel"]);
    assert!(compiler.args(flags).current_dir(place).status().expect("a compiler").success());
    let recording = place.join("a");
    let mut command = heaptide();
    command.args(["run", "--force", "-o"]).arg(&recording).arg("./kernel").current_dir(place);
    let outcome = run(&mut clean(command), place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    (outcome.stderr, run(heaptide().arg("report").arg(&recording), place).stdout)
}

#[test]
fn a_stripped_allocator_is_announced_and_repeated() {
    let place = scratch("unnamed-allocator");
    let (printed, report) = from_the_kernel(&place, "<jemalloc>: out of memory", &["-s"]);
    let why = "./kernel contains jemalloc, whose functions cannot be found";
    let first = printed.lines().next().unwrap_or_default();
    assert!(first.starts_with(&format!("heaptide: recorded in part: {why}")), "{printed}");
    assert!(first.contains("strip --strip-debug"), "{printed}");
    let again =
        |line: &str| line.starts_with(&format!("heaptide:   missing    some memory: {why}"));
    assert!(printed.lines().any(again), "{printed}");
    let top = |line: &str| line.starts_with(&format!("  missing  some memory: {why}"));
    assert!(report.lines().take(9).any(top), "{report}");
    let (printed, _) = from_the_kernel(&place, "<jemalloc>: out of memory", &[]);
    assert!(!printed.contains("recorded in part"), "with a symbol table: {printed}");
}

#[test]
fn a_program_that_only_maps_memory_is_explained_by_its_mappings() {
    let place = scratch("no-allocation");
    let (printed, report) = from_the_kernel(&place, "nothing of note", &["-s"]);
    let what = " holds 64.0 MiB of mapped memory, 100% of peak usage (64.0 MiB after ";
    for text in [&printed, &report] {
        assert!(text.lines().take(2).any(|line| line.contains(what)), "{text}");
        assert!(!text.contains("  missing  "), "{text}");
    }
    let leaks = run(heaptide().arg("leaks").arg(place.join("a")), &place);
    let says = "64.0 MiB that the program mapped and did not unmap are not listed";
    assert!(leaks.status == 0 && leaks.stdout.contains(says), "{}", leaks.stdout);
}

/// The few pages of the loader are no allocations that the recorder missed.
#[test]
fn a_program_that_allocates_nothing_lacks_nothing() {
    let place = scratch("allocates-nothing");
    fs::write(place.join("nothing.c"), "int main(void) { return 0; }\n").expect("a source");
    let mut compiler = Command::new("cc");
    compiler.args(["nothing.c", "-o", "nothing"]).current_dir(&place);
    assert!(compiler.status().expect("a compiler").success());
    let recording = place.join("a");
    let mut command = heaptide();
    command.args(["run", "-o"]).arg(&recording).arg("./nothing").current_dir(&place);
    let outcome = run(&mut clean(command), &place);
    let report = run(heaptide().arg("report").arg(&recording), &place).stdout;
    for text in [&outcome.stderr, &report] {
        assert!(text.contains("allocat") && !text.contains("missing"), "{text}");
    }
}

/// The driver is empty: a program that loads it can take memory of a GPU.
#[test]
fn memory_of_gpus_is_announced_where_a_driver_is_loaded() {
    let place = scratch("gpu-driver");
    let driver = place.join("libcuda.so.1");
    fs::write(place.join("driver.c"), "int cuInit(unsigned flags) { return flags; }").expect("it");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"]).arg(&driver);
    assert!(compiler.arg(place.join("driver.c")).output().expect("a compiler").status.success());
    let Some(plain) = build(&place, "plain", &[]) else { return skip("cc") };
    let flags = ["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", driver.to_str().expect("text")];
    let loads = build(&place, "loads", &flags).expect("a program");
    let summary = |program: &Path| {
        let mut command = heaptide();
        command.args(["run", "--force", "-o"]).arg(place.join("a.heaptide"));
        run(command.arg("--").arg(program), &place).stderr
    };
    let line = "  missing    device memory: the program loaded libcuda.so; what it allocates on a \
                GPU is not recorded\n";
    assert!(summary(&loads).contains(line), "{}", summary(&loads));
    assert!(!summary(&plain).contains("device memory"), "{}", summary(&plain));
}

/// Numbers without what was not recorded look complete.
#[test]
fn a_recording_that_was_off_is_announced() {
    let place = scratch("was-off");
    let program = build(&place, "plain", &[]).expect("a program");
    let recording = place.join("a.heaptide");
    let mut command = heaptide();
    command.args(["run", "--start-off", "-o"]).arg(&recording);
    let outcome = run(command.arg("--").arg(&program), &place);
    let missing = "everything while recording was off: ";
    assert!(outcome.stderr.contains(&format!("  missing    {missing}")), "{}", outcome.stderr);
    let report = run(heaptide().arg("report").arg(&recording), &place).stdout;
    assert!(report.contains(&format!("  missing  {missing}")), "{report}");
}

#[test]
fn a_go_program_is_announced() {
    let place = scratch("go");
    let text = "package main\n\nfunc main() { println(len(make([]byte, 1000))) }\n";
    fs::write(place.join("main.go"), text).expect("a source");
    let mut go = Command::new("go");
    go.args(["build", "-o", "main", "main.go"]).env("GOCACHE", place.join("cache"));
    go.env("GO111MODULE", "off").current_dir(&place);
    if !go.output().is_ok_and(|output| output.status.success()) {
        return skip("go");
    }
    assert_told(&place.join("main"), &place, &["is a Go program", "runtime/pprof"]);
}

#[test]
fn programs_of_another_class() {
    let place = scratch("other-class");
    let Some(program) = build(&place, "narrow", &["-m32"]) else {
        return skip("-m32");
    };
    assert_told(&program, &place, &["32-bit x86"]);
}

#[test]
fn programs_with_rights_of_their_own() {
    if !is_root() {
        return skip(ROOT);
    }
    let place = scratch("own-rights");
    let program = build(&place, "privileged", &[]).expect("a program");
    for (mode, word) in [(0o4755, "is set-user-id"), (0o2755, "is set-group-id")] {
        chown(&program, Some(65534), Some(65534)).expect("another owner");
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("a mode");
        assert_told(&program, &place, &[word]);
    }
}

#[test]
fn a_program_that_loads_no_recorder_for_no_known_reason() {
    let place = scratch("no-reason");
    let mut command = recorded(&place.join("a"), &["--no-preload"]);
    let outcome = run(command.arg("true"), &place);
    assert_eq!((outcome.status, outcome.stderr.lines().count()), (0, 1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("the recorder was not loaded"), "{}", outcome.stderr);
}

#[test]
fn children_of_an_unrecorded_program_are_recorded() {
    let place = scratch("unrecorded-parent");
    let text = "#include <stdlib.h>\nint main(void) { return system(\"true; true\") != 0; }\n";
    fs::write(place.join("parent.c"), text).expect("a source");
    let mut compiler = Command::new("cc");
    compiler
        .args(unknown_allocator("-static"))
        .args(["parent.c", "-o", "parent"])
        .current_dir(&place);
    assert!(compiler.status().expect("a compiler").success());
    let recording = place.join("a");
    let outcome: Outcome = run(recorded(&recording, &[]).arg(place.join("parent")), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert!(outcome.stderr.starts_with("heaptide: not recorded: "), "{}", outcome.stderr);
    assert!(unrecorded(&recording).contains("is statically linked"));
    assert!(!profiles(&recording).is_empty());
}

/// Returns the entries of `unrecorded_programs` of all processes: file name, reason, count.
fn programs(report: &Value) -> Vec<(String, String, i128)> {
    let of = |process: &Value| list(process, "unrecorded_programs").to_vec();
    let entry = |entry: Value| {
        let text = |key: &str| entry[key].as_str().expect("a text").to_owned();
        let path = text("path");
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        (name, text("reason"), number(&entry, "count"))
    };
    let all = list(report, "processes").iter().flat_map(of);
    let mut entries: Vec<_> = all.map(entry).collect();
    entries.sort();
    entries
}

#[test]
fn programs_that_a_recorded_one_starts_are_named_with_the_reason() {
    let place = scratch("named-children");
    let unknown = unknown_allocator("-static");
    assert!(build(&place, "static", &unknown.each_ref().map(String::as_str)).is_some());
    let raised = build(&place, "raised", &[]).expect("a program");
    if is_root() {
        chown(&raised, Some(NOBODY), None).expect("another owner");
        fs::set_permissions(&raised, fs::Permissions::from_mode(0o4755)).expect("a mode");
    }
    let with_asan = build(&place, "asan", &["-fsanitize=address"]).is_some();
    let recording = place.join("a.heaptide");
    let script =
        "./static; PATH=$PWD:$PATH static; ./raised; env -i ./static; [ -e asan ] && ./asan
                  ./missing; env -i /bin/true";
    let mut command = heaptide();
    command.args(["run", "-o"]).arg(&recording).args(["--", "sh", "-c", script]);
    let outcome = run(command.current_dir(&place), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let report = report(&recording, &place);
    let entry = |name: &str, why: &str, count| (name.to_owned(), why.to_owned(), count);
    let mut expected = vec![
        // As `./static`, by its absolute path, and from `env`.
        entry("static", "child_static", 1),
        entry("static", "child_static", 1),
        entry("static", "child_static", 1),
    ];
    if is_root() {
        expected.push(entry("raised", "child_setuid", 1));
    }
    if with_asan {
        expected.push(entry("asan", "child_sanitizer", 1));
    }
    expected.sort();
    assert_eq!(programs(&report), expected);
    let summary: Vec<&str> =
        outcome.stderr.lines().filter(|line| line.contains("missing")).collect();
    let has =
        |words: &[&str]| summary.iter().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(
        has(&[
            "3 statically linked programs started by exec that could not be given the recorder",
            "./static"
        ]),
        "{summary:?}"
    );
    assert!(!is_root() || has(&["set-user-id", "./raised"]), "{summary:?}");
    // The message is about the shell, which was started, not about its children.
    assert!(outcome.stderr.lines().any(|line| line.contains("sh -c")), "{}", outcome.stderr);
    let requested = list(&report, "processes").iter().filter(|p| p["requested"] == true);
    assert!(requested.count() >= 1);
    for words in [&["report"][..], &["info"]] {
        let shown = run(heaptide().args(words).arg(&recording), &place).stdout;
        assert!(shown.contains("/static"), "{words:?}: {shown}");
    }
}

#[test]
fn settings_of_the_environment_are_checked_before_the_program_starts() {
    let place = scratch("settings");
    for (name, value, expected) in [
        ("HEAPTIDE_START", "garbage", "on or off"),
        ("HEAPTIDE_MODE", "garbage", "expected one of"),
        ("HEAPTIDE_BY_SIZE", "1", "on or off"),
        ("HEAPTIDE_MAX_SIZE", "2G", "a number"),
        ("HEAPTIDE_SNAPSHOT_EVERY", "10s", "seconds"),
        ("HEAPTIDE_RANK", "first", "a number"),
    ] {
        let mut command = recorded(&place.join("a"), &[]);
        let outcome =
            run(command.args(["touch", "started"]).env(name, value).current_dir(&place), &place);
        assert_eq!((outcome.status, outcome.stderr.lines().count()), (2, 1), "{}", outcome.stderr);
        let named = format!("{name}={value}");
        assert!(
            outcome.stderr.contains(&named) && outcome.stderr.contains(expected),
            "{}",
            outcome.stderr
        );
    }
    assert!(!place.join("started").exists() && !place.join("a").exists());
    let mut command = recorded(&place.join("a"), &[]);
    command.arg("true").env("HEAPTIDE_START", "").env("HEAPTIDE_SNAPSHOT_EVERY", "0.5");
    assert_eq!(run(&mut command, &place).status, 0);
}
