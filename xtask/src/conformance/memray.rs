//! memray's example programs, recorded with memray and with Heaptide. Its reader reads both files;
//! compared are the bytes at peak of each line of the program.
//!
//! The variable `MEMRAY_PYTHON` (a Python with memray and numpy) is optional.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use super::program::{self, done};
use super::row::{Outcome, Row};

/// Programs that need only numpy.
const PROGRAMS: [&str; 3] =
    ["mandelbrot/mandelbrot.py", "mandelbrot/mandelbrot-threaded.py", "sqlite/example.py"];

/// Prints each line of the program and the bytes that it allocated itself and holds at the peak.
/// Those of modules that it imports differ: memray has already imported some of them.
const READ: &str = "import collections, memray, sys\n\
    sums = collections.Counter()\n\
    reader = memray.FileReader(sys.argv[1])\n\
    for record in reader.get_high_watermark_allocation_records(merge_threads=True):\n    \
        for _, file, line in record.stack_trace(max_stacks=1):\n        \
            if file.endswith(sys.argv[2]): sums[line] += record.size\n\
    for line, size in sums.items(): print(line, size)\n";

/// Lines that hold less than this part of the peak are not compared.
const PART: u64 = 100;
/// Sizes of memray are requested sizes, those of Heaptide usable ones: they may differ by one part
/// in this.
const TOLERANCE: u64 = 50;

/// Runs the programs.
pub fn run(checkout: &Path, work: &Path) -> Vec<Row> {
    let rows = PROGRAMS.iter().map(|program| {
        let name = format!("docs/examples/{program}");
        compare(&checkout.join(&name), work, &name).unwrap_or_else(|row| row)
    });
    rows.collect()
}

fn compare(source: &Path, work: &Path, name: &str) -> Result<Row, Row> {
    let interpreted = |row| Row { compiled: Outcome::NotApplicable, ..row };
    let failed = |why| interpreted(Row::failed(name, why));
    let own = recorded_by_heaptide(source, work).map_err(failed)?;
    let (same, why) = match recorded_by_memray(source, work) {
        Err(why) => (Outcome::NotApplicable, why),
        Ok(other) => compared(&own, &other),
    };
    Ok(interpreted(Row::compared(name, same, why)))
}

/// Compares the lines that hold most.
fn compared(own: &BTreeMap<u64, u64>, other: &BTreeMap<u64, u64>) -> (Outcome, String) {
    let peak: u64 = other.values().sum();
    let of = |line: &u64| own.get(line).copied().unwrap_or(0);
    let large = other.iter().filter(|(_, bytes)| **bytes > peak / PART);
    let is_off = |line: &u64, bytes: u64| of(line).abs_diff(bytes) > bytes / TOLERANCE;
    let differs = large.clone().find(|(line, bytes)| is_off(line, **bytes));
    match differs {
        Some((line, bytes)) => {
            (Outcome::No, format!("line {line}: {} bytes at peak, not {bytes}", of(line)))
        }
        None => (
            Outcome::from(peak > 0),
            format!("lines with equal bytes at peak, within 2 %: {}", large.count()),
        ),
    }
}

fn python() -> Command {
    Command::new(env::var_os("MEMRAY_PYTHON").as_deref().unwrap_or(OsStr::new("python3")))
}

fn recorded_by_heaptide(source: &Path, work: &Path) -> Result<BTreeMap<u64, u64>, String> {
    let (command, recording) = (work.join("heaptide"), work.join("recording"));
    let mut run = Command::new(&command);
    run.args(["run", "-q", "--force", "-o"]).arg(&recording).arg("--");
    done(run.arg(python().get_program()).arg(source), work)?;
    let file = work.join("own.bin");
    let mut export = Command::new(&command);
    export.args(["export", "--format", "memray", "--python", "only", "--force", "-o"]).arg(&file);
    done(export.arg(&recording), work)?;
    lines(&file, source, work)
}

fn recorded_by_memray(source: &Path, work: &Path) -> Result<BTreeMap<u64, u64>, String> {
    let file = work.join("other.bin");
    let mut run = python();
    run.args(["-m", "memray", "run", "-q", "-f", "--aggregate", "--trace-python-allocators", "-o"]);
    done(run.arg(&file).arg(source), work)?;
    lines(&file, source, work)
}

/// Returns the bytes at peak of each line of a program.
fn lines(file: &Path, source: &Path, work: &Path) -> Result<BTreeMap<u64, u64>, String> {
    let name = source.file_name().unwrap_or_default();
    let mut command = python();
    command.args(["-c", READ]).arg(file).arg(name).current_dir(work);
    let run = program::run(&mut command, work)?;
    if !run.is_ok() {
        return Err(run.reason());
    }
    let parsed = run.out.lines().map(|line| {
        let (line, bytes) = line.split_once(' ')?;
        Some((line.parse().ok()?, bytes.parse().ok()?))
    });
    parsed.collect::<Option<_>>().ok_or_else(|| format!("{}: no numbers", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_most_bytes_are_compared() {
        let other = BTreeMap::from([(1, 1_000_000), (2, 500_000), (3, 100)]);
        let own = BTreeMap::from([(1, 1_000_100), (2, 500_000), (4, 7)]);
        assert!(matches!(compared(&own, &other).0, Outcome::Yes));
        let without = BTreeMap::from([(1, 1_000_000)]);
        let (outcome, why) = compared(&without, &other);
        assert!(matches!(outcome, Outcome::No), "{why}");
        assert_eq!(why, "line 2: 0 bytes at peak, not 500000");
        assert!(matches!(compared(&own, &BTreeMap::new()).0, Outcome::No));
    }
}
