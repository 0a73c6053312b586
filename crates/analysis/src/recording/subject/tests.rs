//! Which process is the subject, in recordings of made-up processes.

use super::*;
use crate::fixtures::with_stacks;
use crate::model::Rank;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A recording in which each process starts a millisecond after the one before.
struct Run(Vec<Process>);

impl Run {
    /// The first process, which was started by `heaptide run`.
    fn of(program: &str, line: &str, peak_bytes: u64, seconds: f64) -> Run {
        let run = Run(Vec::new()).and(0, program, line, peak_bytes, seconds);
        run.with(|process| process.identity.is_requested = true)
    }

    /// Adds a child of the process with this index.
    fn and(mut self, parent: u32, program: &str, line: &str, bytes: u64, seconds: f64) -> Run {
        let number = self.0.len() as u32;
        let mut process = match self.0.first() {
            Some(process) => process.clone(),
            None => with_stacks(&["main"]),
        };
        let identity = &mut process.identity;
        identity.file = format!("{number}").into();
        (identity.pid, identity.ppid) = (100 + number, 100 + parent);
        (identity.process_number, identity.is_requested) = (number, false);
        identity.program = program.to_owned();
        identity.command = line.split_whitespace().map(str::to_owned).collect();
        let duration_ns = (seconds * 1e9) as u64;
        process.lifetime.start_realtime_ns = u64::from(number) * 1_000_000;
        (process.lifetime.duration_ns, process.peak_time_ns) = (duration_ns, duration_ns / 2);
        process.totals.peak_bytes = bytes;
        self.0.push(process);
        self
    }

    /// Changes the last process.
    fn with(mut self, change: impl FnOnce(&mut Process)) -> Run {
        self.0.last_mut().map(change).expect("a process");
        self
    }

    /// Makes the last process the next image of the one before it.
    fn by_exec(mut self) -> Run {
        let last = self.0.len() - 1;
        let (before, after) = self.0.split_at_mut(last);
        let (before, after) = (&mut before[last - 1], &mut after[0]);
        before.lifetime.end = End::Exec;
        let identity = before.identity.clone();
        (after.identity.pid, after.identity.ppid) = (identity.pid, identity.ppid);
        after.identity.process_number = identity.process_number;
        after.identity.execs = identity.execs + 1;
        after.identity.is_requested = identity.is_requested;
        self
    }

    /// Returns the indices of the images of the subject, and its description.
    fn subject(&self) -> (Vec<usize>, Subject) {
        let processes = self.0.clone();
        let mut recording = Recording { processes, ..Recording::default() };
        recording.choose_subject();
        let is_subject =
            |index: &usize| recording.processes[*index].identity.role == ImageRole::Subject;
        let images = (0..recording.processes.len()).filter(is_subject).collect();
        (images, recording.subject.expect("a subject"))
    }

    fn images(&self) -> Vec<usize> {
        self.subject().0
    }
}

const SH: &str = "/usr/bin/dash";
const BASH: &str = "/usr/bin/bash";
const MAKE: &str = "/usr/bin/make";
const PYTHON: &str = "/usr/bin/python3.11";
const CC1PLUS: &str = "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus";
const APP: &str = "/srv/app";

#[test]
fn launchers_are_not_the_subject() {
    let run = Run::of(SH, "sh -c x", 3 * KIB, 1.0).and(0, PYTHON, "python3 a.py", 23 * MIB, 0.9);
    let (images, subject) = run.subject();
    assert_eq!((images, subject.reason, &*subject.pids), (vec![1], Reason::Most, &[101][..]));
    let launchers = Rest {
        images: 1,
        names: vec!["sh".to_owned()],
        programs: 1,
        peak_bytes: 3 * KIB,
        pid: 100,
    };
    assert_eq!((subject.launchers, subject.others), (launchers, Rest::default()));
    // Even if the launcher has more: both hold little.
    let make = Run::of(MAKE, "make", 200 * KIB, 1.0).and(0, APP, "app", KIB, 0.1);
    assert_eq!(make.images(), [1]);
    let nothing = Run::of(SH, "sh -c true", 3 * KIB, 1.0).and(0, "/bin/true", "true", 0, 0.1);
    assert_eq!(nothing.images(), [0], "a program without memory");
    let cargo = "/usr/bin/cargo";
    let test = Run::of(cargo, "cargo test", 40 * MIB, 9.0)
        .and(0, "/usr/bin/rustc", "rustc --crate-name a", 300 * MIB, 8.0)
        .and(0, "/t/debug/deps/a-12", "a-12", MIB, 0.1);
    assert_eq!(test.images(), [2]);
    assert_eq!(test.subject().1.launchers.images, 2);
    let build = Run::of(cargo, "cargo build", 40 * MIB, 9.0).and(
        0,
        "/usr/bin/rustc",
        "rustc --crate-name a",
        300 * MIB,
        8.0,
    );
    assert_eq!(build.images(), [1]);
    let cached =
        Run::of(cargo, "cargo test", 40 * MIB, 9.0).and(0, "/usr/bin/rustc", "rustc -vV", MIB, 0.1);
    assert_eq!(cached.images(), [1], "nothing else was recorded");
}

