//! Where events are while a program runs, when it or its supervisor is killed, and afterwards: none
//! is lost, and the disk space is bounded.

use crate::harness::{Guest, heaptide, profiles, recorded, run, scratch, until};
use heaptide_analysis::model::{Process, Recording};
use heaptide_analysis::trace::file::{TraceFile, path_of};
use heaptide_analysis::trace::live::{Events, Opened};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

const MB: u64 = 1 << 20;

fn program(name: &str) -> PathBuf {
    Guest::read(name).build(name, &[])
}

/// Records `churning ROUNDS THREADS`, and returns the recording and the output of the command.
fn churned(place: &Path, options: &[&str], rounds: u64, threads: u64) -> (PathBuf, String) {
    let recording = place.join("x.heaptide");
    let mut command = heaptide();
    command.args(["run", "-o"]).arg(&recording).args(["--mode", "trace"]).args(options).arg("--");
    command.arg(program("churning.c")).args([rounds.to_string(), threads.to_string()]);
    let outcome = run(&mut command, place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    (recording, outcome.stderr)
}

fn open(recording: &Path) -> Recording {
    let read = Recording::open(recording).expect("a recording");
    assert!(read.damaged.is_empty(), "{:?}", read.damaged);
    assert!(!read.processes.is_empty());
    read
}

/// Checks that the events of a process add up to its counters, except for those in flight. Returns
/// their number.
fn assert_whole(process: &Process, in_flight: u64) -> u64 {
    let replayed = process.replayed().expect("a trace");
    let off = |d: &heaptide_analysis::trace::Difference| d.counted.abs_diff(d.replayed);
    let counts = |measure| measure == "allocations" || measure == "frees";
    let differences = replayed.differences(process);
    let off: u64 = differences.iter().filter(|d| counts(d.measure)).map(off).sum();
    let some = &differences[..differences.len().min(3)];
    assert!(off <= in_flight, "{some:?} … {:?}", replayed.notes);
    assert!(in_flight > 0 || some.is_empty(), "{some:?} … {:?}", replayed.notes);
    replayed.events
}

fn disk(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |file| file.blocks() * 512)
}

fn length(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |file| file.len())
}

/// Waits for the only profile of a recording.
fn only_profile(recording: &Path) -> PathBuf {
    until("a profile", || !profiles(recording).is_empty());
    profiles(recording).remove(0)
}

fn traced(profile: &Path) -> Option<Box<Events>> {
    match Events::open(profile) {
        Ok(Opened::Traced(events)) => Some(events),
        _ => None,
    }
}

fn pid_of(profile: &Path) -> Pid {
    let name = profile.file_name().and_then(|name| name.to_str()).expect("a name");
    Pid::from_raw(name.split('-').next().and_then(|pid| pid.parse().ok()).expect("a pid"))
}

/// Starts `looping` with the command. It writes its counts into the page.
fn looping(place: &Path) -> (Child, PathBuf, PathBuf) {
    let (recording, page) = (place.join("x.heaptide"), place.join("page"));
    fs::write(&page, [0; 4096]).expect("the shared page");
    let mut command = recorded(&recording, &["--mode", "trace"]);
    command.arg(program("looping.c")).arg(&page).stdin(Stdio::null());
    (command.spawn().expect("the command"), recording, page)
}

fn allocations(page: &Path) -> std::ops::RangeInclusive<u64> {
    let bytes = fs::read(page).expect("the shared page");
    let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("a word"));
    word(1)..=word(0)
}

#[test]
fn events_are_moved_out_while_the_program_runs() {
    let place = scratch("trace-moved");
    let (rounds, threads) = (400_000, 2);
    let (recording, said) = churned(&place, &[], rounds, threads);
    let profile = only_profile(&recording);
    let read = open(&recording);
    let process = &read.processes[0];
    let expected = threads * (2 * rounds - 16);
    let events = assert_whole(process, 0);
    assert!((expected..expected + 100).contains(&events), "{events} of {expected}");
    let trace = TraceFile::of(&profile).unwrap().unwrap();
    let raw: u64 = trace.places().iter().map(|place| u64::from(place.chunk.raw_length)).sum();
    assert!(raw > 8 * MB, "{raw}");
    assert_eq!(trace.torn(), 0);
    assert!(trace.length() < 8 * events, "{} bytes for {events} events", trace.length());
    // It is sealed, and freed extents take no disk space: its size equals that of the extents in
    // use.
    assert!(disk(&profile) < MB, "{}", disk(&profile));
    assert!(head(&profile).trace_bytes < raw / 2, "{}", head(&profile).trace_bytes);
    assert!(said.contains("allocations and frees in "), "{said}");
}

