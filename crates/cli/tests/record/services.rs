//! Services that run for months: snapshots on events, rings of snapshots, and limits that do not
//! affect the program. Programs wait for each step, so that the contents of snapshots are known.

use crate::expectations::evaluate;
use crate::harness::{
    Clock, Guest, Outcome, clean, heaptide, library, preloaded, profiles, recorded, report,
    report_of_kind, run, scratch, until,
};
use crate::recording::{list, number};
use crate::steps::{Steps, read};
use heaptide_analysis::model::Recording;
use heaptide_analysis::trace::{Operation, Unpaired};
use heaptide_fixtures::skips::{CGROUPS, skip};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, os::unix::process::ExitStatusExt};

fn program() -> PathBuf {
    Guest::read("service_steps.c").build("service_steps.c", &[])
}

/// Starts `service_steps.c` with `heaptide run OPTIONS`.
fn service(name: &str, options: &[&str]) -> Steps {
    let place = scratch(name);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, options);
    command.arg(program());
    Steps::spawn(command, recording, place)
}

/// Starts it with the library preloaded.
fn preloaded_service(place: &Path) -> Steps {
    let recording = place.join("a.heaptide");
    let mut command = clean(Command::new(program()));
    command.env("LD_PRELOAD", library()).env("HEAPTIDE_OUTPUT", &recording);
    Steps::spawn(command, recording, place.to_owned())
}

/// Returns the number of blocks of 1 MiB allocated in a recording, or a snapshot of it.
fn grown(recording: &Path, snapshot: &str, place: &Path) -> i128 {
    let report = match snapshot {
        "" => read(recording, &[], place),
        snapshot => read(recording, &["--snapshot", snapshot], place),
    };
    evaluate(&report, "function:grows", "allocations")
}

