//! SIGKILL after each store to the profile: it opens, is consistent, and lacks at most the event in
//! flight.
//!
//! The pages of a killed process's profile keep what it had stored: a SIGKILL after an instruction
//! leaves the file as it is then. So a short program runs in single steps, and each state of its
//! profile is read like that of a killed program.

use crate::harness::{Guest, clean, library, profiles, scratch};
use crate::recording::assert_consistent;
use crate::stepping::Stepper;
use heaptide_analysis::model::{Measure, Process, Recording, Tables};
use heaptide_render::json;
use heaptide_render::shared::answer::Answer;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

/// The smallest size of the program's own blocks. Those of the C library are smaller.
const LEAST: u64 = 32 << 10;

/// More bytes than the profile of the program has.
const PROFILE_MAX: usize = 4 << 20;

/// Without these, most steps search for allocators in the program and read accounts of its memory.
const NOT_SEARCHED: [(&str, &str); 2] =
    [("HEAPTIDE_INTERCEPT", "off"), ("HEAPTIDE_ACCOUNTS", "off")];

/// The word of the page that is 1 while the program performs operations, 2 afterwards.
const STAGE: usize = 12;

/// The kinds of operations of the program: in its page, two words each.
const KINDS: [&str; 6] = ["allocations", "frees", "reallocations", "labels", "scopes", "threads"];

/// Positions in `KINDS`; those below the first are counted by size.
const OF_SIZES: usize = 2;
const LABELS: usize = 3;
const THREADS: usize = 5;

/// The operations of each kind at the end of the program.
const ALL: [u64; 6] = [6, 6, 1, 1, 1, 1];

/// Which kinds of operations the recorder counts in a mode.
const EVENTS: [bool; 6] = [true, true, true, false, false, true];
const NAMES: [bool; 6] = [true; 6];

/// A program, and the states of its profile.
struct Points {
    program: Stepper,
    has: [bool; 6],
    /// The profile of the running program, the page, and a copy of each state of the profile.
    profile: File,
    page: File,
    copy: PathBuf,
    state: Vec<u8>,
    /// Room for the next state, which is longer than the profile.
    room: Vec<u8>,
    count: u64,
    /// The number of states before the header was complete.
    without_header: u64,
}

impl Points {
    /// Executes an instruction, and checks the state of the profile if that has changed. Returns
    /// whether the program still runs.
    fn step(&mut self) -> bool {
        let address = self.program.address();
        let runs = self.program.step();
        let length = self.profile.read_at(&mut self.room, 0).expect("the profile");
        assert!(length < PROFILE_MAX, "the profile is larger than this test expects");
        if self.room[..length] != self.state {
            self.state.clear();
            self.state.extend_from_slice(&self.room[..length]);
            self.count += 1;
            let failed = Failed { point: self.count, address, program: &self.program };
            if !self.is_complete() {
                self.without_header += 1;
            }
            std::mem::forget(failed);
        }
        runs
    }

    /// Checks a state of the profile. Returns whether it has a header; from then on, each has.
    fn is_complete(&self) -> bool {
        let process = match Process::from_bytes(&self.state, &self.copy) {
            Ok(process) => process,
            Err(error) => {
                let is_starting = error.to_string().contains("process still starting");
                assert!(is_starting && self.count == self.without_header + 1, "{error}");
                return false;
            }
        };
        assert_names(&process);
        self.assert_nothing_missing(&process);
        if process.has_trace() {
            self.assert_replayed(&process);
        }
        assert_consistent(&report(process));
        true
    }

    /// Returns the words of the page.
    fn words(&self) -> [u64; STAGE + 1] {
        let mut bytes = [0; 8 * (STAGE + 1)];
        self.page.read_exact_at(&mut bytes, 0).expect("the shared page");
        std::array::from_fn(|i| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("8")))
    }

    /// Returns the operations of each kind that the program has begun and done.
    fn operations(&self) -> [[u64; 2]; 6] {
        let words = self.words();
        std::array::from_fn(|kind| [words[2 * kind], words[2 * kind + 1]])
    }

    fn assert_nothing_missing(&self, process: &Process) {
        let (found, operations) = (counted(process), self.operations());
        let in_flight = |kind: usize| operations[kind][0] - operations[kind][1];
        // A label moves a block, which is freed in one site and allocated in another. The C library
        // allocates for a thread; until the bytes are stored, readers assume the average size.
        let others = in_flight(LABELS) + in_flight(THREADS);
        for (kind, [begun, done]) in operations.into_iter().enumerate() {
            let others = if kind < OF_SIZES { others } else { 0 };
            let possible = done.saturating_sub(others)..=begun + others;
            let (name, found) = (KINDS[kind], found[kind]);
            let is_known = !self.has[kind] || possible.contains(&found);
            assert!(is_known, "{found} {name} recorded, {done} done of {begun} begun");
        }
    }

    /// Compares the events with the counters, while none is in flight.
    fn assert_replayed(&self, process: &Process) {
        fs::write(&self.copy, &self.state).expect("a copy of the profile");
        let replayed = process.replayed().expect("a trace");
        assert_eq!(replayed.notes, [""; 0]);
        let operations = self.operations();
        let [[begun, _], ..] = operations;
        if begun > 0 && operations.iter().all(|[begun, done]| begun == done) {
            assert_eq!(replayed.differences(process), []);
        }
    }
}

