//! When and how processes end, which images belong to one process, and messages about what is not
//! recorded.

use crate::expectations::evaluate;
use crate::harness::{
    Guest, clean, heaptide, preloaded, profiles, recorded, report, run, scratch, set_clock,
    unknown_allocator, until,
};
use crate::recording::{list, number};
use heaptide_fixtures::skips::may_make_namespaces;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Stdio;

/// Returns the output of `heaptide COMMAND RECORDING`.
fn shown(command: &[&str], recording: &Path, place: &Path) -> String {
    let outcome = run(heaptide().args(command).arg(recording), place);
    assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{command:?}");
    outcome.stdout
}

/// Returns the lines of the summary about what is missing.
fn missing(summary: &str) -> Vec<&str> {
    summary.lines().filter_map(|line| line.strip_prefix("heaptide:   missing    ")).collect()
}

fn seconds(value: &Value) -> f64 {
    value.as_f64().expect("seconds")
}

/// Twenty allocations, each followed by 20 ms, then `abort`.
#[test]
fn the_end_of_a_program_that_aborts() {
    let place = scratch("ends-abort");
    let program = Guest::read("seldom.c").build("seldom.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    set_clock(&mut command, &place);
    assert_eq!(run(command.arg(&program), &place).status, 134);
    let report = report(&recording, &place);
    let process = &list(&report, "processes")[0];
    assert_eq!(
        (&process["end"]["kind"], &process["duration_is_known"]),
        (&"signaled".into(), &true.into())
    );
    let (duration, peak) =
        (seconds(&process["duration_s"]), seconds(&process["totals"]["peak_time_s"]));
    assert_eq!((duration, peak), (0.4, 0.38));
}

/// Children are killed while the command watches them. The command learns how before their parent
/// reaps them, as it must on kernels before 6.15. A request to end is no fault.
#[test]
fn children_that_were_killed() {
    let place = scratch("ends-children");
    let program = Guest::read("killed_children.c").build("killed_children.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = heaptide();
    command.args(["run", "-o"]).arg(&recording).arg("--").arg(&program);
    let running = command.current_dir(&place).stderr(Stdio::piped()).spawn();
    let running = running.expect("the command");
    until("the children", || place.join("pids").exists());
    let pids = fs::read_to_string(place.join("pids")).expect("their pids");
    let pids: Vec<i32> = pids.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect();
    let watched = || -> Vec<i32> {
        let fds = fs::read_dir(format!("/proc/{}/fdinfo", running.id())).expect("descriptors");
        let infos = fds.flatten().map(|fd| fs::read_to_string(fd.path()).unwrap_or_default());
        let pid =
            |info: String| info.lines().find_map(|line| line.strip_prefix("Pid:\t")?.parse().ok());
        infos.filter_map(pid).filter(|pid| pids.contains(pid)).collect()
    };
    until("all to be watched", || watched().len() == pids.len());
    for (&pid, signal) in pids.iter().zip([Signal::SIGSEGV, Signal::SIGKILL, Signal::SIGTERM]) {
        kill(Pid::from_raw(pid), signal).expect("a child");
    }
    until("all ends to be seen", || watched().is_empty());
    fs::write(place.join("go"), "").expect("a file");
    let outcome = running.wait_with_output().expect("its end");
    let summary = String::from_utf8_lossy(&outcome.stderr).into_owned();
    let line = summary.lines().find_map(|line| line.strip_prefix("heaptide:   killed     "));
    let parts: Vec<&str> = line.expect("a line").split("; ").collect();
    let expected = [
        (1, "killed by signal 9 (SIGKILL)", "1.91 MiB"),
        (0, "killed by signal 11 (SIGSEGV)", "980 KiB"),
    ];
    assert_eq!(parts.len(), expected.len(), "{summary}");
    for (part, (child, how, live)) in parts.iter().zip(expected) {
        let pid = format!("(pid {})", pids[child]);
        assert!([&*pid, how, live].iter().all(|says| part.contains(says)), "{summary}");
    }
    let report = report(&recording, &place);
    let signals =
        list(&report, "processes").iter().filter_map(|process| process["end"]["code"].as_i64());
    let mut signals: Vec<i64> = signals.collect();
    signals.sort_unstable();
    assert_eq!(signals, [0, 9, 11, 15]);
}

/// The program died by a signal and was not started by the command, so its end was not observed.
#[test]
fn an_end_that_nobody_saw_is_the_last_sign_of_life() {
    let place = scratch("ends-unseen");
    let program = Guest::read("seldom.c").build("seldom.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = preloaded(&program, &recording);
    assert_eq!(run(&mut command, &place).status, 134);
    let report = report(&recording, &place);
    assert_eq!(list(&report, "processes")[0]["duration_is_known"], false);
    for (view, says) in [("info", "end not seen, last seen after "), ("report", "ran at least ")] {
        let page = shown(&[view], &recording, &place);
        assert!(page.contains(says), "{view}: {page}");
    }
}

/// Each process is the second one in its own pid namespace, so all have the same pid.
#[test]
fn processes_of_one_pid_are_several() {
    if !may_make_namespaces("ends::processes_of_one_pid_are_several") {
        return;
    }
    let place = scratch("ends-one-pid");
    let program = Guest::read("leaks.c").build("leaks.c", &[]);
    // Returns the leaked bytes of each process.
    let leaked = |script: &str, name: &str| -> Vec<i128> {
        let recording = place.join(name);
        run(recorded(&recording, &[]).args(["sh", "-c", script]).arg(&program), &place);
        let outcome = run(heaptide().args(["leaks", "--format", "json"]).arg(&recording), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (1, ""));
        let leaks: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        let ours = |process: &&Value| process["program"].as_str() == program.to_str();
        let ours = list(&leaks, "processes").iter().filter(ours);
        ours.map(|process| number(process, "leaked_bytes")).collect()
    };
    let alone = leaked("\"$0\"; exit", "alone");
    assert!(alone.len() == 1 && alone[0] > 0, "{alone:?}");
    let of_one_pid = "for i in 1 2 3 4 5; do unshare -pf --mount-proc \"$0\"; done";
    assert_eq!(leaked(of_one_pid, "five"), [alone[0]; 5]);
}

/// A daemon outlives the command. Its later functions have names as long as its executable exists.
#[test]
fn a_daemon_that_outlives_the_command() {
    let place = scratch("ends-daemon");
    let program = Guest::read("outlives.c").build("outlives.c", &[]);
    let recording = place.join("a.heaptide");
    assert_eq!(run(recorded(&recording, &[]).arg(&program).arg(&place), &place).status, 0);
    let info = shown(&["info"], &recording, &place);
    assert!(info.contains("1 process image ran later"), "{info}");
    fs::write(place.join("go"), "").expect("a file");
    until("the daemon's end", || place.join("done").exists());
    until("the profile's end", || {
        let report = report(&recording, &place);
        list(&report, "processes").iter().all(|process| process["end"]["kind"] == "exited")
    });
    let report = report(&recording, &place);
    assert_eq!(list(&report, "ran_after_sealing").len(), 1);
    let names = list(&report, "processes").iter().flat_map(|process| list(process, "frames"));
    let mut names = names.filter_map(|frame| frame["function"].as_str());
    assert!(names.any(|name| name == "reached_late"));
}

/// The summary, `info` and `report` list what cannot be recorded.
#[test]
fn an_own_malloc_is_said() {
    let place = scratch("ends-own-malloc");
    let program = Guest::read("allocator_inside.c").build("allocator_inside.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = heaptide();
    command.args(["run", "-o"]).arg(&recording).arg("--").arg(program);
    let outcome = run(&mut clean(command), &place);
    let missing = missing(&outcome.stderr);
    assert_eq!(missing.len(), 1, "{}", outcome.stderr);
    assert!(missing[0].contains("defines malloc"), "{missing:?}");
    for view in ["info", "report"] {
        let page = shown(&[view], &recording, &place);
        assert!(page.contains("defines malloc"), "{view}: {page}");
    }
}

/// An intercepted allocator in the executable is not reported; with `--no-intercept` it is.
#[test]
fn an_intercepted_malloc_is_not_said() {
    let place = scratch("ends-intercepted");
    let program = Guest::read("intercepted.c").build("intercepted.c", &["-rdynamic", "-pthread"]);
    let recording = place.join("a.heaptide");
    let start = |options: &[&str]| {
        let mut command = heaptide();
        command.args(["run", "--force", "-o"]).arg(&recording).args(options);
        let outcome = run(command.arg("--").arg(&program), &place);
        assert_eq!((outcome.status, &*outcome.stdout), (0, "1\n"), "{}", outcome.stderr);
        outcome.stderr
    };
    assert_eq!(missing(&start(&[])), [""; 0]);
    let summary = start(&["--no-intercept"]);
    let missing = missing(&summary);
    assert!(missing.len() == 1 && missing[0].contains("defines malloc"), "{missing:?}");
    assert!(shown(&["info"], &recording, &place).contains("--no-intercept was given"));
    assert_eq!(report(&recording, &place)["processes"][0]["totals"]["allocations"], 0);
}

/// An allocator with its own names that is not intercepted is reported.
#[test]
fn an_allocator_that_is_left_alone_is_said() {
    let place = scratch("ends-family");
    let guest = Guest::read("family.c");
    let program = guest.build("family.c-left", &["-ldl"]);
    let recording = place.join("a.heaptide");
    let mut command = heaptide();
    command.args(["run", "--no-intercept", "-o"]).arg(&recording).arg("--").arg(&program);
    let outcome = run(clean(command).args(guest.arguments()), &place);
    let missing = missing(&outcome.stderr);
    assert!(missing.len() == 1 && missing[0].contains("its own allocator"), "{missing:?}");
    assert!(shown(&["info"], &recording, &place).contains("--no-intercept was given"));
    let report = report(&recording, &place);
    assert_eq!(evaluate(&report, "function:in_library", "allocations"), 0);
    assert_eq!(evaluate(&report, "function:in_program", "allocations"), 100);
}

/// With so little address space that the recorder's library may not fit: everything is recorded, or
/// the summary lists what is missing.
#[test]
fn without_room_all_is_recorded_or_said() {
    let place = scratch("ends-no-room");
    let program = Guest::read("plain.c").build("plain.c", &[]);
    let mut said = 0;
    for limit in (4000..9000).step_by(500) {
        let recording = place.join(format!("{limit}.heaptide"));
        let script = format!("ulimit -v {limit}; exec \"$0\"");
        let mut command = heaptide();
        command.args(["run", "-o"]).arg(&recording).args(["--", "sh", "-c", &script]);
        let outcome = run(clean(command).arg(&program), &place);
        assert_eq!(outcome.status, 5, "{limit}: {}", outcome.stderr);
        let report = report(&recording, &place);
        let ours = |process: &&Value| process["program"].as_str() == program.to_str();
        let found = list(&report, "processes").iter().find(ours);
        let total = |name| found.map_or(0, |process| number(&process["totals"], name));
        // A request that failed for lack of memory is recorded as failed.
        let recorded = total("allocations") + total("failed");
        let missing = missing(&outcome.stderr);
        assert_eq!(recorded == 0, !missing.is_empty(), "{limit}: {}", outcome.stderr);
        said += i32::from(!missing.is_empty());
    }
    assert!(said > 0, "there was room at every limit");
}

#[test]
fn a_static_program_has_one_reason() {
    let place = scratch("ends-static");
    let unknown = unknown_allocator("-static");
    let flags = unknown.each_ref().map(String::as_str);
    let program = Guest::read("plain.c").build("plain.c-reason", &flags);
    let recording = place.join("a.heaptide");
    let mut command = heaptide();
    command.args(["run", "-o"]).arg(&recording).arg("--").arg(&program);
    let outcome = run(&mut clean(command), &place);
    assert_eq!(profiles(&recording).len(), 0);
    assert!(outcome.stderr.contains("not recorded: "), "{}", outcome.stderr);
    let reason = outcome.stderr.split("not recorded: ").nth(1).expect("a reason").trim();
    for view in ["info", "report", "tree", "leaks"] {
        let outcome = run(heaptide().arg(view).arg(&recording), &place);
        assert_eq!(outcome.status, 2);
        assert!(outcome.stderr.trim().ends_with(reason), "{view}: {}", outcome.stderr);
    }
}