/// Returns the numbers of the existing snapshots of a process image.
fn numbers(recording: &Path, image: &str) -> Vec<u32> {
    let names = fs::read_dir(recording).expect("the recording").flatten();
    let number = |name: String| {
        let rest = name.strip_prefix(image)?.strip_prefix('.')?.strip_suffix(".snapshot")?;
        rest.parse().ok()
    };
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut numbers: Vec<u32> = names.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

fn image(steps: &Steps) -> String {
    format!("{}-0", steps.pid())
}

/// Waits for a snapshot of a program's first image.
fn wait_for(steps: &Steps, number: u32) {
    let file = steps.recording.join(format!("{}.{number}.snapshot", image(steps)));
    until("a snapshot", || file.exists());
}

fn info(recording: &Path, place: &Path) -> String {
    let outcome = run(heaptide().arg("info").arg(recording), place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    outcome.stdout
}

fn send(signal: &str, pid: u32) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill");
    assert!(sent.success(), "kill {signal} {pid}");
}

#[test]
fn a_snapshot_when_live_bytes_reach_a_limit() {
    let mut guest = service("when-live", &["--snapshot-when", "live=4M"]);
    guest.steps("mmmm");
    wait_for(&guest, 1);
    guest.steps("mmm");
    // A quarter more than 4 MiB was live at the fifth or the sixth block, depending on when the
    // command polled.
    until("a second snapshot", || numbers(&guest.recording, &image(&guest)).len() >= 2);
    let (recording, place) = (guest.recording.clone(), guest.place.clone());
    guest.finish();
    assert_eq!(grown(&recording, "1", &place), 4);
    assert!((5..=7).contains(&grown(&recording, "2", &place)));
    let info = info(&recording, &place);
    assert!(info.contains("  live=4M\n"), "{info}");
    let last = grown(&recording, "live=4M", &place);
    assert!(last >= grown(&recording, "2", &place), "the last of that name");
}

#[test]
fn a_snapshot_when_resident_memory_reaches_a_limit() {
    let mut guest = service("when-resident", &["--snapshot-when", "resident=64M"]);
    guest.steps(&"m".repeat(63));
    guest.steps("m");
    wait_for(&guest, 1);
    let (recording, place) = (guest.recording.clone(), guest.place.clone());
    guest.finish();
    // Code, stacks and the recorder's own tables take the rest.
    let blocks = grown(&recording, "1", &place);
    assert!((40..=64).contains(&blocks), "{blocks} MiB of blocks of 64 MiB");
}

#[test]
fn a_snapshot_when_live_bytes_have_grown() {
    let options = ["--snapshot-when", "signal=USR2", "--snapshot-when", "growth=8M/1h"];
    let mut guest = service("when-growth", &options);
    guest.steps("m");
    let mut blocks = 1;
    until("a snapshot of growth", || {
        guest.steps("m");
        blocks += 1;
        !numbers(&guest.recording, &image(&guest)).is_empty()
    });
    let (recording, place) = (guest.recording.clone(), guest.place.clone());
    guest.finish();
    let at = grown(&recording, "growth=8M/1h", &place);
    assert!((8..=blocks).contains(&at), "{at} of {blocks} MiB");
}

/// The signal would end the program, but the command consumes it.
#[test]
fn a_snapshot_at_a_signal_to_the_command() {
    let mut guest = service("when-signal", &["--snapshot-when", "signal=USR2"]);
    guest.steps("mm");
    send("-USR2", guest.child.id());
    wait_for(&guest, 1);
    guest.steps("m");
    let (recording, place) = (guest.recording.clone(), guest.place.clone());
    guest.finish();
    assert_eq!((grown(&recording, "1", &place), grown(&recording, "", &place)), (2, 3));
    assert_eq!(grown(&recording, "signal=USR2", &place), 2);
}

#[test]
fn the_last_state_of_programs_that_fail_is_kept() {
    for (letters, status) in [("mmx", 3 << 8), ("mmk", 137 << 8), ("mmq", 0)] {
        let mut guest = service("when-failure", &["--snapshot-when", "failure"]);
        guest.steps(&letters[..2]);
        guest.tell(&letters[2..]);
        let ended = guest.child.wait().expect("wait for heaptide").into_raw();
        assert_eq!(ended, status, "{letters}");
        let (recording, place, image) = (&guest.recording, &guest.place, image(&guest));
        if status == 0 {
            assert_eq!(numbers(recording, &image), [0; 0]);
        } else {
            assert_eq!(grown(recording, "failure", place), 2, "{letters}");
        }
    }
}

#[test]
fn children_that_fail_are_kept_and_others_not() {
    let mut guest = service("when-children-fail", &["--snapshot-when", "failure"]);
    guest.steps("m");
    for child in ["cmk", "cmq", "cmmx"] {
        guest.tell("c");
        guest.steps(&child[1..child.len() - 1]);
        guest.tell(&child[child.len() - 1..]);
        guest.answer('c'); // of the parent: the child has ended
    }
    guest.steps("m");
    let (recording, place) = (guest.recording.clone(), guest.place.clone());
    guest.finish();
    let report = read(&recording, &["--snapshot", "failure"], &place);
    let mut blocks: Vec<i128> = list(&report, "processes")
        .iter()
        .map(|process| number(&process["totals"], "live_blocks"))
        .collect();
    blocks.sort_unstable();
    assert_eq!(blocks, [1, 2], "of the child that was killed, and of that with status 3");
}

#[test]
fn a_ring_keeps_the_newest_and_what_somebody_asked_for() {
    let options = ["--snapshot-when", "signal=USR2", "--keep-snapshots", "2"];
    let mut guest = service("ring-count", &options);
    for number in 1..=3 {
        guest.steps("m");
        send("-USR2", guest.child.id());
        wait_for(&guest, number);
    }
    assert_eq!(guest.ctl(&["snapshot", "by hand"]).status, 0);
    for number in 5..=6 {
        guest.steps("m");
        send("-USR2", guest.child.id());
        wait_for(&guest, number);
    }
    let image = image(&guest);
    until("the ring", || numbers(&guest.recording, &image) == [4, 5, 6]);
    let (recording, place) = (guest.recording.clone(), guest.place.clone());
    guest.finish();
    assert_eq!(grown(&recording, "by hand", &place), 3);
    assert_eq!(grown(&recording, "5", &place), 4);
    let removed = "removed: 3 snapshots (";
    let info = info(&recording, &place);
    assert!(info.contains(removed), "{info}");
    let report = run(heaptide().arg("report").arg(&recording), &place).stdout;
    assert!(report.contains(removed), "{report}");
    assert_eq!(number(&read(&recording, &[], &place)["removed"], "snapshots"), 3);
    let missing = run(heaptide().args(["report", "--snapshot=1"]).arg(&recording), &place);
    assert!(missing.stderr.contains("no snapshot 1; available: 4, 5, 6"), "{missing:?}");
    let again = run(recorded(&recording, &["--force"]).arg("true"), &place);
    assert_eq!(again.status, 0, "what counts them belongs to the recording: {}", again.stderr);
}

#[test]
fn a_ring_of_an_interval_stays_small() {
    let place = scratch("ring-interval");
    let clock = Clock::new(&place);
    let options = ["--snapshot-every", "1h", "--keep-snapshots", "3"];
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &options);
    clock.set(command.arg(program()));
    let mut guest = Steps::spawn(command, recording.clone(), place);
    guest.steps("mm");
    let image = image(&guest);
    until("nine snapshots", || {
        clock.pass(Duration::from_secs(3600));
        guest.steps("md");
        numbers(&recording, &image).last() >= Some(&9)
    });
    guest.finish();
    let left = numbers(&recording, &image);
    assert!(left.len() == 3 && left[0] > 6, "{left:?}");
}

