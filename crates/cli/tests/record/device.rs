//! Memory of devices, from drivers without a device, which the tests build.
//!
//! The known numbers are in the headers of the programs, on lines `// device SELECTOR CONDITION…`
//! for the report of `--kind device`, and in the output of the programs, on lines `device …`: the
//! driver counts, too.

use crate::attaching::{Target, program};
use crate::expectations::{assert_met, parse};
use crate::harness::{Guest, Trial, heaptide, report, report_of_kind, run, scratch};
use crate::recording::{list, number};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Names a test after what its program does.
macro_rules! devices {
    ($($name:ident $file:literal)*) => {
        $(#[test]
        fn $name() {
            check($file);
        })*
    };
}

devices! {
    each_function_of_cuda "device.c"
    hip_and_level_zero "device_others.c"
    arrays_of_hip "device_arrays.c"
    threads_that_share_devices "device_threads.c"
    blocks_that_libraries_hand_out "device_pools.c"
}

/// Runs a program and compares its device memory and its mappings with the known numbers.
pub fn check(name: &str) {
    let trial = Trial::new(name, name, &[], &[]);
    let recording = trial.recording(&[]).expect("a recording");
    let text = Guest::read(name).text().to_owned();
    let device = report_of_kind("device", &recording, &trial.scratch);
    let mut known = parse(&text, "// device ");
    known.extend(parse(trial.stdout(), "device "));
    assert!(!known.is_empty(), "{name} knows no number");
    assert_met(&device, &known);
    let mapped = report_of_kind("mapped", &recording, &trial.scratch);
    assert_met(&mapped, &parse(&text, "// mapped "));
    let heap = report(&recording, &trial.scratch);
    assert_met(&heap, &parse(&text, "// expect "));
}

/// Returns the output of a command about a recording.
pub fn answer(recording: &Path, scratch: &Path, words: &[&str]) -> String {
    let mut command = heaptide();
    let outcome = run(command.args(words).arg(recording), scratch);
    assert_eq!(outcome.status, 0, "{words:?}: {}", outcome.stderr);
    outcome.stdout
}

/// Returns a text with one space in place of each sequence of spaces and line ends.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Each view of device memory names what holds it, and those of the host state that there is more.
#[test]
fn views_of_device_memory() {
    let trial = Trial::new("device.c", "device-views", &[], &[]);
    let recording = trial.recording(&[]).expect("a recording");
    let shown = |words: &[&str]| in_one_line(&answer(&recording, &trial.scratch, words));
    let host = shown(&["report"]);
    let line = "device 25.0 MiB at peak, together; each at its peak: CUDA device 0 25.0 MiB, CUDA \
                device 1 12.0 MiB, 20.0 MiB live at the end; `--kind device` has its stacks";
    assert!(host.contains(line), "{host}");
    let sentence = "Devices had up to 25.0 MiB more, which is counted apart (`--kind device`).";
    assert!(host.contains(sentence), "{host}");
    assert!(!host.contains("missing"), "{host}");
    let device = shown(&["report", "--kind", "device"]);
    let sentence = "`looked_up` (device.c :150 5.00, :151 5.00 MiB) holds 10.0 MiB, 39.9% of peak";
    assert!(device.contains(sentence), "{device}");
    assert!(device.contains("counts device memory") && !device.contains("Devices had"), "{device}");
    let tree =
        answer(&recording, &trial.scratch, &["export", "--format", "folded", "--kind", "device"]);
    let lines: Vec<&str> = tree.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("[CUDA device 0];")), "{tree}");
    let of_plain = |line: &&&str| line.ends_with("main;plain;alloc_by 6291456");
    assert_eq!(lines.iter().filter(of_plain).count(), 1, "{tree}");
    let query = "SELECT device,class,sum(live_bytes) AS live WHERE device GROUP BY device,class \
                 ORDER BY class FORMAT csv";
    let rows = answer(&recording, &trial.scratch, &["query", query, "--kind", "device"]);
    let expected = "device,class,live\nCUDA device 0,array,33109\nCUDA device 0,memory,16777216\n\
                    CUDA device 1,memory,0\nCUDA device 0,physical,2097152\n\
                    CUDA device 0,stream,2097152\n";
    assert_eq!(rows, expected);
    let page = trial.scratch.join("page.html");
    let page = page.to_str().expect("a path");
    answer(&recording, &trial.scratch, &["export", "--format", "html", "-o", page]);
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("CUDA device 1 12.0 MiB"));
}

