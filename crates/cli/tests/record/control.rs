//! Control of running programs from outside: on and off, marks, snapshots, thresholds, resets; and
//! monitors that are loaded into them.

use crate::expectations::evaluate;
use crate::harness::{
    Clock, Looping, Outcome, clean, heaptide, library, recorded, run, scratch, until,
};
use crate::recording::{list, number};
use crate::steps::{Steps, read};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Returns the allocations of a function.
fn allocations(report: &Value, function: &str) -> i128 {
    evaluate(report, &format!("function:{function}"), "allocations")
}

/// Checks for a refusal: one line, and status 2.
fn assert_refused(outcome: &Outcome, says: &str) {
    assert_eq!(outcome.status, 2, "{outcome:?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.starts_with("heaptide: "), "{}", outcome.stderr);
    assert!(outcome.stderr.contains(says), "`{says}` is not in: {}", outcome.stderr);
}

#[test]
fn off_and_on_from_outside() {
    let mut guest = Steps::named("ctl-off-and-on", &[]);
    guest.steps("a");
    let outcome = guest.ctl(&["off"]);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert_eq!(outcome.stdout, format!("pid {}: recording off, by ctl\n", guest.pid()));
    guest.steps("aabf");
    guest.ctl_while_it_allocates(&["mark", "while it is off"]);
    assert!(guest.ctl(&["status"]).stdout.contains("recording  off, by ctl"));
    assert_eq!(guest.ctl(&["on"]).stdout, format!("pid {}: recording on\n", guest.pid()));
    guest.steps("b");
    let report = guest.end();
    assert_eq!((allocations(&report, "small"), allocations(&report, "large")), (10, 5));
    assert_eq!(evaluate(&report, "function:small", "frees"), 10);
    assert_eq!((evaluate(&report, "off", "count"), evaluate(&report, "on", "count")), (1, 1));
}

#[test]
fn a_process_is_steered_by_its_pid() {
    let mut guest = Steps::named("ctl-by-pid", &[]);
    guest.steps("a");
    let (pid, place) = (guest.pid(), guest.place.clone());
    assert_eq!(run(heaptide().args(["ctl", &pid, "off"]), &place).status, 0);
    guest.steps("a");
    assert_eq!(guest.ctl(&["--pid", &pid, "on"]).status, 0);
    assert_refused(&guest.ctl(&["--pid", "1", "off"]), "no running process 1; running: ");
    guest.steps("b");
    let report = guest.end();
    assert_eq!((allocations(&report, "small"), allocations(&report, "large")), (10, 5));
}

/// The process id of the program can replace the path of its recording in every command that reads
/// one, unless a file has that name.
#[test]
fn a_recording_is_read_by_the_pid_of_its_program() {
    let mut guest = Steps::named("ctl-read-by-pid", &[]);
    guest.steps("a");
    let (pid, place) = (guest.pid(), guest.place.clone());
    let counts = |given: &str| {
        let report = read(Path::new(given), &[], &place);
        (allocations(&report, "small"), allocations(&report, "large"))
    };
    assert_eq!(counts(&pid), (10, 0));
    assert_eq!(run(heaptide().args(["ctl", &pid, "snapshot", "loaded"]), &place).status, 0);
    guest.steps("b");
    let named = format!("{pid}@loaded");
    assert_eq!((counts(&pid), counts(&named)), ((10, 5), (10, 0)));
    let query = ["query", "SELECT sum(allocations) AS n WHERE owner=large FORMAT json", &pid];
    let since = ["diff", &named, &pid, "--metric", "allocations", "--format", "json"];
    let pages: [&[&str]; 6] =
        [&["tree", &pid], &["peak", &pid], &["info", &named], &["timeline", &pid], &query, &since];
    for words in pages {
        let outcome = run(heaptide().args(words), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{words:?}");
    }
    let asked = run(heaptide().args(query), &place).stdout;
    assert!(asked.contains(r#""n":5"#), "{asked}");
    fs::write(place.join(&pid), "no profile").expect("a file");
    let refused = run(heaptide().args(["report", &pid]).current_dir(&place), &place);
    assert_refused(&refused, "expected a profile that starts with HEAPTIDE");
    fs::remove_file(place.join(&pid)).expect("the file");
    guest.finish();
    let refused = run(heaptide().args(["report", &pid]), &place);
    assert_refused(&refused, "no such process, and no recording of this name");
}

#[test]
fn all_programs_of_a_recording() {
    let place = scratch("ctl-all");
    let mut guests = [Steps::preload(&place, &[]), Steps::preload(&place, &[])];
    guests.iter_mut().for_each(|guest| guest.steps("a"));
    let taken = guests[0].ctl(&["snapshot", "of both"]);
    assert_eq!(taken.stdout.lines().count(), 2, "{}", taken.stdout);
    let off = guests[0].ctl(&["off"]).stdout;
    assert_eq!(off.matches("recording off, by ctl\n").count(), 2, "{off}");
    for guest in &mut guests {
        guest.steps("b");
        guest.finish();
    }
    for options in [&[][..], &["--snapshot", "1"]] {
        let report = guests[0].report(options);
        assert_eq!(list(&report, "processes").len(), 2);
        assert_eq!((allocations(&report, "small"), allocations(&report, "large")), (20, 0));
    }
}

#[test]
fn the_same_by_variables() {
    let place = scratch("ctl-variables");
    let variables = [("HEAPTIDE_START", "off"), ("HEAPTIDE_THRESHOLD", "<1024")];
    let mut guest = Steps::preload(&place, &variables);
    guest.steps("ab1ab0ab");
    guest.finish();
    let report = guest.report(&[]);
    assert_eq!((allocations(&report, "small"), allocations(&report, "large")), (10, 0));
    assert_eq!(evaluate(&report, "totals", "allocations"), 15);
}

#[test]
fn snapshots_at_an_interval_by_variable() {
    let place = scratch("ctl-interval-variable");
    let mut guest = Steps::preload(&place, &[("HEAPTIDE_SNAPSHOT_EVERY", "0.01")]);
    guest.steps("a");
    let file = |n: u32| guest.recording.join(format!("{}-0.{n}.snapshot", guest.pid()));
    let files = [file(1), file(2), file(3)];
    until("three snapshots", || {
        guest.steps("t");
        files.iter().all(|file| file.exists())
    });
    guest.steps("b");
    guest.finish();
    let report = guest.report(&["--snapshot", "2"]);
    assert_eq!((allocations(&report, "small"), allocations(&report, "large")), (10, 0));
}

#[test]
fn the_last_word_counts() {
    let mut guest = Steps::named("ctl-last-word", &[]);
    guest.steps("0");
    assert_eq!(guest.ctl(&["on"]).status, 0);
    guest.steps("a1a");
    assert_eq!(guest.ctl(&["off"]).status, 0);
    guest.steps("b1b");
    let report = guest.end();
    let (small, large) = (allocations(&report, "small"), allocations(&report, "large"));
    // If the program disabled recording itself, commands do not enable it.
    assert_eq!((small, large), (10, 5));
}

/// A command and the program change the same word concurrently: neither reverts the change of the
/// other.
#[test]
fn a_command_keeps_what_the_program_turned_on() {
    let mut guest = Steps::named("ctl-at-the-same-time", &[]);
    guest.steps("a");
    assert_eq!(guest.ctl(&["off"]).status, 0);
    let shim = guest.place.join("libctl_delayed.so");
    let source = crate::harness::programs().join("ctl_delayed.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&shim).arg(source);
    assert!(compiler.status().expect("cc").success());
    let waits = guest.place.join("waits");
    let mut command = heaptide();
    command.arg("ctl").arg(&guest.recording).args(["mark", "between"]).stdout(Stdio::null());
    let mut command = command.env("LD_PRELOAD", &shim).env("DELAYED", &waits).spawn().expect("ctl");
    until("the command to write", || waits.exists());
    guest.steps("1");
    fs::write(guest.place.join("waits.go"), "").expect("a file");
    until("the mark", || {
        guest.steps("t");
        command.try_wait().expect("wait for heaptide ctl").is_some()
    });
    guest.steps("b");
    let report = guest.end();
    assert_eq!((allocations(&report, "small"), allocations(&report, "large")), (10, 5));
}

#[test]
fn a_command_that_was_killed_is_made_up_for() {
    use heaptide_format::{FileHeader, Request};
    use std::mem::offset_of;
    use std::os::unix::fs::FileExt;
    let mut guest = Steps::named("ctl-killed", &[]);
    guest.steps("a");
    let profile = guest.recording.join(format!("{}-0.profile", guest.pid()));
    let file = fs::OpenOptions::new().write(true).open(profile).expect("the profile");
    let write = |at: usize, bytes: &[u8]| file.write_all_at(bytes, at as u64).expect("a write");
    write(offset_of!(FileHeader, request_kind), &(Request::Mark as u32).to_le_bytes());
    write(offset_of!(FileHeader, request_length), &4u32.to_le_bytes());
    write(offset_of!(FileHeader, request_text), b"lost");
    write(offset_of!(FileHeader, request), &1u32.to_le_bytes());
    guest.steps("t");
    guest.ctl_while_it_allocates(&["mark", "found"]);
    let status = guest.ctl(&["status"]).stdout;
    assert!(status.contains("  lost\n") && status.contains("  found\n"), "{status}");
    guest.end();
}

#[test]
fn snapshots_of_a_busy_program() {
    let place = scratch("ctl-busy");
    let recording = place.join("a.heaptide");
    let program = Looping::start(&recording, &place);
    let taken: Vec<Outcome> = (0..5)
        .map(|_| run(heaptide().arg("ctl").arg(&recording).args(["snapshot", "busy"]), &place))
        .collect();
    drop(program);
    assert!(taken.iter().all(|o| o.status == 0 && o.stderr.is_empty()), "{taken:?}");
    let counted: Vec<i128> = (1..=5)
        .map(|n| {
            let report = read(&recording, &["--snapshot", &n.to_string()], &place);
            assert_eq!(list(&report, "processes")[0]["end"]["kind"], "running");
            evaluate(&report, "totals", "allocations")
        })
        .collect();
    assert!(counted[0] > 0 && counted.is_sorted(), "{counted:?}");
}

#[test]
fn snapshot_by_the_program() {
    let mut guest = Steps::named("ctl-own-snapshot", &[]);
    guest.steps("asb");
    assert!(guest.ctl(&["status"]).stdout.contains("  from inside\n"));
    assert!(guest.ctl(&["snapshot"]).stdout.contains("snapshot 2: "));
    guest.steps("s");
    guest.finish();
    let report = guest.report(&["--snapshot", "1"]);
    assert_eq!((allocations(&report, "small"), allocations(&report, "large")), (10, 0));
    let info = run(heaptide().arg("info").arg(&guest.recording), &guest.place).stdout;
    assert_eq!(info.matches("  from inside\n").count(), 2, "{info}");
    // The last of several snapshots with one name is used, also in the option.
    let at = |name: &str| format!("{}@{name}", guest.recording.display());
    let named = read(Path::new(&at("from inside")), &[], &guest.place);
    assert_eq!((allocations(&named, "small"), allocations(&named, "large")), (10, 5));
    let named = guest.report(&["--snapshot", "from inside"]);
    assert_eq!((allocations(&named, "small"), allocations(&named, "large")), (10, 5));
    let unknown = run(heaptide().args(["report", &at("outside")]), &guest.place);
    let known = r#"no snapshot "outside"; available: 1 "from inside", 2, 3 "from inside""#;
    assert_refused(&unknown, known);
    let both = run(heaptide().args(["tree", "--snapshot=1", &at("2")]), &guest.place);
    assert_refused(&both, "names snapshot 2, and --snapshot 1; omit one");
}

#[test]
fn begun_off() {
    let mut guest = Steps::named("ctl-start-off", &["--start-off"]);
    guest.steps("a");
    assert_eq!(guest.ctl(&["on"]).stdout, format!("pid {}: recording on\n", guest.pid()));
    guest.steps("b");
    let report = guest.end();
    assert_eq!((allocations(&report, "small"), allocations(&report, "large")), (0, 5));
    assert_eq!(evaluate(&report, "totals", "allocations"), 5);
}

#[test]
fn marks_from_outside() {
    let mut guest = Steps::named("ctl-marks", &[]);
    guest.steps("a");
    let long = "x".repeat(300);
    guest.ctl_while_it_allocates(&["mark", "half way"]);
    guest.ctl_while_it_allocates(&["mark", &long]);
    let status = guest.ctl(&["status"]).stdout;
    assert!(status.contains("marks      2\n"), "{status}");
    assert!(status.contains("  half way\n"), "{status}");
    assert!(status.contains(&format!("  {}\n", "x".repeat(256))), "{status}");
    guest.end();
}

#[test]
fn an_idle_program_is_marked_later() {
    let mut guest = Steps::named("ctl-idle", &[]);
    guest.steps("a");
    // The copy does not need a reply of the program: the command does not report that it waits.
    let snapshot = guest.ctl(&["snapshot", "idle"]);
    assert_eq!((snapshot.status, &*snapshot.stderr), (0, ""));
    guest.steps("t");
    let first = guest.ctl(&["mark", "first"]);
    assert_eq!(first.status, 0, "{}", first.stderr);
    assert!(
        first.stderr.contains("no allocation since the request; the mark is pending"),
        "{}",
        first.stderr
    );
    assert_refused(&guest.ctl(&["mark", "second"]), "is pending until");
    let taken = guest.ctl(&["snapshot", "third"]);
    assert!(taken.stdout.contains(": snapshot 2: "), "{}", taken.stdout);
    assert!(taken.stderr.contains("an earlier request is pending; this one has no mark"));
    guest.steps("t");
    guest.ctl_while_it_allocates(&["mark", "third"]);
    let status = guest.ctl(&["status"]).stdout;
    assert!(status.contains("  first\n") && status.contains("  third\n"), "{status}");
    assert!(!status.contains("second"), "{status}");
    guest.end();
}

#[test]
fn snapshot_of_a_stopped_program() {
    let mut guest = Steps::named("ctl-stopped", &[]);
    guest.steps("a");
    let pid = guest.pid();
    let send = |signal: &str| {
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill").success());
    };
    send("-STOP");
    until("the stop", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process");
        stat.contains(") T ")
    });
    let taken = guest.ctl(&["snapshot", "while stopped"]);
    assert_eq!(taken.status, 0, "{}", taken.stderr);
    assert!(taken.stdout.contains("snapshot 1: "), "{}", taken.stdout);
    send("-CONT");
    guest.steps("b");
    assert_eq!(guest.ctl(&["snapshot"]).status, 0);
    guest.steps("f");
    guest.finish();
    let of = |report: Value| {
        let live = number(&list(&report, "processes")[0]["totals"], "live_blocks");
        (allocations(&report, "small"), allocations(&report, "large"), live)
    };
    assert_eq!(of(guest.report(&[])), (10, 5, 0));
    assert_eq!(of(guest.report(&["--snapshot", "1"])), (10, 0, 10));
    assert_eq!(of(guest.report(&["--snapshot", "2"])), (10, 5, 15));
    let file = guest.recording.join(format!("{pid}-0.1.snapshot"));
    assert_eq!(of(read(&file, &[], &guest.place)), (10, 0, 10));
    let info = run(heaptide().arg("info").arg(&guest.recording), &guest.place).stdout;
    assert!(info.contains(&format!("snapshots of pid {pid} image 0\n")), "{info}");
    assert!(info.contains("  while stopped\n"), "{info}");
    let part = guest.report(&["--snapshot", "1"])["processes"][0]["part"].to_string();
    assert!(part.starts_with(r#""snapshot 1 \"while stopped\", "#), "{part}");
    for words in [["tree", "--snapshot=1"], ["info", "--snapshot=1"]] {
        let outcome = run(heaptide().args(words).arg(&guest.recording), &guest.place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    }
    let mut command = heaptide();
    command.args(["report", "--snapshot=3"]).arg(&guest.recording);
    assert_refused(&run(&mut command, &guest.place), "no snapshot 3; available: 1, 2");
    let again = run(recorded(&guest.recording, &["--force"]).arg("true"), &guest.place);
    assert_eq!(again.status, 0, "snapshots belong to a recording: {}", again.stderr);
    assert!(!file.exists());
}

#[test]
fn snapshots_at_an_interval() {
    let place = scratch("ctl-interval");
    let clock = Clock::new(&place);
    let mut guest = Steps::timed(&place, &clock, &["--snapshot-every", "1h"]);
    guest.steps("a");
    let (recording, pid) = (guest.recording.clone(), guest.pid());
    let here = |n: u32| recording.join(format!("{pid}-0.{n}.snapshot")).exists();
    let last = || (1..).find(|&n| !here(n)).expect("a number that is free") - 1;
    assert_eq!(last(), 0);
    until("a snapshot", || {
        clock.pass(HOUR);
        here(1)
    });
    guest.steps("b");
    // The second one, since the next one may have been started before.
    let number = last() + 2;
    until("two more snapshots", || {
        clock.pass(HOUR);
        here(number)
    });
    guest.finish();
    for (number, large) in [(1, 0), (number, 5)] {
        let report = guest.report(&["--snapshot", &number.to_string()]);
        assert_eq!((allocations(&report, "small"), allocations(&report, "large")), (10, large));
    }
}

#[test]
fn snapshot_at_a_signal() {
    let mut guest = Steps::named("ctl-signal", &["--snapshot-on", "usr2"]);
    guest.steps("auab");
    guest.finish();
    let report = guest.report(&["--snapshot", "1"]);
    assert_eq!((allocations(&report, "small"), allocations(&report, "large")), (10, 0));
    let report = guest.report(&[]);
    assert_eq!((allocations(&report, "small"), allocations(&report, "large")), (20, 5));
}

#[test]
fn stacks_of_some_sizes_only() {
    for (options, small, large) in [
        (["--stacks-from", "1K"], 0, 5),
        (["--stacks-below", "1K"], 10, 0),
        (["--stacks-from", "0"], 10, 5),
    ] {
        let mut guest = Steps::named("ctl-threshold-run", &options);
        guest.steps("ab");
        let report = guest.end();
        let found = (allocations(&report, "small"), allocations(&report, "large"));
        assert_eq!(found, (small, large), "{options:?}");
        assert_eq!(evaluate(&report, "totals", "allocations"), 15, "{options:?}");
    }
}

#[test]
fn threshold_from_outside() {
    let mut guest = Steps::named("ctl-threshold", &[]);
    guest.steps("ab");
    guest.ctl_while_it_allocates(&["threshold", "1K"]);
    assert!(guest.ctl(&["status"]).stdout.contains("stacks of requests of at least 1024 bytes"));
    guest.steps("ab");
    guest.ctl_while_it_allocates(&["threshold", "--below", "1K"]);
    assert!(guest.ctl(&["status"]).stdout.contains("stacks of requests below 1024 bytes"));
    guest.steps("aab");
    guest.ctl_while_it_allocates(&["threshold", "0"]);
    assert!(guest.ctl(&["status"]).stdout.contains("stacks of all requests"));
    guest.steps("ab");
    let report = guest.end();
    assert_eq!((allocations(&report, "small"), allocations(&report, "large")), (40, 15));
}

#[test]
fn figures_since_a_reset() {
    let mut guest = Steps::named("ctl-reset", &[]);
    guest.steps("aab");
    guest.ctl_while_it_allocates(&["reset"]);
    let touched = allocations(&guest.report(&[]), "touch");
    guest.steps("abf");
    guest.finish();
    let since = guest.report(&[]);
    let of = |report: &Value, function: &str, measure: &str| {
        evaluate(report, &format!("function:{function}"), measure)
    };
    assert_eq!(of(&since, "touch", "allocations"), touched);
    assert_eq!(of(&since, "small", "allocations"), 10);
    assert_eq!(of(&since, "small", "frees"), 30);
    assert_eq!(of(&since, "small", "requested_bytes"), 1000);
    assert_eq!(of(&since, "small", "live_blocks"), 0);
    assert_eq!(of(&since, "small", "at_peak_blocks"), 30);
    assert_eq!(of(&since, "large", "allocations"), 5);
    assert_eq!(of(&since, "large", "largest_bytes"), 5000);
    let histogram = |report: &Value| -> i128 {
        let classes = list(&list(report, "processes")[0], "histogram");
        classes
            .iter()
            .filter(|c| number(c, "size_max") == 127)
            .map(|c| number(c, "requested"))
            .sum()
    };
    assert_eq!(histogram(&since), 10);
    let whole = guest.report(&["--from-start"]);
    assert_eq!(of(&whole, "small", "allocations"), 30);
    assert_eq!(of(&whole, "large", "allocations"), 10);
    assert_eq!(histogram(&whole), 30);
    let page = run(heaptide().arg("report").arg(&guest.recording), &guest.place).stdout;
    assert!(page.contains("  counts   since the reset at "), "{page}");
    // Without the baseline nothing can be subtracted, which is reported.
    let baseline = guest.recording.join(format!("{}-0.baseline", guest.pid()));
    fs::write(&baseline, "garbage").expect("damage the baseline");
    assert_eq!(of(&guest.report(&[]), "small", "allocations"), 30);
    let page = run(heaptide().arg("info").arg(&guest.recording), &guest.place).stdout;
    assert!(page.contains("counts are from the start"), "{page}");
}

#[test]
fn the_peak_from_the_start_is_the_highest_of_the_run() {
    for mode in ["stacks", "scopes", "counters", "trace"] {
        let mut guest = Steps::named("ctl-reset-peak", &["--mode", mode]);
        guest.steps("bbaf");
        guest.ctl_while_it_allocates(&["reset"]);
        guest.steps("ab");
        let peaks = |options: &[&str], guest: &Steps| {
            let report = guest.report(options);
            let process = &list(&report, "processes")[0];
            let bound = number(&process["totals"], "peak_bound_bytes");
            let at_peak = ["small", "large"].map(|function| {
                let of = format!("function:{function}");
                if mode == "scopes" || mode == "counters" {
                    return 0;
                }
                evaluate(&report, &of, "at_peak_blocks")
            });
            (number(&process["totals"], "peak_bytes"), bound, at_peak)
        };
        let has_stacks = mode == "stacks" || mode == "trace";
        let blocks = |known: [i128; 2]| if has_stacks { known } else { [0, 0] };
        // 40 blocks of 5,000 bytes less.
        let since = peaks(&[], &guest);
        let whole = peaks(&["--from-start"], &guest);
        assert_eq!((since.1, since.2), (0, blocks([10, 5])), "{mode}");
        assert_eq!((whole.1, whole.2), (0, blocks([10, 10])), "{mode}");
        let five = whole.0 - since.0;
        assert!((5 * 5_000..5 * 5_100).contains(&five), "{mode}: {five}");
        // What was live at a peak before an earlier reset is unknown.
        guest.ctl_while_it_allocates(&["reset"]);
        guest.steps("a");
        guest.finish();
        let later = peaks(&["--from-start"], &guest);
        assert_eq!(later.2, blocks([20, 5]), "{mode}");
        assert_eq!(later.0 + later.1, whole.0, "{mode}");
        let page =
            run(heaptide().args(["info", "--from-start"]).arg(&guest.recording), &guest.place);
        assert!(page.stdout.contains("(the peak was before an earlier reset)"), "{}", page.stdout);
    }
}

#[test]
fn counters_since_a_reset() {
    for mode in ["counters", "scopes"] {
        let mut guest = Steps::named("ctl-reset-counters", &["--mode", mode]);
        guest.steps("aab");
        guest.ctl_while_it_allocates(&["reset"]);
        guest.steps("ab");
        let counted = |options: &[&str], guest: &Steps| {
            let report = guest.report(options);
            let process = &list(&report, "processes")[0];
            let classes = list(process, "histogram").iter();
            let small: i128 = classes
                .filter(|c| number(c, "size_max") == 127)
                .map(|c| number(c, "requested"))
                .sum();
            (small, number(&process["totals"], "live_blocks"))
        };
        assert_eq!(counted(&[], &guest), (10, 40), "{mode}");
        assert_eq!(counted(&["--from-start"], &guest), (30, 40), "{mode}");
        guest.steps("f");
        guest.finish();
        assert_eq!(counted(&[], &guest), (10, 0), "{mode}");
        assert_eq!(counted(&["--from-start"], &guest), (30, 0), "{mode}");
    }
}

#[test]
fn scopes_since_a_reset() {
    for mode in ["stacks", "scopes"] {
        let mut guest = Steps::named("ctl-reset-scopes", &["--mode", mode]);
        guest.steps("aww");
        guest.ctl_while_it_allocates(&["reset"]);
        guest.steps("www");
        guest.finish();
        let counted = |options: &[&str]| {
            let report = guest.report(options);
            let scopes = list(&list(&report, "processes")[0], "scopes").to_vec();
            let work = scopes.iter().find(|s| s["value"] == "work").expect("the scope");
            ["entered", "allocations", "frees_here", "live_blocks"].map(|m| number(work, m))
        };
        // The first call of `work` frees a block of `small`, each later one the block of the
        // previous call.
        assert_eq!(counted(&[]), [3, 3, 3, 1], "{mode}");
        assert_eq!(counted(&["--from-start"]), [5, 5, 5, 1], "{mode}");
    }
}

#[test]
fn a_monitor_of_ones_own() {
    let place = scratch("ctl-monitor");
    let monitor = place.join("libctl_monitor.so");
    let source = crate::harness::programs().join("ctl_monitor.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&monitor).arg(source);
    assert!(compiler.status().expect("cc").success());
    let out = place.join("counted");
    let option = format!("{}:{}", monitor.display(), out.display());
    let mut guest = Steps::named("ctl-monitor-run", &["--monitor", &option]);
    guest.steps("aabaf");
    guest.finish();
    let counted = fs::read_to_string(out).expect("what the monitor wrote");
    assert_eq!(counted, "allocated 30 freed 30\n");
    // Preloaded manually, before the recorder or after it.
    let (recorder, monitor_first) = (library(), monitor.display().to_string());
    let recorder = recorder.display();
    let orders = [format!("{monitor_first}:{recorder}"), format!("{recorder}:{monitor_first}")];
    for (n, order) in orders.iter().enumerate() {
        let out = place.join(format!("counted-{n}"));
        let named = format!("libother.so:x;libctl_monitor.so:{}", out.display());
        let variables = [("LD_PRELOAD", order.as_str()), ("HEAPTIDE_MONITORS", &named)];
        let mut guest = Steps::preload(&scratch(&format!("ctl-monitor-{n}")), &variables);
        guest.steps("aaf");
        guest.finish();
        assert_eq!(fs::read_to_string(out).expect("its counts"), "allocated 20 freed 20\n");
        assert_eq!(allocations(&guest.report(&[]), "small"), 20);
    }
    // Without the recorder the library has no effect.
    let mut command = clean(Command::new("true"));
    let outcome = run(command.env("LD_PRELOAD", &monitor), &place);
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));
}

#[test]
fn bad_values_are_one_line() {
    let place = scratch("ctl-bad-values");
    fs::write(place.join("text.so"), "no library").expect("a file");
    fs::create_dir(place.join("a b")).expect("a directory");
    fs::copy(library(), place.join("a b/lib.so")).expect("a library");
    fs::copy(library(), place.join("lib.so")).expect("a library");
    for (options, says) in [
        (vec!["--monitor", "none.so"], "no such file"),
        (vec!["--monitor", "text.so:x"], "not a 64-bit ELF shared object"),
        (vec!["--monitor", "/bin/sh"], "an executable"),
        (vec!["--monitor", "a b/lib.so"], "contains a space, colon, semicolon or dollar"),
        (vec!["--monitor", "lib.so:a;b"], "semicolon"),
        (
            vec!["--monitor", "lib.so", "--monitor", "./lib.so"],
            "another monitor has this file name",
        ),
    ] {
        let mut command = recorded(&place.join("a.heaptide"), &options);
        let outcome = run(command.arg("true").current_dir(&place), &place);
        assert_refused(&outcome, says);
        assert!(!place.join("a.heaptide").exists(), "{options:?} left a recording");
    }
    let options = ["--mode", "counters", "--stacks-below", "1K"];
    let outcome = run(recorded(&place.join("a.heaptide"), &options).arg("true"), &place);
    assert_refused(&outcome, "require --mode stacks");
    for option in ["--snapshot-every=10x", "--snapshot-on=KILL", "--stacks-from=1X"] {
        let outcome = run(recorded(&place.join("a.heaptide"), &[option]).arg("true"), &place);
        assert_eq!(outcome.status, 2, "{option}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("expected") || outcome.stderr.contains("choose"));
    }
}

#[test]
fn who_cannot_be_steered() {
    let mut guest = Steps::named("ctl-not-there", &[]);
    guest.steps("a");
    let pid = guest.pid();
    guest.finish();
    let place = guest.place.clone();
    assert_refused(&guest.ctl(&["off"]), "no process is recording into it any more");
    assert_refused(&run(heaptide().args(["ctl", &pid, "off"]), &place), "no such process");
    let own = std::process::id().to_string();
    assert_refused(&run(heaptide().args(["ctl", &own, "off"]), &place), "not being recorded");
    assert_refused(&run(heaptide().args(["ctl", "none.heaptide", "off"]), &place), "no such");
}

#[test]
fn damaged_snapshots_are_told() {
    let mut guest = Steps::named("ctl-damaged", &[]);
    guest.steps("a");
    assert_eq!(guest.ctl(&["snapshot"]).status, 0);
    guest.finish();
    let file = guest.recording.join(format!("{}-0.1.snapshot", guest.pid()));
    let whole = fs::read(&file).expect("the snapshot");
    for bytes in [&b""[..], b"garbage, and more than eight bytes of it", &whole[..40]] {
        fs::write(&file, bytes).expect("damage the snapshot");
        let mut command = heaptide();
        command.args(["report", "--snapshot=1"]).arg(&guest.recording);
        assert_refused(&run(&mut command, &guest.place), "snapshot");
        let info = run(heaptide().arg("info").arg(&guest.recording), &guest.place);
        assert_eq!(info.status, 0, "{}", info.stderr);
        assert!(info.stdout.contains("1  unreadable: "), "{}", info.stdout);
    }
}

/// The crate of the SDK with everything that its features need, because cargo reads the manifest of
/// each member.
#[test]
fn crate_of_the_sdk_has_its_features() {
    let place = scratch("sdk-crate");
    let written = run(heaptide().args(["sdk", "it"]).current_dir(&place), &place);
    assert_eq!(written.status, 0, "{}", written.stderr);
    let manifest = "[package]\nname = \"user\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
                    [dependencies.heaptide]\npath = \"../it/share/heaptide/crates/heaptide\"\n\
                    features = [\"attribute\", \"criterion\", \"recorder\", \"tracing\"]\n\
                    [workspace]\n";
    let user = place.join("user");
    fs::create_dir_all(user.join("src")).expect("directories");
    fs::write(user.join("Cargo.toml"), manifest).expect("a manifest");
    fs::write(user.join("src/lib.rs"), "").expect("a source");
    let mut cargo = Command::new(env!("CARGO"));
    // Crates of other systems may not have been downloaded.
    let system = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    cargo.args(["metadata", "--offline", "--format-version", "1", "--filter-platform", &system]);
    cargo.current_dir(&user);
    let metadata = cargo.output().expect("cargo");
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata = String::from_utf8(metadata.stdout).expect("UTF-8");
    assert!(metadata.contains("heaptide-recorder"), "{metadata}");
}

#[test]
fn built_with_the_sdk() {
    let place = scratch("sdk");
    let sdk = |words: &[&str]| run(heaptide().arg("sdk").args(words).current_dir(&place), &place);
    assert!(sdk(&[]).stdout.contains("DIR/lib/libheaptide.so\n"));
    assert_eq!(sdk(&["it"]).status, 0);
    assert_eq!(sdk(&["it"]).status, 0, "what is ours can be written again");
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "heaptide"])
        .env("PKG_CONFIG_PATH", place.join("it/lib/pkgconfig"))
        .output();
    let Some(flags) = flags.ok().filter(|output| output.status.success()) else {
        return heaptide_fixtures::skips::skip("pkg-config");
    };
    let flags = String::from_utf8(flags.stdout).expect("UTF-8");
    let source = crate::harness::programs().join("leaks.c");
    // The library is before or after the program on the command line.
    for order in [0, 1] {
        let program = place.join(format!("program-{order}"));
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-g", "-fno-builtin", "-o"]).arg(&program);
        let mut words = vec![source.to_str().expect("UTF-8")];
        words.splice(order..order, flags.split_whitespace());
        assert!(compiler.args(words).status().expect("cc").success());
        let recording = place.join(format!("{order}.heaptide"));
        let mut command = clean(Command::new(&program));
        let bare = run(command.env("HEAPTIDE_MODE", "off").current_dir(&place), &place);
        assert_eq!(bare.status, 0);
        let mut command = clean(Command::new(&program));
        run(command.env("HEAPTIDE_OUTPUT", &recording).current_dir(&place), &place);
        assert!(evaluate(&read(&recording, &[], &place), "totals", "allocations") > 0);
    }
    fs::write(place.join("it/include/heaptide.h"), "my own").expect("change a file");
    assert_refused(&sdk(&["it"]), "it/include/heaptide.h: exists and was not written");
    assert_eq!(fs::read_to_string(place.join("it/include/heaptide.h")).expect("it"), "my own");
}