/// Returns the header of a sealed profile.
fn head(profile: &Path) -> heaptide_format::FileHeader {
    let packed = fs::File::open(profile).expect("a profile");
    let plain = zstd::stream::decode_all(packed).expect("a packed profile");
    zerocopy::FromBytes::read_from_prefix(&plain).expect("a head").0
}

#[test]
fn a_killed_program_has_all_events_but_the_one_in_flight() {
    let place = scratch("trace-guest-killed");
    let (mut command, recording, page) = looping(&place);
    let profile = only_profile(&recording);
    until("events that were moved", || length(&path_of(&profile)) > MB / 4);
    kill(pid_of(&profile), Signal::SIGKILL).expect("kill the program");
    assert_eq!(command.wait().expect("the command").code(), Some(137));
    let read = open(&recording);
    assert_whole(&read.processes[0], 1);
    let replayed = read.processes[0].replayed().unwrap();
    let made: u64 = replayed.sites.iter().map(|site| site.allocations).sum();
    // The blocks of the program, and those of its start.
    let known = allocations(&page);
    assert!(*known.start() <= made && made <= known.end() + 100, "{made}, known {known:?}");
    assert!(disk(&profile) < MB, "{}", disk(&profile));
}

#[test]
fn a_killed_supervisor_loses_no_events() {
    let place = scratch("trace-supervisor-killed");
    let (mut command, recording, page) = looping(&place);
    let profile = only_profile(&recording);
    until("events that were moved", || length(&path_of(&profile)) > MB / 4);
    command.kill().expect("kill the command");
    command.wait().expect("the command");
    let then = *allocations(&page).end();
    until("the program goes on", || *allocations(&page).end() > then + 50_000);
    // Some of the events are in the trace file, others in the profile, which is being written.
    let mixed = open(&recording).processes[0].replayed().expect("a trace").events;
    assert!(mixed > then, "{mixed} of {then}");
    kill(pid_of(&profile), Signal::SIGKILL).expect("kill the program");
    until("its end", || !Path::new(&format!("/proc/{}", pid_of(&profile))).exists());
    // A supervisor that is killed while it writes leaves a torn chunk.
    let mut torn = fs::read(path_of(&profile)).expect("a trace");
    torn.extend(b"HTCH and not much more");
    fs::write(path_of(&profile), torn).expect("a torn trace");
    let events = assert_whole(&open(&recording).processes[0], 1);
    assert!(events > mixed);
    let before = disk(&profile);
    heaptide_analysis::seal(&recording, &mut |_, _| {}).expect("to seal it");
    assert_eq!(assert_whole(&open(&recording).processes[0], 1), events);
    assert!(disk(&profile) < before / 4, "{} of {before}", disk(&profile));
    assert!(traced(&profile).is_none(), "it is packed");
    assert_eq!(TraceFile::of(&profile).unwrap().unwrap().torn(), 0);
}