/// Blocks of pools have their own stacks, and each byte counts once.
#[test]
fn views_of_blocks_that_libraries_hand_out() {
    let trial = Trial::new("device_pools.c", "device-pools-views", &[], &[]);
    let recording = trial.recording(&[]).expect("a recording");
    let shown = |words: &[&str]| in_one_line(&answer(&recording, &trial.scratch, words));
    let host = shown(&["report"]);
    let line = "CUDA device 1 4.00 MiB, pools with 16.0 MiB in use and 8.00 MiB idle, 24.0 MiB";
    assert!(host.contains(line), "{host}");
    let device = shown(&["report", "--kind", "device"]);
    // The pool `own` has the memory from which PyTorch hands out most blocks.
    for line in [
        "17.0 MiB 16.0 MiB 5.9% 13.0 MiB 12.0 MiB 7.7% 3 PyTorch",
        "7.00 MiB 0 B 100% 11.0 MiB 0 B 100% 0 own",
    ] {
        assert!(device.contains(line), "{line}: {device}");
    }
    let query = "SELECT class,label,sum(allocations) AS n,sum(live_bytes) AS live,\
                 sum(at_peak_bytes) AS peak WHERE label GROUP BY class,label ORDER BY class,label \
                 FORMAT csv";
    let rows = answer(&recording, &trial.scratch, &["query", query, "--kind", "device"]);
    let expected = "class,label,n,live,peak\npool_block,PyTorch,11,12582912,16777216\n\
                    pool_block,own,2,0,0\npool_chunk,PyTorch,6,1048576,1048576\n\
                    pool_chunk,own,1,11534336,7340032\n";
    assert_eq!(rows, expected);
    let folded =
        answer(&recording, &trial.scratch, &["export", "--format", "folded", "--kind", "device"]);
    let of_tensors = |line: &&str| line.ends_with("main;tensor;hand_out 9437184");
    assert_eq!(folded.lines().filter(of_tensors).count(), 1, "{folded}");
}

/// Sums do not depend on the mode.
#[test]
fn totals_in_each_mode() {
    let known = [38, 24, 21_004_629, 26_247_509];
    for mode in ["counters", "scopes", "stacks", "sampled", "trace"] {
        let trial = Trial::new("device.c", "device-modes", &[], &[]);
        let recording = trial.scratch.join("mode.heaptide");
        let mut command = heaptide();
        command.args(["run", "--quiet", "--mode", mode, "-o"]).arg(&recording).arg("--");
        command.arg(Guest::read("device.c").build("device-modes", &[]));
        assert_eq!(run(&mut command, &trial.scratch).status, 0);
        let report = report_of_kind("device", &recording, &trial.scratch);
        let totals = &list(&report, "processes")[0]["totals"];
        let found = ["allocations", "frees", "live_bytes", "peak_bytes"].map(|n| number(totals, n));
        assert_eq!(found, known, "{mode}");
        std::fs::remove_dir_all(recording).expect("a recording");
    }
}

/// A snapshot has the memory of its time, a report after a reset the later one; both of a program
/// that was killed, and of its child.
#[test]
fn snapshots_resets_children_and_kills() {
    let trial = Trial::new("device_steps.c", "device-snapshot", &[], &[]);
    let recording = trial.recording(&[]).expect("a recording");
    let read = |options: &[&str]| -> Value {
        let words = [&["report", "--format", "json", "--kind", "device"], options].concat();
        serde_json::from_str(&answer(&recording, &trial.scratch, &words)).expect("JSON")
    };
    let known = parse(Guest::read("device_steps.c").text(), "// device ");
    assert_met(&read(&[]), &known);
    let joined = answer(&recording, &trial.scratch, &["report", "--process", "all"]);
    let line = "15.0 MiB  at most, the peaks of 2 process images added up, on CUDA device 0";
    assert!(joined.contains(line), "{joined}");
    let report = read(&["--snapshot", "1"]);
    let totals = &list(&report, "processes")[0]["totals"];
    let found = ["allocations", "live_bytes", "peak_bytes"].map(|name| number(totals, name));
    assert_eq!(found, [1, 3 << 20, 3 << 20]);
}

/// The code of a driver that a running program has loaded is changed when a command attaches.
#[test]
fn drivers_of_programs_that_run_already() {
    let program = program("device_attached.c");
    let mut target = Target::start("device_attached", Command::new(program));
    target.attach("a.heaptide", &[]);
    target.steps("a");
    target.detach();
    target.steps("a");
    let report = report_of_kind("device", &target.recording("a.heaptide"), &target.place);
    let known = parse(Guest::read("device_attached.c").text(), "// device ");
    assert_met(&report, &known);
}

/// If the code of a driver is not changed, the report states it.
#[test]
fn drivers_that_are_left_alone() {
    let place = scratch("device_left");
    let program = Guest::read("device.c").build("device-left", &[]);
    let recording = place.join("left.heaptide");
    let mut command = heaptide();
    command.args(["run", "--no-intercept", "-o"]).arg(&recording).arg("--").arg(program);
    let outcome = run(&mut command, &place);
    let line = "  missing    device memory: the program loaded libcuda.so, and --no-intercept was \
                given: what it allocates on a GPU is not recorded\n";
    assert!(outcome.stderr.contains(line), "{}", outcome.stderr);
    let report = report(&recording, &place);
    assert!(list(&report, "processes")[0]["device"].is_null());
}
