//! Programs that conformance tests run: compilers, the programs of tests, the command.

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The longest time of a test of another tool. Longer runs count as failed.
const TIME_MAX: Duration = Duration::from_secs(300);
/// The interval of checks whether a program has ended.
const POLL: Duration = Duration::from_millis(5);
/// The length of the part of an output that a row shows, in characters.
const SHOWN_CHARACTERS_MAX: usize = 160;

/// The end of a program, with its output.
pub struct Run {
    /// None if it ran too long.
    pub status: Option<ExitStatus>,
    pub out: String,
    pub err: String,
    pub seconds: f64,
}

impl Run {
    /// Returns whether it ended by itself with status 0.
    pub fn is_ok(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Returns how it ended, with the first line of its errors that names one.
    pub fn reason(&self) -> String {
        let end = match self.status {
            Some(status) => status.to_string(),
            None => format!("still ran after {} s", TIME_MAX.as_secs()),
        };
        let lines = || self.err.lines().chain(self.out.lines());
        let error = lines().find(|line| line.to_lowercase().contains("error"));
        let line = error.or_else(|| lines().next_back()).unwrap_or_default();
        let line: String = line.trim().chars().take(SHOWN_CHARACTERS_MAX).collect();
        if line.is_empty() { end } else { format!("{end}: {line}") }
    }
}

/// Runs a program in `work`. Its failure is an error.
pub fn done(command: &mut Command, work: &Path) -> Result<(), String> {
    let run = run(command.current_dir(work), work)?;
    if run.is_ok() { Ok(()) } else { Err(run.reason()) }
}

/// Runs a program to its end, at most [`TIME_MAX`]. Its output goes to files in `work`.
pub fn run(command: &mut Command, work: &Path) -> Result<Run, String> {
    let (out, err) = (work.join("stdout"), work.join("stderr"));
    let create = |path: &Path| File::create(path).map_err(|e| format!("{}: {e}", path.display()));
    command.stdin(Stdio::null()).stdout(create(&out)?).stderr(create(&err)?);
    let start = Instant::now();
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().map_err(|e| format!("{name}: {e}"))?;
    let status = loop {
        match child.try_wait().map_err(|e| format!("{name}: {e}"))? {
            Some(status) => break Some(status),
            None if start.elapsed() > TIME_MAX => {
                let _ = child.kill(); // may have ended just now
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(POLL),
        }
    };
    let read =
        |path: &Path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let seconds = start.elapsed().as_secs_f64();
    let (out, err) = (read(&out).unwrap_or_default(), read(&err).unwrap_or_default());
    Ok(Run { status, out, err, seconds })
}
