//! heaptrack's programs of manual tests, recorded with heaptrack and with Heaptide. Its reader,
//! `heaptrack_print`, reads both; compared are the calls to allocation functions of each chain of
//! the program's functions.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program::done;
use super::row::{Outcome, Row};

/// Programs that end by themselves, and need neither arguments nor libraries of the checkout.
const PROGRAMS: [&str; 8] = [
    "callgraph.cpp",
    "inlining.cpp",
    "libc_leaks.c",
    "peak.c",
    "test.c",
    "test.cpp",
    "test_aggregation.cpp",
    "threaded.cpp",
];

/// Runs the programs.
pub fn run(checkout: &Path, work: &Path) -> Vec<Row> {
    let rows = PROGRAMS.iter().map(|program| {
        let name = format!("tests/manual/{program}");
        compare(&checkout.join(&name), work, &name).unwrap_or_else(|row| row)
    });
    rows.collect()
}

fn compare(source: &Path, work: &Path, name: &str) -> Result<Row, Row> {
    let program = compile(source, work).map_err(|why| Row::not_compiled(name, why))?;
    let failed = |why| Row::failed(name, why);
    let own = recorded_by_heaptide(&program, work).map_err(failed)?;
    let file = source.file_name().unwrap_or_default();
    let own = calls(&own, file, work).map_err(failed)?;
    let why = |why| Row::compared(name, Outcome::NotApplicable, why);
    let with_heaptrack = || {
        let recorded = recorded_by_heaptrack(&program, work).map_err(why)?;
        calls(&recorded, file, work).map_err(why)
    };
    // Calls that differ between runs, such as those for stacks of threads, cannot be compared.
    let (mut other, again) = (with_heaptrack()?, with_heaptrack()?);
    other.retain(|chain, calls| again.get(chain) == Some(calls));
    let missing = other.iter().filter(|(chain, calls)| own.get(*chain) != Some(calls));
    let sum: u64 = other.values().sum();
    Ok(match missing.clone().next() {
        None => {
            let count = other.len();
            let why = format!("chains of functions with equal calls: {count}; calls: {sum}");
            Row::compared(name, Outcome::Yes, why)
        }
        Some((chain, calls)) => {
            let found = own.get(chain).copied().unwrap_or(0);
            let why = format!("{chain}: {found} calls, not {calls}");
            Row::compared(name, Outcome::No, why)
        }
    })
}

fn compile(source: &Path, work: &Path) -> Result<PathBuf, String> {
    // Configured by the build of heaptrack; the programs use nothing of it.
    let header = work.join("util/config.h");
    fs::create_dir_all(work.join("util"))
        .and_then(|()| fs::write(&header, ""))
        .map_err(|e| format!("{}: {e}", header.display()))?;
    let program = work.join("program");
    let compiler = if source.extension() == Some(OsStr::new("c")) { "cc" } else { "c++" };
    let with = |level: &str| {
        let mut command = Command::new(compiler);
        command.args(["-g", level, "-w", "-pthread", "-fno-builtin", "-I"]).arg(work).arg(source);
        done(command.arg("-o").arg(&program), work)
    };
    with("-O0").or_else(|_| with("-O1"))?; // inline functions of C have no other definition
    Ok(program)
}

/// Records with Heaptide, and exports for heaptrack's readers.
fn recorded_by_heaptide(program: &Path, work: &Path) -> Result<PathBuf, String> {
    let (command, recording) = (work.join("heaptide"), work.join("recording"));
    let mut run = Command::new(&command);
    run.args(["run", "-q", "--force", "-o"]).arg(&recording).arg("--").arg(program);
    done(&mut run, work)?;
    let file = work.join("own.heaptrack");
    let mut export = Command::new(&command);
    export.args(["export", "--format", "heaptrack", "--force", "-o"]).arg(&file);
    done(export.arg(&recording), work)?;
    Ok(file)
}

fn recorded_by_heaptrack(program: &Path, work: &Path) -> Result<PathBuf, String> {
    let file = work.join("other");
    done(Command::new("heaptrack").arg("-o").arg(&file).arg(program), work)?;
    let written = ["gz", "zst"].map(|suffix| file.with_extension(suffix));
    written.into_iter().find(|file| file.exists()).ok_or("heaptrack wrote no file".to_owned())
}

/// Returns the allocations of each chain of functions of a source file, outermost first.
fn calls(file: &Path, source: &OsStr, work: &Path) -> Result<BTreeMap<String, u64>, String> {
    let stacks = work.join("stacks");
    let mut print = Command::new("heaptrack_print");
    print.args(["--flamegraph-cost-type", "allocations", "-F"]).arg(&stacks).arg(file);
    done(&mut print, work)?;
    let text = fs::read_to_string(&stacks).map_err(|e| format!("{}: {e}", stacks.display()))?;
    let suffix = format!(" ({})", source.to_string_lossy());
    let mut calls = BTreeMap::new();
    for line in text.lines() {
        let Some((stack, number)) = line.rsplit_once(' ') else { continue };
        let own = stack.split(';').filter_map(|frame| frame.strip_suffix(&suffix));
        // heaptrack ends stacks at what the compiler makes this call.
        let own = own.filter(|name| !name.starts_with("_GLOBAL__sub_I_"));
        // Names have parameters or not, depending on their source.
        let chain: Vec<&str> = own.map(|name| name.split('(').next().unwrap_or(name)).collect();
        if !chain.is_empty() {
            *calls.entry(chain.join(" > ")).or_default() += number.parse::<u64>().unwrap_or(0);
        }
    }
    calls.retain(|_, number| *number > 0);
    if calls.is_empty() {
        Err("no stack has a function of the program".to_owned())
    } else {
        Ok(calls)
    }
}