/// The same for a program that was started without the command, and removes its own snapshots.
#[test]
fn a_ring_of_an_interval_by_variables() {
    let place = scratch("ring-variables");
    let clock = Clock::new(&place);
    let clock_file = place.join("clock").display().to_string();
    let variables = [
        ("HEAPTIDE_SNAPSHOT_EVERY", "3600"),
        ("HEAPTIDE_KEEP_SNAPSHOTS", "2"),
        ("HEAPTIDE_CLOCK", &clock_file),
    ];
    let mut guest = Steps::preload(&place, &variables);
    guest.steps("t");
    let (recording, image) = (guest.recording.clone(), image(&guest));
    let take = |guest: &mut Steps, numbers_left: &[u32]| {
        clock.pass(Duration::from_secs(3600));
        guest.steps("t"); // takes it
        assert_eq!(numbers(&recording, &image), numbers_left);
    };
    for left in [&[1][..], &[1, 2], &[2, 3], &[3, 4], &[4, 5]] {
        take(&mut guest, left);
    }
    assert_eq!(guest.ctl(&["snapshot"]).status, 0);
    let by_hand = 6;
    for left in [[5, 6, 7], [6, 7, 8], [6, 8, 9]] {
        take(&mut guest, &left);
    }
    let report = guest.end();
    let left = numbers(&recording, &image);
    assert_eq!(left, [by_hand, 8, 9]);
    assert_eq!(number(&report["removed"], "snapshots"), 6, "all others");
    // The ring of `heaptide watch` recognizes snapshots that the program took at an interval.
    let watch = watch(recording.to_str().expect("a path"), &["--keep-snapshots", "1"], &place);
    until("the ring", || numbers(&recording, &image) == [by_hand, left[2]]);
    end_watch(watch);
}

/// Starts `heaptide watch` on a program that is already recorded.
fn watch(target: &str, options: &[&str], place: &Path) -> Child {
    begin(&[&["watch", target], options].concat(), "heaptide: watching ", place)
}

/// Starts a command, and waits for its first message.
fn begin(words: &[&str], says: &str, place: &Path) -> Child {
    let mut command = heaptide();
    command.args(words).current_dir(place).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().expect("heaptide watch");
    let mut first = String::new();
    let errors = child.stderr.as_mut().expect("its messages");
    std::io::BufRead::read_line(&mut std::io::BufReader::with_capacity(1, errors), &mut first)
        .expect("its first line");
    assert!(first.starts_with(says), "{first}");
    child
}

fn end_watch(mut child: Child) -> String {
    send("-TERM", child.id());
    let mut rest = String::new();
    let errors = child.stderr.as_mut().expect("its messages");
    std::io::Read::read_to_string(errors, &mut rest).expect("its messages");
    assert_eq!(child.wait().expect("wait for heaptide watch").into_raw(), 0, "{rest}");
    rest
}

