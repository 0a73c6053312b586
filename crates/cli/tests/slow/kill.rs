//! SIGKILL at any time: the profile opens, is consistent, and lacks at most the event in flight.

use crate::expectations::evaluate;
use crate::harness::{Guest, clean, heaptide, library, profiles, report, scratch};
use crate::recording::{assert_consistent, list, number};
use heaptide_fixtures::Random;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// The number of programs to kill, unless `HEAPTIDE_KILLS` is set.
const KILLS: u32 = 60;

/// The maximum delay from the start of the program, which first has to be loaded.
const LATEST: Duration = Duration::from_millis(60);

/// How often a program is killed, or read while it runs, for each mode, number of threads and kind,
/// unless `HEAPTIDE_KILLS` sets the total.
const OF_EACH: u32 = 2;

/// Modes, numbers of threads, and whether programs use the interface.
const MODES: [&str; 4] = ["stacks", "scopes", "trace", "counters"];
const THREADS: [&str; 3] = ["1", "2", "8"];
const KINDS: [&str; 2] = ["plain", "named"];

/// Reads the words of the program: allocations begun and done, frees begun and done.
fn counters(page: &Path) -> [i128; 4] {
    let bytes = fs::read(page).expect("the shared page");
    let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("a word"));
    [0, 1, 2, 3].map(|i| word(i).into())
}

/// Returns `HEAPTIDE_KILLS`, if it is set.
fn kills() -> Option<u32> {
    std::env::var("HEAPTIDE_KILLS").ok()?.parse().ok()
}

/// Returns a random delay.
fn delay(random: &mut Random) -> Duration {
    LATEST.mul_f64(random.below(1 << 24) as f64 / f64::from(1 << 24))
}

fn end(child: &mut Child) {
    child.kill().expect("kill the program");
    child.wait().expect("wait for the program");
}

/// A program that runs until it is killed, at the latest when the test ends.
struct Endless(Child);

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records `endless.c` in each mode, with each number of threads, plain and named; `check` gets the
/// running program and its recording. Returns the number of runs.
fn each(test: &str, mut check: impl FnMut(Endless, &Path, &Path)) -> u32 {
    let (program, library) = (Guest::read("endless.c").build("endless.c", &[]), library());
    let place = scratch(test);
    let combinations = (MODES.len() * THREADS.len() * KINDS.len()) as u32;
    let rounds = kills().map_or(OF_EACH, |all| all.div_ceil(combinations));
    for round in 0..rounds {
        for mode in MODES {
            for (threads, kind) in THREADS.iter().flat_map(|t| KINDS.map(|kind| (t, kind))) {
                let recording = place.join(format!("{mode}-{threads}-{kind}-{round}.heaptide"));
                let mut command = clean(Command::new(&program));
                command.args([threads, kind]).stdin(Stdio::null()).env("LD_PRELOAD", &library);
                command.env("HEAPTIDE_OUTPUT", &recording).env("HEAPTIDE_MODE", mode);
                let child = command.spawn().expect("the endless program");
                check(Endless(child), &recording, &place);
                // kept if the check failed
                let _ = fs::remove_dir_all(&recording);
            }
        }
    }
    rounds * combinations
}

#[test]
fn tables_agree_whenever_killed() {
    let (mut random, mut counted) = (Random::unseeded(), 0);
    let kills = each("tables-agree-killed", |mut child, recording, place| {
        sleep(delay(&mut random));
        end(&mut child.0);
        if recording.exists() && !profiles(recording).is_empty() {
            counted += check_tables(recording, place);
        }
    });
    assert!(counted > kills / 2, "only {counted} of {kills} kills came while it allocated");
}

#[test]
fn tables_agree_whenever_read() {
    let (mut random, mut counted) = (Random::unseeded(), 0);
    let reads = each("tables-agree-read", |mut child, recording, place| {
        sleep(delay(&mut random));
        let is_there = recording.exists() && !profiles(recording).is_empty();
        counted += if is_there { check_tables(recording, place) } else { 0 };
        end(&mut child.0);
    });
    assert!(counted > reads / 2, "only {counted} of {reads} reads came while it allocated");
}

/// Checks the tables. Returns 1 if the program had allocated. A profile without a header is of a
/// program that has just started.
fn check_tables(recording: &Path, place: &Path) -> u32 {
    let mut command = heaptide();
    let command = command.args(["report", "--format", "json"]).arg(recording).current_dir(place);
    let outcome = command.output().expect("heaptide report");
    let errors = String::from_utf8_lossy(&outcome.stderr);
    if outcome.status.code() == Some(2) && errors.contains("process still starting") {
        return 0;
    }
    assert!(outcome.status.success(), "{}: {errors}", recording.display());
    let report = serde_json::from_slice(&outcome.stdout).expect("JSON");
    assert_consistent(&report);
    let process = &list(&report, "processes")[0];
    u32::from(number(&process["totals"], "allocations") > 0)
}

#[test]
fn killed_at_any_moment() {
    let program = Guest::read("looping.c").build("looping.c", &[]);
    let (library, place) = (library(), scratch("killed-at-any-moment"));
    let page = place.join("page");
    let mut random = Random::unseeded();
    let (kills, mut counted) = (kills().unwrap_or(KILLS), 0);
    for round in 0..kills {
        let delay = delay(&mut random);
        fs::write(&page, [0; 4096]).expect("the shared page");
        let recording = place.join(format!("{round}.heaptide"));
        let mut command = clean(Command::new(&program));
        command.arg(&page).stdin(Stdio::null());
        command.env("LD_PRELOAD", &library).env("HEAPTIDE_OUTPUT", &recording);
        let mut child = command.spawn().expect("the looping program");
        sleep(delay);
        end(&mut child);
        counted += assert_nothing_missing(&recording, &place, counters(&page), round);
        let _ = fs::remove_dir_all(&recording);
    }
    assert!(counted > kills / 2, "only {counted} kills came while the program allocated");
}

/// Compares the profile of a killed program with the program's own counters. Returns 1 if it had
/// counted anything.
fn assert_nothing_missing(recording: &Path, place: &Path, known: [i128; 4], round: u32) -> u32 {
    let [begun, done, frees_begun, frees_done] = known;
    if begun == 0 {
        return 0; // killed during loading: there may be no profile
    }
    let report = report(recording, place);
    let found = |measure| evaluate(&report, "function:operation", measure);
    let (allocations, frees) = (found("allocations"), found("frees"));
    assert!(
        (done..=begun).contains(&allocations),
        "round {round}: {allocations} allocations recorded, {done} done of {begun} begun"
    );
    assert!(
        (frees_done..=frees_begun).contains(&frees),
        "round {round}: {frees} frees recorded, {frees_done} done of {frees_begun} begun"
    );
    1
}