#[test]
fn every_image_has_a_trace_of_its_own() {
    let place = scratch("trace-forks");
    let recording = place.join("x.heaptide");
    let mut command = recorded(&recording, &["--mode", "trace"]);
    let outcome = run(command.arg(program("trace_forks.c")), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let read = open(&recording);
    assert_eq!(read.processes.len(), 6);
    for process in &read.processes {
        assert!(assert_whole(process, 0) > 0);
        assert!(path_of(&process.identity.file).exists(), "{:?}", process.identity.file);
    }
    // Replacing a recording requires that it contains no other files.
    let mut again = recorded(&recording, &["--mode", "trace", "--force"]);
    assert_eq!(run(again.arg("true"), &place).status, 0);
}

#[test]
fn many_threads_take_turns_on_extents() {
    let place = scratch("trace-threads");
    let (recording, _) = churned(&place, &[], 20_000, 32);
    let events = assert_whole(&open(&recording).processes[0], 0);
    assert!(events >= 32 * (40_000 - 16));
}

#[test]
fn at_the_bound_the_trace_ends_and_the_figures_go_on() {
    let place = scratch("trace-bound");
    let (recording, said) = churned(&place, &["--max-trace-size", "2M"], 500_000, 2);
    assert!(said.contains("--max-trace-size of 2.00 MiB was reached"), "{said}");
    let profile = only_profile(&recording);
    let size = length(&path_of(&profile));
    assert!((MB / 2..=2 * MB).contains(&size), "{size}");
    let read = open(&recording);
    let process = &read.processes[0];
    let t = &process.totals;
    assert!((1_000_000..1_000_100).contains(&t.allocations), "{}", t.allocations);
    let on_disk = process.trace_on_disk().expect("a trace");
    let stopped_ns = on_disk.stopped_ns.expect("it has ended early");
    assert_eq!((on_disk.bytes, on_disk.limit_bytes), (size, Some(2 * MB)));
    let replayed = process.replayed().expect("a trace");
    assert!((50_000..1_500_000).contains(&replayed.events), "{}", replayed.events);
    let last = process.replay().unwrap().last().map(|event| event.time_ns);
    assert!(last.is_some_and(|last| last <= stopped_ns), "{last:?}, stopped {stopped_ns}");
    let info = run(heaptide().arg("info").arg(&recording), &place);
    assert!(info.stdout.contains("--max-trace-size of 2.00 MiB was reached"), "{}", info.stdout);
    // The highest values could be later.
    let stacks = run(heaptide().args(["export", "--format", "stacks"]).arg(&recording), &place);
    assert!(stacks.stdout.contains("allocations="), "{}", stacks.stderr);
    assert!(!stacks.stdout.contains("max_live_bytes"), "{}", stacks.stdout);
}

#[test]
fn the_bound_is_for_all_processes_together() {
    let place = scratch("trace-bound-of-many");
    let recording = place.join("x.heaptide");
    let mut command = recorded(&recording, &["--mode", "trace", "--max-trace-size", "3M"]);
    let script =
        format!("for i in 1 2 3 4 5 6; do {} 60000 2; done", program("churning.c").display());
    let outcome = run(command.args(["sh", "-c", &script]), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let all: u64 = profiles(&recording).iter().map(|profile| length(&path_of(profile))).sum();
    assert!((MB..=4 * MB).contains(&all), "{all}");
    let read = open(&recording);
    let of = |p: &Process| p.trace_on_disk().is_some_and(|trace| trace.stopped_ns.is_some());
    assert!(read.processes.iter().any(of));
    for process in &read.processes {
        process.replayed().expect("a trace that can be read");
    }
}

#[test]
fn who_outlives_the_supervisor_goes_on_in_its_profile() {
    let place = scratch("trace-outlives");
    let recording = place.join("x.heaptide");
    let mut command = recorded(&recording, &["--mode", "trace"]);
    let script = format!("{} 300000 1 &", program("churning.c").display());
    assert_eq!(run(command.args(["sh", "-c", &script]), &place).status, 0);
    let churning = || {
        open(&recording).processes.into_iter().find(|p| p.identity.program.ends_with("churning-c"))
    };
    let is_over = |p: &Process| p.lifetime.end == heaptide_analysis::model::End::Exited(0);
    until("its end", || churning().is_some_and(|p| is_over(&p)));
    let events = assert_whole(&churning().unwrap(), 0);
    assert!(events >= 600_000 - 16, "{events}");
}

#[test]
fn snapshots_have_no_events() {
    let place = scratch("trace-snapshot");
    let (mut command, recording, _) = looping(&place);
    let profile = only_profile(&recording);
    until("events that were moved", || length(&path_of(&profile)) > MB / 4);
    let status = run(heaptide().args(["ctl"]).arg(&recording).arg("status"), &place);
    assert!(status.stdout.contains("trace      on; "), "{}", status.stdout);
    let taken = run(heaptide().args(["ctl"]).arg(&recording).arg("snapshot"), &place);
    assert_eq!(taken.status, 0, "{}", taken.stderr);
    kill(pid_of(&profile), Signal::SIGKILL).expect("kill the program");
    command.wait().expect("the command");
    let snapshot = profile.with_extension("1.snapshot");
    assert!(disk(&snapshot) < MB, "{}", disk(&snapshot));
    assert!(!open(&snapshot).processes[0].has_trace());
    let question = ["query", "SELECT count() FROM events", "--snapshot", "1"];
    let asked = run(heaptide().args(question).arg(&recording), &place);
    assert_eq!((asked.status, asked.stderr.contains("omit --snapshot")), (1, true));
    assert_whole(&open(&recording).processes[0], 1);
}

#[test]
fn merged_recordings_keep_their_events() {
    let place = scratch("trace-merged");
    let (recording, _) = churned(&place, &[], 50_000, 2);
    let events = assert_whole(&open(&recording).processes[0], 0);
    let merged = place.join("all.heaptide");
    let other = place.join("other.heaptide");
    let mut again = recorded(&other, &["--mode", "trace"]);
    again.arg(program("churning.c")).args(["1000", "1"]);
    assert_eq!(run(&mut again, &place).status, 0);
    let mut merge = heaptide();
    merge.args(["merge", "-o"]).arg(&merged).arg(&recording).arg(&other);
    let outcome = run(&mut merge, &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let read = open(&merged);
    assert_eq!(read.processes.len(), 2);
    let mut found: Vec<u64> = read.processes.iter().map(|p| assert_whole(p, 0)).collect();
    found.sort_unstable();
    assert_eq!(found[1], events);
    assert!(found[0] >= 2 * 1000 - 16);
}