/// Programs that were started without the command, and one that is restarted meanwhile.
#[test]
fn a_recording_is_watched_across_restarts() {
    let place = scratch("watch-restarts");
    let mut first = preloaded_service(&place);
    first.steps("m");
    let recording = first.recording.clone();
    let options = ["--snapshot-when", "live=3M", "--keep-snapshots", "1"];
    let command = watch(recording.to_str().expect("a path"), &options, &place);
    first.steps("mm");
    wait_for(&first, 1);
    let first_image = image(&first);
    first.finish();
    let mut second = preloaded_service(&place);
    second.steps("mmmm");
    let found = || {
        let all = profiles(&recording);
        let names = all.iter().map(|p| p.file_stem().expect("a name").to_string_lossy());
        let mut others = names.filter(|name| *name != first_image);
        others.next().is_some_and(|image| !numbers(&recording, &image).is_empty())
    };
    until("a snapshot of the second program", found);
    second.finish();
    let says = end_watch(command);
    assert!(says.contains("a.heaptide: 2 snapshots taken\n"), "{says}");
    let report = read(&recording, &["--snapshot", "live=3M"], &place);
    let mut blocks: Vec<i128> = list(&report, "processes")
        .iter()
        .map(|process| number(&process["totals"], "live_blocks"))
        .collect();
    blocks.sort_unstable();
    assert_eq!(blocks.len(), 2, "{blocks:?}");
    assert!(blocks.iter().all(|blocks| (3..=4).contains(blocks)), "{blocks:?}");
}

/// Programs that failed before a command began to watch are ignored.
#[test]
fn only_what_fails_meanwhile_is_kept() {
    let place = scratch("watch-failure");
    let fail = || {
        let mut guest = preloaded_service(&place);
        guest.steps("m");
        guest.tell("x");
        assert_eq!(guest.child.wait().expect("its end").into_raw(), 3 << 8);
        guest.recording.clone()
    };
    let recording = fail();
    let target = recording.to_str().expect("a path");
    let all = || fs::read_dir(&recording).expect("the recording").flatten();
    let snapshots = || {
        let is_one = |name: &String| name.ends_with(".snapshot");
        all().filter_map(|entry| entry.file_name().into_string().ok()).filter(is_one).count()
    };
    let mut running = preloaded_service(&place);
    running.steps("m");
    let command = watch(target, &["--snapshot-when=failure", "--snapshot-when=live=1M"], &place);
    wait_for_any(&recording, "live=1M", &place);
    fail();
    until("what failed", || snapshots() >= 2);
    running.finish();
    let says = end_watch(command);
    let report = read(&recording, &["--snapshot", "failure"], &place);
    assert_eq!(list(&report, "processes").len(), 1, "{says}");
}

/// Waits for a snapshot with a name.
fn wait_for_any(recording: &Path, name: &str, place: &Path) {
    let reads = || {
        let mut command = heaptide();
        run(command.args(["report", "--snapshot", name]).arg(recording), place).status == 0
    };
    until(name, reads);
}

#[test]
fn a_process_is_watched_until_it_ends() {
    let place = scratch("watch-process");
    let mut guest = preloaded_service(&place);
    guest.steps("m");
    let mut command = watch(&guest.pid(), &["--snapshot-when", "live=2M"], &place);
    guest.steps("m");
    wait_for(&guest, 1);
    guest.finish();
    assert_eq!(command.wait().expect("wait for heaptide watch").into_raw(), 0);
    assert_eq!(grown(&guest.recording, "1", &place), 2);
}

#[test]
fn a_command_that_attaches_takes_snapshots() {
    let place = scratch("attach-when");
    let recording = place.join("a.heaptide");
    let command = clean(Command::new(program()));
    let mut guest = Steps::spawn(command, recording.clone(), place.clone());
    guest.steps("m");
    let pid = guest.child.id();
    let options = ["--snapshot-when", "live=3M", "--snapshot-when", "signal=USR1"];
    let shown = pid.to_string();
    let words = [&["attach", "-o", "a.heaptide", &*shown], &options[..]].concat();
    let command = begin(&words, "heaptide: recording process ", &place);
    guest.steps("mmm");
    let image = format!("{pid}-0");
    until("a snapshot", || numbers(&recording, &image) == [1]);
    guest.steps("d");
    send("-USR1", command.id());
    until("a snapshot", || numbers(&recording, &image) == [1, 2]);
    end_watch(command);
    guest.steps("m");
    guest.finish();
    let live = |snapshot: &str| {
        let report = read(&recording, &["--snapshot", snapshot], &place);
        evaluate(&report, "function:grows", "live_blocks")
    };
    assert_eq!((live("live=3M"), live("signal=USR1")), (3, 2));
    let refused = run(heaptide().args(&words).arg("--background"), &place);
    assert_eq!(refused.status, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("use `heaptide watch`"), "{}", refused.stderr);
}