#[test]
fn a_shim_becomes_the_program_by_exec() {
    let shim = Run::of(BASH, "bash ./shim a.py", 129 * KIB, 1.0)
        .and(0, PYTHON, "python3 a.py", 64 * KIB, 0.1)
        .by_exec();
    assert_eq!((shim.images(), shim.subject().1.reason), (vec![1], Reason::Started));
    let env =
        Run::of("/usr/bin/env", "env -i app", 13 * KIB, 1.0).and(0, APP, "app", KIB, 0.1).by_exec();
    assert_eq!(env.images(), [1]);
}

#[test]
fn a_launcher_that_holds_more_than_its_children_is_the_subject() {
    let script = Run::of(BASH, "bash big.sh", 50 * MIB, 2.0).and(0, APP, "app", 5 * MIB, 0.1);
    assert_eq!((script.images(), script.subject().1.reason), (vec![0], Reason::Launcher));
    let script = Run::of(BASH, "bash big.sh", 5 * MIB, 2.0).and(0, APP, "app", 50 * MIB, 0.1);
    assert_eq!(script.images(), [1]);
    let only = Run::of(SH, "sh -c true", 3 * KIB, 0.1);
    assert_eq!((only.images(), only.subject().1.reason), (vec![0], Reason::Only));
    let nested = Run::of("/usr/bin/timeout", "timeout 9 bash a.sh", 2 * KIB, 0.1).and(
        0,
        BASH,
        "bash a.sh",
        200 * KIB,
        0.1,
    );
    assert_eq!(nested.images(), [1], "all are launchers");
}

#[test]
fn compilers_below_make_are_workers_of_one_program() {
    let mut run = Run::of(MAKE, "make -j8", 700 * KIB, 30.0);
    for _ in 0..60 {
        run = run.and(0, "/usr/bin/x86_64-linux-gnu-g++-12", "g++ -c a.cc", 174 * KIB, 3.1);
        run = run.and(1, CC1PLUS, "cc1plus a.cc", 100 * MIB, 3.0);
    }
    let (images, subject) = run.and(0, "/usr/bin/ld", "ld a.o", 400 * MIB, 2.0).subject();
    assert_eq!((images.len(), &*subject.name), (60, "cc1plus"));
    assert_eq!(subject.launchers.names, ["g++", "make"]);
    assert_eq!((subject.others.images, &*subject.others.names), (1, &["ld".to_owned()][..]));
    assert_eq!(subject.images(), 122);
}

#[test]
fn workers_of_a_server_are_one_subject() {
    let server = |peaks: &[u64]| {
        let mut run = Run::of(APP, "app serve", 8 * MIB, 60.0);
        for &peak in peaks {
            run = run.and(0, APP, "app serve", peak, 59.0);
            run = run.with(|process| process.identity.forked = true);
        }
        run
    };
    let (images, subject) = server(&[40 * MIB, 10 * MIB, 30 * MIB, 20 * MIB]).subject();
    assert_eq!(images, [0, 1, 2, 3, 4]);
    assert_eq!(subject.peaks, [8, 10, 20, 30, 40].map(|peak| peak * MIB));
    assert_eq!(subject.reason, Reason::Only);
    // The parent only starts the workers.
    assert_eq!(server(&[100 * MIB, 90 * MIB]).images(), [1, 2]);
    // A helper with little memory is no worker.
    assert_eq!(server(&[100 * KIB]).images(), [0]);
    // Neither is a copy that executes another program.
    let copy = server(&[6 * MIB]).with(|process| process.lifetime.end = End::Exec);
    assert_eq!(copy.images(), [0]);
}

#[test]
fn processes_of_a_pool_belong_to_the_script() {
    let spawned = [
        "/usr/bin/python3",
        "-c",
        "from multiprocessing.spawn import spawn_main; spawn_main()",
        "--multiprocessing-fork",
    ];
    let as_spawned =
        |process: &mut Process| process.identity.command = spawned.map(str::to_owned).to_vec();
    let run = Run::of(PYTHON, "python3 pool.py", 9 * MIB, 9.0)
        .and(0, PYTHON, "", 20 * MIB, 8.0)
        .with(as_spawned)
        .and(0, PYTHON, "", 30 * MIB, 8.0)
        .with(as_spawned)
        .and(0, PYTHON, "python3 other.py", 10 * MIB, 8.0);
    let (images, subject) = run.subject();
    assert_eq!((images, &*subject.name), (vec![0, 1, 2], "python3 pool.py"));
}

#[test]
fn ranks_are_one_subject_even_if_one_holds_all() {
    let mut run = Run::of("/usr/bin/orterun", "mpirun -n 3 app", 6 * MIB, 2.0);
    for rank in 0..3 {
        let peak = if rank == 0 { MIB } else { KIB };
        run = run.and(0, APP, "app", peak, 1.0).with(|process| {
            process.identity.rank = Some(Rank { number: rank, of: 3 });
        });
    }
    let (images, subject) = run.subject();
    assert_eq!((images, subject.peaks), (vec![1, 2, 3], vec![KIB, KIB, MIB]));
}

