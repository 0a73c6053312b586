//! Standard output and error that cannot be written: every command and every format ends in an
//! orderly way, with a reliable status.

use crate::harness::{Guest, clean, heaptide, preloaded, recorded, run, scratch, until};
use crate::questions::{OF_EVENTS, QUERIES, QUESTIONS, complaints, formats};
use std::fs::File;
use std::io::pipe;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The message when standard output is on a full disk.
const FULL: &str =
    "heaptide: cannot write standard output: No space left on device (os error 28)\n";

/// Commands that print without reading a recording.
const WITHOUT_RECORDING: &[&str] = &[
    "library",
    "sdk",
    "man",
    "completions bash",
    "query --tables",
    "query --describe sites",
    "--help",
    "--version",
    "run --help",
    "help export",
    "ctl --help",
];

/// Returns all commands that print, as words of their command lines.
fn commands(recording: &Path) -> Vec<Vec<String>> {
    let shown = recording.display().to_string();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let with = |mut words: Vec<String>, more: &[&str]| {
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words
    };
    let questions = QUESTIONS.iter().map(|(line, _)| with(words(line), &[&shown]));
    let queries =
        QUERIES.iter().chain(OF_EVENTS).map(|query| with(words("query"), &[query, &shown]));
    let formats = formats();
    let exports = formats.iter().map(|format| with(words("export --format"), &[format, &shown]));
    let differences = ["text", "json"].map(|format| format!("diff --format {format}"));
    let differences = differences.iter().map(|line| with(words(line), &[&shown, &shown]));
    let more = [
        "timeline --format csv",
        "leaks --no-built-in",
        "flamegraph --force",
        "export --format folded --annotate --per-thread",
    ];
    let more = more.iter().map(|line| with(words(line), &[&shown]));
    let others = WITHOUT_RECORDING.iter().map(|line| words(line));
    questions.chain(queries).chain(exports).chain(differences).chain(more).chain(others).collect()
}

/// Creates a recording with every event.
fn traced(place: &Path) -> PathBuf {
    let program = Guest::read("leaks.c").build("leaks.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &["--mode", "trace", "--free-stacks"]);
    assert_eq!(run(command.arg(program), place).status, 0);
    recording
}

fn full() -> File {
    File::options().write(true).open("/dev/full").expect("/dev/full")
}

/// Returns the write end of a pipe without a reader.
fn broken() -> Stdio {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn output(words: &[String], stdout: impl Into<Stdio>) -> Output {
    heaptide().args(words).stdin(Stdio::null()).stdout(stdout).output().expect("heaptide")
}

#[test]
fn a_full_disk_is_one_line_and_status_2() {
    let place = scratch("unwritable-full");
    for words in commands(&traced(&place)) {
        let Output { status, stderr, .. } = output(&words, full());
        let stderr = String::from_utf8_lossy(&stderr);
        assert_eq!((status.code(), &*stderr), (Some(2), FULL), "{words:?}");
    }
}

#[test]
fn a_broken_pipe_ends_every_command_quietly() {
    let place = scratch("unwritable-pipe");
    for words in commands(&traced(&place)) {
        let Output { status, stderr, .. } = output(&words, broken());
        let stderr = String::from_utf8_lossy(&stderr);
        assert_eq!((status.code(), complaints(&stderr)), (Some(0), vec![]), "{words:?}");
    }
}

/// Command lines that fail with a message on standard error.
const REFUSED: &[&str] = &[
    "report nothing-here.heaptide",
    "run -- ./nothing-here",
    "ctl nothing-here.heaptide status",
    "query SELECT( a.heaptide",
    "report --top x",
    "nonsense",
    "",
];

#[test]
fn standard_error_may_be_unwritable() {
    let place = scratch("unwritable-error");
    let mut lines = commands(&traced(&place));
    lines.extend(REFUSED.iter().map(|line| line.split_whitespace().map(str::to_owned).collect()));
    for words in lines {
        for stderr in [full().into(), broken()] {
            let mut command = heaptide();
            command.args(&words).current_dir(&place).stdin(Stdio::null());
            let status = command.stdout(full()).stderr(stderr).status().expect("heaptide");
            assert_eq!(status.code(), Some(2), "{words:?}");
        }
    }
}

/// Runs commands without standard streams.
#[test]
fn standard_streams_may_be_closed() {
    let place = scratch("unwritable-closed");
    let recording = traced(&place);
    for line in ["report a.heaptide", "library", "--help", "sdk there", "info a.heaptide"] {
        let mut shell = clean(Command::new("sh"));
        let script = format!("exec {} {line} <&- >&- 2>&-", env!("CARGO_BIN_EXE_heaptide"));
        let status = shell.args(["-c", &script]).current_dir(&place).status().expect("a shell");
        assert_eq!(status.code(), Some(0), "{line}");
    }
    assert!(recording.is_dir() && place.join("there/include/heaptide.h").is_file());
}

/// More processes than `ctl` queries in parallel.
const PROCESSES: usize = 70;

#[test]
fn ctl_acts_although_nobody_reads_its_answers() {
    let place = scratch("unwritable-ctl");
    let recording = place.join("a.heaptide");
    let mut command = preloaded("sh", &recording);
    command.process_group(0);
    let script = format!("for i in $(seq {PROCESSES}); do sleep 600 & done; wait");
    let mut shell = command.args(["-c", &script]).spawn().expect("a shell");
    let ctl = |action: &str, stdout: Stdio| {
        let mut command = heaptide();
        command.arg("ctl").arg(&recording).arg(action);
        command.stdout(stdout).output().expect("heaptide")
    };
    let on = || String::from_utf8_lossy(&ctl("status", Stdio::piped()).stdout).into_owned();
    until("all programs", || on().matches("recording  on").count() > PROCESSES);
    let outcomes = [ctl("off", broken()), ctl("status", broken()), ctl("status", full().into())];
    let status = on();
    let group = format!("-{}", shell.id());
    let killed = Command::new("kill").args(["-KILL", "--", &group]).status();
    assert!(killed.expect("kill").success());
    shell.wait().expect("wait for the shell");
    let codes = outcomes.each_ref().map(|outcome| outcome.status.code());
    assert_eq!(codes, [Some(0), Some(0), Some(2)], "{outcomes:?}");
    assert_eq!(String::from_utf8_lossy(&outcomes[2].stderr), FULL);
    assert!(status.matches("off, by ctl").count() > PROCESSES, "{status}");
}

/// Commands that write one file at the same time, some of which are killed: at each moment, the
/// file is that of one of them, whole.
#[test]
fn a_file_that_many_commands_write_is_whole_at_every_moment() {
    let place = scratch("unwritable-together");
    let recording = traced(&place);
    let file = place.join("out");
    let write = |format: &str| {
        let mut command = heaptide();
        command.args(["export", "--force", "--format", format, "-o"]).arg(&file).arg(&recording);
        command.stderr(Stdio::null()).spawn().expect("heaptide")
    };
    let formats = ["folded", "stacks", "csv"];
    let whole = formats.map(|format| {
        assert!(write(format).wait().expect("its end").success());
        std::fs::read(&file).expect("the file")
    });
    let mut is_missing_or_partial = 0;
    for round in 0..8 {
        let mut writers = formats.map(write);
        writers[round % 3].kill().expect("to kill it");
        while writers.iter_mut().any(|writer| writer.try_wait().expect("its end").is_none()) {
            let found = std::fs::read(&file).unwrap_or_default();
            is_missing_or_partial += u32::from(!whole.contains(&found));
        }
    }
    assert_eq!(is_missing_or_partial, 0);
}