#[test]
fn a_watch_without_anything_to_do_is_an_error() {
    let place = scratch("watch-errors");
    let of = |words: &[&str]| run(heaptide().arg("watch").args(words).current_dir(&place), &place);
    fs::create_dir(place.join("empty")).expect("a directory");
    for (words, says) in [
        (&["empty"][..], "nothing to do; expected --snapshot-when"),
        (&["missing", "--snapshot-when=oom"], "missing: cannot watch it: "),
        (&["4294967295", "--snapshot-when=oom"], "4294967295: no such process, and no recording"),
        (&["empty", "--snapshot-when=peak=1M"], "expected live=BYTES, resident=BYTES, growth="),
        (&["empty", "--keep-snapshots=0"], "0"),
    ] {
        let Outcome { status, stderr, .. } = of(words);
        assert_eq!(status, 2, "{words:?}: {stderr}");
        assert!(stderr.contains(says), "{words:?}: {stderr}");
    }
}

/// A control group with a memory limit, removed when this is dropped.
struct Group(PathBuf);

impl Group {
    /// None if it cannot be created.
    fn new(limit: u64) -> Option<Group> {
        let name = format!("heaptide-test-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        for (place, file) in [
            (root.join(&name), "memory.max"),
            (root.join("memory").join(&name), "memory.limit_in_bytes"),
        ] {
            if fs::create_dir(&place).is_err() {
                continue;
            }
            let group = Group(place);
            if group.0.join("cgroup.procs").exists()
                && fs::write(group.0.join(file), limit.to_string()).is_ok()
            {
                return Some(group);
            }
        }
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_snapshot_before_memory_of_a_control_group_is_exhausted() {
    let Some(group) = Group::new(96 << 20) else { return skip(CGROUPS) };
    let place = scratch("when-oom");
    let recording = place.join("a.heaptide");
    let mut command = clean(Command::new("sh"));
    let script = "echo $$ > \"$1\" && export LD_PRELOAD=\"$2\" && exec \"$3\"";
    command.args(["-c", script, "sh"]).arg(group.0.join("cgroup.procs"));
    command.arg(library()).arg(program()).env("HEAPTIDE_OUTPUT", &recording);
    let mut guest = Steps::spawn(command, recording, place.clone());
    guest.steps("m");
    let target = guest.recording.to_str().expect("a path").to_owned();
    let command = watch(&target, &["--snapshot-when", "oom"], &place);
    guest.steps(&"m".repeat(49));
    assert_eq!(numbers(&guest.recording, &image(&guest)), [0; 0], "half of the limit");
    guest.steps(&"m".repeat(40));
    wait_for(&guest, 1);
    let recording = guest.recording.clone();
    guest.finish();
    assert!(end_watch(command).contains("1 snapshot taken"));
    let blocks = grown(&recording, "oom", &place);
    assert!((75..=90).contains(&blocks), "{blocks} MiB of blocks at nine tenths of 96 MiB");
}

/// A service that forks a child for each request: profiles of old children are removed, and the
/// sums stay complete.
#[test]
fn ended_children_make_room() {
    let sums = |name: &str, options: &[&str]| {
        let mut guest = service(name, options);
        guest.steps("m");
        for _ in 0..40 {
            guest.tell("c");
            guest.steps("mmd");
            guest.tell("q");
            guest.answer('c');
        }
        let (recording, place) = (guest.recording.clone(), guest.place.clone());
        guest.finish();
        let report = read(&recording, &[], &place);
        let processes = list(&report, "processes").to_vec();
        let sum = |metric: &str| {
            let left: i128 = processes.iter().map(|p| number(&p["totals"], metric)).sum();
            left + number(&report["removed"], metric)
        };
        let images = processes.len() as i128 + number(&report["removed"], "images");
        let metrics = ["allocations", "frees", "requested_bytes", "live_bytes"];
        let said = |words: &[&str]| run(heaptide().args(words).arg(&recording), &place).stdout;
        let others = [said(&["leaks"]), said(&["check", "--max", "peak=1G"])];
        ((images, metrics.map(sum)), processes.len(), (info(&recording, &place), others))
    };
    let (all, left, (info, _)) = sums("room-none", &[]);
    assert_eq!((all.0, left), (41, 41));
    assert!(!info.contains("removed"), "{info}");
    let (same, left, (info, [leaks, check])) = sums("room", &["--max-recording", "1M"]);
    assert_eq!(same, all);
    assert!((2..41).contains(&left), "{left} of 41 are left");
    assert!(info.contains("to keep to the limit of the recording"), "{info}");
    let removed = format!("{} ended process images no longer in the recording", 41 - left);
    assert!(leaks.contains(&removed) && leaks.contains("leaks are not listed"), "{leaks}");
    assert!(check.contains(&removed) && check.contains("not checked"), "{check}");
}

/// The newest events of a program are kept, and add up to the counters minus what is reported for
/// the earlier time.
#[test]
fn the_newest_events_of_a_trace_are_kept() {
    const TIMES: u64 = 200_000;
    let place = scratch("keep-trace");
    let program = Guest::read("service_grows.c").build("service_grows.c", &["-pthread", "-ldl"]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &["--mode", "trace", "--keep-trace-size", "1M"]);
    let outcome = run(command.arg(&program).args(["random", &TIMES.to_string()]), &place);
    assert_eq!(outcome.status, 4, "{}", outcome.stderr);
    let size = fs::metadata(profiles(&recording)[0].with_extension("trace")).expect("it").len();
    assert!((100_000..(1 << 20) + (256 << 10)).contains(&size), "{size} bytes");
    let read = Recording::open(&recording).expect("the recording");
    let process = &read.processes[0];
    let totals = &process.totals;
    let mut replay = process.replay().expect("a trace");
    let before = replay.before().next().expect("what was before");
    let (mut allocated, mut freed, mut unknown, mut live) = (0, 0, 0, before.live_bytes);
    for event in &mut replay {
        let change = i128::from(event.usable);
        let expected = match event.operation {
            Operation::Allocate => {
                allocated += 1;
                i128::from(live) + change
            }
            Operation::Free => {
                freed += 1;
                unknown += u64::from(event.allocated_number == 0);
                i128::from(live) - change
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(i128::from(event.live_bytes), expected, "event {}", event.number);
        assert!(event.time_ns > before.begin_ns);
        live = event.live_bytes;
    }
    assert_eq!(before.allocations + allocated, totals.allocations);
    assert_eq!(before.frees + freed, totals.frees);
    assert_eq!((live, totals.allocations >= 2 * TIMES), (totals.live_bytes, true));
    assert!(allocated > 10_000 && before.allocations > 10_000, "{allocated} are kept");
    assert!((1..=20).contains(&unknown), "{unknown} blocks were there when it begins");
    assert_eq!(replay.unpaired(), Unpaired::default());
    let info = info(&recording, &place);
    assert!(info.contains("older events were dropped ("), "{info}");
    let query = "SELECT count() AS n WHERE freed_ns FROM lifetimes FORMAT json";
    let rows = run(heaptide().args(["query", query]).arg(&recording), &place);
    assert!(rows.stderr.contains("the trace begins at "), "{}", rows.stderr);
    let rows: Value = serde_json::from_str(&rows.stdout).expect("JSON");
    assert_eq!(rows[0]["n"], freed, "a row for each block that was freed");
}

/// 65 536 stacks and a profile with room for a few thousand: each allocation is counted, with its
/// stack or in a function that stands for those without.
#[test]
fn a_limit_of_the_profile() {
    let place = scratch("limit-profile");
    let program = Guest::read("hungry.c").build("hungry.c", &[]);
    let bare = run(clean(Command::new(&program)).current_dir(&place), &place);
    let recording = place.join("a.heaptide");
    let mut command = heaptide();
    command.args(["run", "--max-profile", "1M", "-o"]).arg(&recording).arg("--").arg(&program);
    let outcome = run(clean(command).current_dir(&place), &place);
    assert_eq!((bare.status, &bare.stdout), (outcome.status, &outcome.stdout));
    let says = |line: &&str| line.contains("the profile reached its limit of 1.00 MiB");
    assert_eq!(outcome.stderr.lines().filter(says).count(), 1, "{}", outcome.stderr);
    let missing = outcome.stderr.lines().filter(|line| line.contains("  missing  "));
    assert_eq!(missing.count(), 1, "one line is about all of it: {}", outcome.stderr);
    assert_limit(&recording, 100_000, 1 << 20, &place);
}

/// Programs that each let one table grow, as in a program that runs for months, with a profile that
/// has no room for it: everything is counted, and the profile stays within its limit.
#[test]
fn everything_that_grows_keeps_to_the_limit_of_the_profile() {
    const LIMIT: u64 = 1 << 20;
    const SAMPLE: u64 = 64;
    let place = scratch("limit-grows");
    let program = Guest::read("service_grows.c").build("service_grows.c", &["-pthread", "-ldl"]);
    let library_of_program =
        Guest::read("plugin.c").build("grown.so", &["-shared", "-fPIC", "-DWORK=grown_work"]);
    for (kind, times, is_reached) in [
        ("nothing", 20_000, false),
        ("stacks", 20_000, true),
        ("scopes", 20_000, true),
        ("labels", 20_000, true),
        ("names", 3_000, true),
        ("marks", 20_000, true),
        ("windows", 20_000, true),
        ("mappings", 20_000, true),
        ("modules", 3_000, false), // loaded again where they were
    ] {
        let words = |command: &mut Command| {
            command.args([kind, &times.to_string()]).arg(&library_of_program).current_dir(&place);
        };
        let mut bare = clean(Command::new(&program));
        words(&mut bare);
        let bare = run(&mut bare, &place);
        assert_eq!(bare.status, 4, "{kind}: {}", bare.stdout);
        let recording = place.join(format!("{kind}.heaptide"));
        let mut command = preloaded(&program, &recording);
        command.env("HEAPTIDE_MAX_PROFILE", LIMIT.to_string());
        words(&mut command);
        assert_eq!(bare, run(&mut command, &place), "{kind}");
        let report = report(&recording, &place);
        let process = &list(&report, "processes")[0];
        let own = evaluate(&report, "totals", "allocations") - times;
        assert!(own >= 0 && (own < 10 || kind == "modules"), "{kind}: {own} more");
        assert_eq!(process["profile_limit"].is_null(), !is_reached, "{kind}");
        let mut samples = list(process, "timeline").len();
        if kind == "mappings" {
            let mapped = report_of_kind("mapped", &recording, &place);
            samples += list(&list(&mapped, "processes")[0], "timeline").len();
            let own = evaluate(&mapped, "totals", "allocations") - times;
            assert!((0..10).contains(&own), "{own} more mappings");
        }
        let size = fs::metadata(&profiles(&recording)[0]).expect("the profile").len();
        // Threads are stored beyond the limit: a page for each name, and half a page of counters;
        // and timelines, which grow ever more slowly.
        let threads = list(process, "lanes").len() as u64 * (6 << 10);
        let samples = samples as u64 * SAMPLE;
        let most = LIMIT + threads + samples + (64 << 10);
        assert!(size <= most, "{kind}: {size} bytes, {threads} of threads, {samples} of samples");
    }
}

/// Threads with ever new names: the first have separate rows in the report, and the others share
/// one.
#[test]
fn threads_of_ever_new_names_share_one() {
    let place = scratch("limit-names");
    let program = Guest::read("service_grows.c").build("service_grows.c", &["-pthread", "-ldl"]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &[]);
    assert_eq!(run(command.arg(&program).args(["names", "3000"]), &place).status, 4);
    let report = report(&recording, &place);
    let lanes = list(&list(&report, "processes")[0], "lanes");
    assert_eq!(lanes.len(), 2049);
    let others = lanes.iter().find(|lane| lane["name"] == "[other threads]").expect("the others");
    // One of the separate names is that of the program.
    assert_eq!((number(others, "threads"), number(others, "allocations")), (953, 953));
}

/// Checks a recording of one process that reached the limit of its profile.
fn assert_limit(recording: &Path, allocations: i128, limit: i128, place: &Path) -> Value {
    let report = report(recording, place);
    assert_eq!(evaluate(&report, "totals", "allocations"), allocations);
    let process = &list(&report, "processes")[0];
    assert_eq!(number(&process["profile_limit"], "bytes"), limit);
    report
}
