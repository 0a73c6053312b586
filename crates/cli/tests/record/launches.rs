//! Several commands started by one launcher write one recording together.

use crate::harness::{Outcome, heaptide, programs, recorded, report, run, scratch, until};
use crate::programs::without_launchers;
use crate::recording::{list, number};
use serde_json::Value;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A directory with the guest program, whose first argument is the number of blocks that it keeps.
struct Launcher {
    place: PathBuf,
    program: PathBuf,
    recording: PathBuf,
}

impl Launcher {
    fn new(name: &str) -> Launcher {
        let place = scratch(name);
        let program = place.join("member");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-g", "-fno-builtin", "-D_GNU_SOURCE", "-o"]).arg(&program);
        let source = programs().join("launch_member.c");
        assert!(compiler.arg(source).status().expect("a compiler").success());
        let recording = place.join("r.heaptide");
        Launcher { place, program, recording }
    }

    /// Runs `sh -c SCRIPT`, in which `$RUN` records the program into the recording.
    fn script(&self, options: &str, script: &str, variables: &[(&str, &str)]) -> Outcome {
        let command = env!("CARGO_BIN_EXE_heaptide");
        let mut shell = crate::harness::clean(Command::new("sh"));
        without_launchers(&mut shell);
        shell.env("RUN", format!("{command} run -q {options} -o r.heaptide -- ./member"));
        shell.args(["-c", script]).envs(variables.iter().copied()).current_dir(&self.place);
        run(&mut shell, &self.place)
    }

    /// Runs four ranks of one launch, whose exit status is their rank. Prints the statuses of their
    /// commands.
    fn ranks(&self, options: &str) -> Outcome {
        let script = "
            for rank in 0 1 2 3; do
                env PMI_RANK=$rank PMI_SIZE=4 $RUN $rank & pids=\"$pids $!\"
            done
            for pid in $pids; do wait $pid; echo $?; done";
        self.script(options, script, &[])
    }

    fn report(&self) -> Value {
        report(&self.recording, &self.place)
    }

    /// Starts a rank whose program waits for the file `go`.
    fn waiting(&self, rank: u32) -> Child {
        let mut command = recorded(&self.recording, &[]);
        without_launchers(&mut command);
        command.arg(&self.program).args([&rank.to_string(), "go"]).current_dir(&self.place);
        let rank = rank.to_string();
        command.env("PMI_RANK", rank).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the command")
    }

    fn is_waiting(&self, rank: u32) -> bool {
        self.place.join(format!("waits-{rank}")).exists()
    }
}

/// Returns the files of a recording that only running or killed commands leave.
fn left(recording: &Path) -> Vec<String> {
    let entries = fs::read_dir(recording).expect("the recording").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".member") || name.ends_with(".new")).collect()
}

/// Returns rank, blocks and exit status of each process, sorted.
fn members(report: &Value) -> Vec<(i128, i128, i128)> {
    let of = |process: &Value| {
        let (rank, end) = (number(&process["rank"], "number"), &process["end"]);
        (rank, number(&process["totals"], "allocations"), number(end, "code"))
    };
    let mut members: Vec<_> = list(report, "processes").iter().map(of).collect();
    members.sort_unstable();
    members
}

const RANKS: [(i128, i128, i128); 4] = [(0, 0, 0), (1, 1, 1), (2, 2, 2), (3, 3, 3)];
const STATUSES: &str = "0\n1\n2\n3\n";

#[test]
fn ranks_write_one_recording_and_it_is_replaced_once() {
    let launcher = Launcher::new("launch-ranks");
    let outcome = launcher.ranks("");
    assert_eq!((&*outcome.stdout, &*outcome.stderr), (STATUSES, ""));
    let report = launcher.report();
    assert_eq!(members(&report), RANKS);
    assert_eq!(report["sealed"], true);
    assert!(left(&launcher.recording).is_empty());
    // Another launch, by another shell.
    let before = fs::read(launcher.recording.join("recording.json")).expect("the marker");
    let outcome = launcher.ranks("");
    assert_eq!(outcome.stdout, "2\n".repeat(4));
    assert_eq!(outcome.stderr.matches("exists; choose another path with -o").count(), 4);
    let after = || fs::read(launcher.recording.join("recording.json")).expect("the marker");
    assert!(after() == before, "the recording has changed");
    let outcome = launcher.ranks("--force --mode trace");
    assert_eq!((&*outcome.stdout, &*outcome.stderr), (STATUSES, ""));
    assert_eq!(members(&launcher.report()), RANKS);
    assert!(after() != before && left(&launcher.recording).is_empty());
    let beside = fs::read_dir(&launcher.place).expect("the place").flatten();
    let mut beside = beside.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert!(!beside.any(|name| name.starts_with('.')));
}

