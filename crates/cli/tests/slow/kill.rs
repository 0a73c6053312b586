//! SIGKILL, and reading, while threads allocate: the profile opens, is consistent, and lacks no
//! more than the events in flight. `kill_points.rs` covers each store of one thread.

use crate::expectations::evaluate;
use crate::harness::{Guest, clean, library, report, scratch, until};
use heaptide_fixtures::Random;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How often each test kills a program in each mode, unless `HEAPTIDE_KILLS` is set.
const KILLS: u32 = 1;

/// Programs are killed after a random number of steps below this.
const STEPS_MAX: u64 = 50_000;

const MODES: [&str; 5] = ["stacks", "scopes", "trace", "counters", "sampled=4096"];

/// Threads, and whether they use the interface.
const KINDS: [[&str; 2]; 2] = [["1", "plain"], ["8", "named"]];

/// Returns a sequence of random numbers, whose seed is in the output of a failed test.
fn random() -> Random {
    let seed = Random::unseeded().next();
    println!("seed {seed}");
    Random::new(seed)
}

fn rounds() -> u32 {
    std::env::var("HEAPTIDE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS)
}

/// A program that allocates until it is killed, at the latest when it is dropped.
struct Endless {
    child: Child,
    page: PathBuf,
    recording: PathBuf,
}

impl Endless {
    /// Starts a program, which gets a file that it shares with the test as its last argument.
    fn start(program: &str, words: &[&str], mode: &str, place: &Path) -> Endless {
        let (page, recording) = (place.join("page"), place.join("recording.heaptide"));
        fs::write(&page, [0; 4096]).expect("the shared page");
        let _ = fs::remove_dir_all(&recording); // of the round before
        let mut command = clean(Command::new(Guest::read(program).build(program, &[])));
        command.args(words).arg(&page).stdin(Stdio::null()).env("LD_PRELOAD", library());
        command.env("HEAPTIDE_OUTPUT", &recording).env("HEAPTIDE_MODE", mode);
        Endless { child: command.spawn().expect("an endless program"), page, recording }
    }

    /// Returns the numbers that the program has counted.
    fn counted(&self) -> [u64; 4] {
        let bytes = fs::read(&self.page).expect("the shared page");
        let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("8"));
        [0, 1, 2, 3].map(word)
    }

    /// Waits for a number of further steps.
    fn run(&self, steps: u64) {
        let begin = self.counted()[0];
        until("further steps", || self.counted()[0] > begin + steps);
    }

    fn kill(&mut self) {
        let _ = self.child.kill(); // may have ended
        self.child.wait().expect("its end");
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn tables_agree_whenever_read_or_killed() {
    let (mut random, place) = (random(), scratch("tables-agree"));
    for _ in 0..rounds() {
        for (mode, kind) in MODES.iter().flat_map(|mode| KINDS.map(|kind| (mode, kind))) {
            let mut program = Endless::start("endless.c", &kind, mode, &place);
            program.run(random.below(STEPS_MAX));
            report(&program.recording, &place); // checks consistency
            program.run(random.below(STEPS_MAX));
            program.kill();
            report(&program.recording, &place);
        }
    }
}

#[test]
fn nothing_that_was_done_is_missing() {
    let (mut random, place) = (random(), scratch("nothing-missing"));
    for _ in 0..rounds() {
        for mode in MODES {
            let mut program = Endless::start("looping.c", &[], mode, &place);
            program.run(random.below(STEPS_MAX));
            program.kill();
            let [begun, done, frees_begun, frees_done] = program.counted().map(i128::from);
            let report = report(&program.recording, &place);
            let found = |measure| evaluate(&report, "totals", measure);
            let (allocations, frees) = (found("allocations"), found("frees"));
            let is_known = (done..=begun).contains(&allocations);
            assert!(is_known, "{mode}: {allocations} allocations, {done} done of {begun}");
            let is_known = (frees_done..=frees_begun).contains(&frees);
            assert!(is_known, "{mode}: {frees} frees, {frees_done} done of {frees_begun}");
        }
    }
}