#[test]
fn the_started_program_stays_unless_another_has_much_more() {
    let run = |peak: u64| {
        Run::of(PYTHON, "python3 a.py", 20 * MIB, 1.0).and(0, CC1PLUS, "cc1plus", peak, 1.0)
    };
    let found = |peak: u64| (run(peak).images(), run(peak).subject().1.reason);
    assert_eq!(found(60 * MIB), (vec![0], Reason::Started));
    assert_eq!(found(90 * MIB), (vec![1], Reason::Most));
}

#[test]
fn much_memory_for_a_short_time_outweighs_little_for_a_long_time() {
    let run = Run::of(SH, "sh -c x", 3 * KIB, 3600.0)
        .and(0, "/opt/monitor", "monitor", 10 * MIB, 3600.0)
        .and(0, APP, "app", 1024 * MIB, 10.0);
    assert_eq!(run.images(), [2]);
    let equal = Run::of(SH, "sh -c x", 3 * KIB, 1.0)
        .and(0, "/opt/a", "a", MIB, 1.0)
        .and(0, "/opt/b", "b", MIB, 1.0);
    assert_eq!(equal.images(), [1], "the first of equal ones");
}

#[test]
fn memory_time_is_the_area_below_samples_and_the_peak() {
    assert_eq!(area([(1_000_000_000, 10), (3_000_000_000, 20)]), 20.0);
    let mut process = Run::of(APP, "app", 100, 4.0).0.remove(0);
    (process.totals.live_bytes, process.peak_time_ns) = (0, 2_000_000_000);
    assert_eq!(of_heap(&process), 200.0);
    let sample = |second: u64, live_bytes| Sample {
        time_ns: second * 1_000_000_000,
        live_bytes,
        ..Sample::default()
    };
    process.time.samples = vec![sample(1, 0), sample(3, 100)];
    assert_eq!(of_heap(&process), 0.0 + 0.0 + 100.0 + 100.0);
}

/// The line had peaks of the heap beside a table of peaks with mappings.
#[test]
fn peaks_are_those_of_the_selected_memory() {
    let run = Run::of(SH, "sh -c x", 3 * KIB, 1.0).and(0, APP, "app serve", 10 * MIB, 1.0).and(
        0,
        APP,
        "app serve",
        20 * MIB,
        1.0,
    );
    let mut recording = Recording { processes: run.0, ..Recording::default() };
    recording.choose_subject();
    recording.processes.iter_mut().for_each(|process| process.totals.peak_bytes *= 2);
    recording.update_subject();
    let subject = recording.subject.expect("a subject");
    assert_eq!(subject.peaks, [20 * MIB, 40 * MIB]);
    assert_eq!(subject.launchers.peak_bytes, 6 * KIB);
}

/// The shell of a version shim was shown as the program that had been started.
#[test]
fn what_became_a_server_by_exec_is_not_what_was_requested() {
    let run = Run::of(BASH, "bash shim serve", 100 * KIB, 0.1)
        .and(0, APP, "app serve", 8 * MIB, 60.0)
        .by_exec()
        .and(1, APP, "app serve", 9 * MIB, 59.0);
    let mut recording = Recording { processes: run.0, ..Recording::default() };
    recording.processes[2].identity.ppid = recording.processes[1].identity.pid;
    assert!(recording.requested().is_some());
    recording.choose_subject();
    recording.join_subject();
    assert!(recording.requested().is_none(), "it is part of the subject");
}

#[test]
fn workers_are_joined_in_their_place() {
    let run = Run::of(MAKE, "make", 700 * KIB, 30.0)
        .and(0, APP, "app 1", MIB, 1.0)
        .and(0, "/usr/bin/ld", "ld a.o", KIB, 2.0)
        .and(0, APP, "app 2", 2 * MIB, 1.0);
    let mut recording = Recording { processes: run.0, ..Recording::default() };
    recording.choose_subject();
    recording.join_subject();
    let of = |process: &Process| (process.identity.images, process.identity.role);
    let images: Vec<_> = recording.processes.iter().map(of).collect();
    let expected = [(1, ImageRole::Launcher), (2, ImageRole::Subject), (1, ImageRole::Other)];
    assert_eq!(images, expected);
    let joined = recording.subject_process().expect("the subject");
    assert_eq!(joined.totals.peak_bytes, 3 * MIB);
    assert_eq!(joined.totals.allocations, 2, "a block of each");
    assert_eq!(joined.identity.command, ["app"]);
}

/// Memory that is held until the end counts as much as memory that is freed there.
#[test]
fn live_bytes_are_steps() {
    let second = 1_000_000_000;
    let held = [(0, 20), (3 * second, 20)];
    let freed = [(0, 20), (3 * second, 0), (3 * second, 0)];
    assert_eq!([area(held), area(freed)], [60.0; 2]);
    assert_eq!(area([(second, 5), (2 * second, 7), (4 * second, 0)]), 19.0);
}
