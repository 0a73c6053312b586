//! Processor time of single tests: nextest starts each through this program, which waits for it.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

/// The command of this program that runs a test and appends its time to a file.
pub const COMMAND: &str = "run-measured";
/// Variables that nextest sets for a test, but not when it lists tests.
const BINARY_ID: &str = "NEXTEST_BINARY_ID";
const TEST_NAME: &str = "NEXTEST_TEST_NAME";
/// The unit of times in `/proc/PID/stat`, in seconds: the same on all processors of Linux that the
/// recorder supports.
const TICK: f64 = 0.01;
/// The first field after the name of the program, which contains any characters, has the number 3.
const FIRST_FIELD: usize = 3;
/// User and system time of children that this process has waited for, and of theirs.
const CHILDREN_FIELDS: [usize; 2] = [16, 17];

/// Runs a program, and appends a line `BINARY TEST SECONDS` to a file: `run-measured FILE PROGRAM
/// ARGUMENT…`. Returns the exit status of the program.
///
/// # Errors
///
/// The program cannot be started, or the file cannot be written.
pub fn run_measured(arguments: &[String]) -> Result<ExitCode, String> {
    let [log, program, rest @ ..] = arguments else {
        return Err(format!("{COMMAND}: expected FILE PROGRAM ARGUMENT…"));
    };
    let status = Command::new(program).args(rest).status();
    let status = status.map_err(|error| format!("{program}: {error}"))?;
    if let (Ok(binary), Ok(test)) = (std::env::var(BINARY_ID), std::env::var(TEST_NAME)) {
        let line = format!("{binary} {test} {:.2}\n", of_children()?);
        let file = OpenOptions::new().append(true).create(true).open(log);
        // In one call, because others append to the file at the same time.
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(|error| format!("{log}: {error}"))?;
    }
    // As shells report the end by a signal.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)))
}

/// Returns the processor time of processes that this one has waited for, in seconds.
pub fn of_children() -> Result<f64, String> {
    let path = "/proc/self/stat";
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    children(&text).ok_or_else(|| format!("{path}: `{text}`: expected times of children"))
}

fn children(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = CHILDREN_FIELDS.map(|field| fields.get(field - FIRST_FIELD)?.parse::<u32>().ok());
    Some(f64::from(ticks[0]? + ticks[1]?) * TICK)
}

/// Returns the times in a file of [`run_measured`], by binary and test.
pub fn parse(log: &str) -> Result<BTreeMap<(String, String), f64>, String> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [binary, test, seconds] = words[..] else { return None };
        Some(((binary.to_owned(), test.to_owned()), seconds.parse().ok()?))
    };
    let lines = log.lines().map(|text| {
        line(text).ok_or_else(|| format!("`{text}`: expected a binary, a test and seconds"))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_children_follow_the_name() {
        let stat = "7 (a) 9 b) S 1 7 7 0 -1 4 1 2 3 4 500 600 150 25 20 0 1 0 99";
        assert_eq!(children(stat), Some(1.75));
        assert_eq!(children("7 (a) S 1"), None);
        assert!(of_children().is_ok());
    }

    #[test]
    fn lines_have_binary_test_and_seconds() {
        let times = parse("a::b m::x 0.25\na y 0.00\n").unwrap();
        assert_eq!(times[&("a::b".to_owned(), "m::x".to_owned())], 0.25);
        assert_eq!(times.len(), 2);
        assert!(parse("a y").unwrap_err().contains("`a y`"));
    }

    #[test]
    fn the_status_is_that_of_the_program() {
        let run = |script: &str| {
            let words = ["/dev/null", "sh", "-c", script].map(ToOwned::to_owned);
            format!("{:?}", run_measured(&words).unwrap())
        };
        assert_eq!(run("exit 7"), format!("{:?}", ExitCode::from(7)));
        assert_eq!(run("kill -9 $$"), format!("{:?}", ExitCode::from(137)));
        assert!(run_measured(&[]).is_err());
    }
}