#[test]
fn a_launch_that_has_a_name_is_joined_after_its_end_and_by_each_rank_once() {
    let launcher = Launcher::new("launch-named");
    let step = [("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "2"), ("SLURM_STEP_NUM_TASKS", "4")];
    let script = "for rank in 0 1 1; do SLURM_PROCID=$rank $RUN $rank; echo $?; done";
    let outcome = launcher.script("", script, &step);
    assert_eq!(outcome.stdout, "0\n1\n2\n");
    assert_eq!(members(&launcher.report()), RANKS[..2]);
    let other = |host: &str| {
        let variables = [&step[..], &[("SLURM_PROCID", "2"), ("SLURMD_NODENAME", host)]].concat();
        launcher.script("", "$RUN 2", &variables)
    };
    let outcome = other("node2");
    assert_eq!((outcome.status, outcome.stderr.lines().count()), (2, 1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("r-node2.heaptide"), "{}", outcome.stderr);
    let there = report(&launcher.place.join("r-node2.heaptide"), &launcher.place);
    assert_eq!(members(&there), RANKS[2..3]);
}

#[test]
fn xargs_starts_members_in_parallel() {
    let launcher = Launcher::new("launch-xargs");
    let script = "seq 0 9 | xargs -P 4 -n 1 $RUN; echo $?; echo 9 | xargs -P 4 -n 1 $RUN";
    let outcome = launcher.script("", script, &[]);
    assert_eq!(outcome.stdout, "123\n");
    assert_eq!(outcome.stderr.matches("exists").count(), 1, "{}", outcome.stderr);
    let report = launcher.report();
    let blocks = |process: &Value| number(&process["totals"], "allocations");
    let mut blocks: Vec<i128> = list(&report, "processes").iter().map(blocks).collect();
    blocks.sort_unstable();
    assert_eq!(blocks, (0..10).collect::<Vec<_>>());
    assert!(left(&launcher.recording).is_empty());
}

#[test]
fn a_member_that_is_killed_leaves_the_recording_to_the_others() {
    for victims in [&[0][..], &[1], &[2], &[0, 1], &[0, 1, 2]] {
        let launcher = Launcher::new("launch-killed");
        let mut commands: Vec<Child> = (0..3).map(|rank| launcher.waiting(rank)).collect();
        until("the programs", || (0..3).all(|rank| launcher.is_waiting(rank)));
        for &victim in victims {
            commands[victim].kill().expect("to kill it");
            assert_eq!(commands[victim].wait().expect("its end").signal(), Some(9));
        }
        fs::write(launcher.place.join("go"), "").expect("a file");
        for (rank, command) in commands.iter_mut().enumerate() {
            if !victims.contains(&rank) {
                assert_eq!(command.wait().expect("its end").code(), Some(rank as i32));
            }
        }
        until("the end of the programs", || {
            (0..3).all(|rank| launcher.place.join(format!("ends-{rank}")).exists())
        });
        let report = launcher.report();
        assert_eq!(members(&report), RANKS[..3], "{victims:?}");
        assert_eq!(report["sealed"], victims.len() < 3, "{victims:?}");
        assert_eq!(left(&launcher.recording).is_empty(), victims.len() < 3, "{victims:?}");
    }
}

#[test]
fn names_of_recordings_have_what_differs() {
    let launcher = Launcher::new("launch-names");
    let name = |pattern: &str| {
        let mut command = recorded(Path::new(pattern), &[]);
        without_launchers(&mut command);
        command.arg(&launcher.program).arg("1").current_dir(&launcher.place);
        run(command.env("HEAPTIDE_RANK", "3").env("HERE", "x"), &launcher.place)
    };
    assert_eq!(name("%n.%r-%q{HERE}%%.heaptide").status, 1);
    assert!(launcher.place.join("member.3-x%.heaptide/recording.json").exists());
    for (pattern, says) in [("a-%x", "found %x"), ("a-%q{NOT_SET}", "NOT_SET is not set")] {
        let Outcome { status, stderr, .. } = name(pattern);
        assert_eq!((status, stderr.lines().count()), (2, 1), "{stderr}");
        assert!(stderr.contains(says), "{stderr}");
    }
    let help = run(heaptide().args(["run", "--help-all"]), &launcher.place);
    assert!(help.stdout.contains("%q{VAR}"));
}