/// Reports the point at which a check failed.
struct Failed<'a> {
    point: u64,
    address: u64,
    program: &'a Stepper,
}

impl Drop for Failed<'_> {
    fn drop(&mut self) {
        let place = self.program.place(self.address);
        eprintln!("killed after store {}, at {:#x}, {place}:", self.point, self.address);
    }
}

/// Checks that the names in the profile are whole. A thread whose lane is not written yet has a
/// number.
fn assert_names(process: &Process) {
    let Tables { lanes, scopes, labels, .. } = &process.tables;
    let named = lanes.iter().filter(|lane| lane.name != "thread 1");
    let threads = named.map(|lane| (&*lane.name, "kill_points-c"));
    let scopes = scopes.iter().skip(1).map(|scope| (&*scope.value, "phase"));
    let labels = labels.iter().map(|label| (&*label.name, "matrix"));
    for (found, expected) in threads.chain(scopes).chain(labels) {
        assert_eq!(found, expected, "a name");
    }
}

/// Returns the recorded operations of each kind.
fn counted(process: &Process) -> [u64; 6] {
    let tables = &process.tables;
    let classes = || tables.histogram.iter().filter(|class| class.size_min >= LEAST);
    let labelled = tables.sites.iter().filter(|site| site.label.is_some());
    [
        classes().map(|class| class.requested).sum(),
        classes().map(|class| class.freed).sum(),
        process.totals.reallocations,
        labelled.map(|site| site.moved.blocks).sum(),
        tables.scopes.iter().map(|scope| scope.entered).sum(),
        (tables.lanes.len() as u64).saturating_sub(1),
    ]
}

fn report(process: Process) -> serde_json::Value {
    let recording = Recording { processes: vec![process], ..Recording::default() };
    let choice = json::report::Choice { sort: Measure::AtPeakBytes, top: None, process: None };
    let mut text = Vec::new();
    json::report::write(&mut text, &recording, &choice, &Answer::default()).expect("a report");
    serde_json::from_slice(&text).expect("JSON")
}

/// The part of the program that runs in single steps: startup and exit take most of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Operations,
}

/// Kills the program after each store in a mode.
fn each_store(mode: &str, part: Part, has: [bool; 6]) {
    let executable = Guest::read("kill_points.c").build("kill_points.c", &[]);
    let place = scratch(&format!("kill-points-{mode}"));
    let (page, recording) = (place.join("page"), place.join("recording.heaptide"));
    fs::write(&page, [0; 4096]).expect("the shared page");
    let mut command = clean(Command::new(executable));
    command.arg(&page).env("HEAPTIDE_OUTPUT", &recording).env("HEAPTIDE_MODE", mode);
    command.env("HEAPTIDE_SAMPLE_SEED", "1");
    let mut program = Stepper::start(command.envs(NOT_SEARCHED), &library());
    while profiles(&recording).is_empty() {
        assert!(program.run_to_call(), "no profile");
    }
    let mut points = Points {
        program,
        has,
        profile: File::open(&profiles(&recording)[0]).expect("the profile"),
        page: File::open(page).expect("the shared page"),
        copy: place.join("1-0.profile"),
        state: Vec::new(),
        room: vec![0; PROFILE_MAX],
        count: 0,
        without_header: 0,
    };
    while part == Part::Operations && points.words()[STAGE] == 0 {
        assert!(points.program.run_to_call(), "no operations");
    }
    let mut steps = 1u64;
    while points.step() && (part == Part::Whole || points.words()[STAGE] == 1) {
        steps += 1;
    }
    let Points { count, without_header, .. } = points;
    eprintln!("{mode}: {count} stores in {steps} steps, {without_header} before the header");
    assert_eq!(points.operations(), ALL.map(|all| [all, all]), "the program was not executed");
}

/// Names a test after the mode.
macro_rules! after_each_store {
    ($($(#[$attribute:meta])* $mode:ident $name:literal: $part:ident, $has:ident;)*) => {
        $(#[test]
        $(#[$attribute])*
        fn $mode() {
            each_store($name, Part::$part, $has);
        })*
    };
}

mod after_each_store {
    use super::*;

    after_each_store! {
        stacks "stacks": Operations, NAMES;
        scopes "scopes": Operations, NAMES;
        trace "trace": Operations, NAMES;
        counters "counters": Whole, EVENTS;
        sampled "sampled=4096": Operations, EVENTS;
    }
}
