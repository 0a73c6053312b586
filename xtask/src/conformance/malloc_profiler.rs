//! Tests and demonstrations of MallocProfiler. Its own library needs a compiler whose C++ library
//! has `<stacktrace>`; without one, results are compared only with what the tests assert.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program::{self, Run};
use super::row::{Outcome, Row};

/// The library that is preloaded into a test.
const ON: &str = "mallocProfiler.so";
const OFF: &str = "mallocProfilerOFF.so";

/// Runs the tests as `tests/run` does.
pub fn run(checkout: &Path, work: &Path) -> Vec<Row> {
    let tool = build_tool(checkout, work);
    let chain = build_chain(checkout, work);
    let mut rows = Vec::new();
    for preload in ["", OFF, ON] {
        let test = format!("tests/simpleTest.cpp {preload}").trim_end().to_owned();
        rows.push(match &chain {
            Ok(()) => row(checkout, work, tool.as_deref(), (&test, preload), &["libA.so"]),
            Err(why) => Row::not_compiled(&test, why.clone()),
        });
    }
    let test = format!("tests/mtTest.cpp {ON}");
    rows.push(row(checkout, work, tool.as_deref(), (&test, ON), &["-pthread", "-fopenmp"]));
    for flag in ["", "-DRESERVE"] {
        let test = format!("demos/instrumentationDemo.cpp {OFF} {flag}");
        let flags: &[&str] = match flag {
            "" => &["-DDUMP_COMPACT"],
            _ => &["-DDUMP_COMPACT", "-DRESERVE"],
        };
        rows.push(row(checkout, work, tool.as_deref(), (test.trim_end(), OFF), flags));
    }
    rows
}

/// The programs that one test is compiled to.
struct Programs {
    own: PathBuf,
    /// None if MallocProfiler does not build.
    other: Option<PathBuf>,
}

/// Builds MallocProfiler's libraries.
fn build_tool(checkout: &Path, work: &Path) -> Option<PathBuf> {
    let place = work.join("tool");
    fs::create_dir_all(&place).ok()?;
    let library = |source: &str, target: &str, flags: &[&str]| {
        let mut command = Command::new("c++");
        command.args(["-O3", "-pthread", "-fPIC", "-shared", "-std=c++23", "-w", "-I"]);
        command.arg(checkout.join("include")).arg(checkout.join(source));
        command.arg("-o").arg(place.join(target)).args(flags);
        program::run(&mut command, work).is_ok_and(|run| run.is_ok())
    };
    let flags = ["-lstdc++exp", "-ldl", "-Wl,-E"];
    let is_built = library("src/dummy.cc", "dummyMallocProfiler.so", &[])
        && library("plugins/mallocProfiler.cc", ON, &flags)
        && library(
            "plugins/mallocProfiler.cc",
            OFF,
            &["-lstdc++exp", "-ldl", "-Wl,-E", "-DMALLOC_PROFILER_OFF"],
        );
    is_built.then_some(place)
}

/// Builds the two libraries through which `simpleTest` calls itself.
fn build_chain(checkout: &Path, work: &Path) -> Result<(), String> {
    for (define, target, libraries) in
        [("-DBLIB", "libB.so", None), ("-DALIB", "libA.so", Some("libB.so"))]
    {
        let mut command = Command::new("c++");
        command.args(["-std=c++23", "-O", "-shared", "-fPIC", "-g", "-w", "-Wl,-rpath=."]);
        command.arg(define).arg(checkout.join("tests/chain.cc")).arg("-o").arg(target);
        let run = program::run(command.args(libraries).current_dir(work), work)?;
        if !run.is_ok() {
            return Err(run.reason());
        }
    }
    Ok(())
}

fn compile(
    checkout: &Path,
    work: &Path,
    test: &str,
    flags: &[&str],
    tool: Option<&Path>,
) -> Result<PathBuf, String> {
    let source = test.split(' ').next().unwrap_or(test);
    // The tests include the header by its path from their directory.
    let place = work.join(if tool.is_some() { "with-tool" } else { "with-sdk" });
    let copied = place.join(source);
    let include = place.join("include");
    fs::create_dir_all(copied.parent().unwrap_or(&place))
        .and_then(|()| fs::create_dir_all(&include))
        .and_then(|()| fs::copy(checkout.join(source), &copied))
        .map_err(|e| format!("{source}: {e}"))?;
    let (header, dummy) = match tool {
        Some(tool) => (checkout.join("include/mallocProfiler.h"), tool.to_owned()),
        None => (work.join("sdk/include/compat/mallocProfiler.h"), work.join("sdk/lib/compat")),
    };
    // Included by a path, the header finds its own parts by theirs.
    let forward = format!("#include \"{}\"\n", header.display());
    fs::write(include.join("mallocProfiler.h"), forward).map_err(|e| format!("{source}: {e}"))?;
    let program = place.join("program");
    let mut command = Command::new("c++");
    command.args(["-std=c++23", "-O3", "-g", "-w", "-Wl,-rpath=.", "-I"]).arg(&include);
    command.arg(&copied).arg(dummy.join("dummyMallocProfiler.so")).args(flags);
    command.arg("-o").arg(&program).current_dir(work);
    let run = program::run(&mut command, work)?;
    if run.is_ok() { Ok(program) } else { Err(run.reason()) }
}

fn start(program: &Path, work: &Path, libraries: &Path, preload: &str) -> Result<Run, String> {
    // On a terminal, since the demonstration ends without writing what a file has not got yet.
    let preloaded = libraries.join(preload);
    let set = format!("LD_PRELOAD='{}' ", preloaded.display());
    let set = if preload.is_empty() { "" } else { &*set };
    let mut command = Command::new("script");
    command.args(["-qec", &format!("{set}'{}'", program.display()), "/dev/null"]);
    command.env("HEAPTIDE_COMMAND", work.join("heaptide")).env("TMPDIR", work).current_dir(work);
    program::run(&mut command, work)
}

fn row(
    checkout: &Path,
    work: &Path,
    tool: Option<&Path>,
    (test, preload): (&str, &str),
    flags: &[&str],
) -> Row {
    let programs = Programs {
        own: match compile(checkout, work, test, flags, None) {
            Ok(own) => own,
            Err(why) => return Row::not_compiled(test, why),
        },
        other: tool.and_then(|tool| compile(checkout, work, test, flags, Some(tool)).ok()),
    };
    let own = match start(&programs.own, work, &work.join("sdk/lib/compat"), preload) {
        Ok(run) if run.is_ok() => run,
        Ok(run) => return Row::failed(test, run.reason()),
        Err(why) => return Row::failed(test, why),
    };
    let (Some(tool), Some(other)) = (tool, &programs.other) else {
        let why = "its own checks pass; MallocProfiler did not build (`<stacktrace>`)";
        return Row::compared(test, Outcome::NotApplicable, why);
    };
    match start(other, work, tool, preload) {
        Ok(run) if run.is_ok() => compare(test, &own, &run),
        Ok(run) => {
            let why = format!("with MallocProfiler: {}", run.reason());
            Row::compared(test, Outcome::NotApplicable, why)
        }
        Err(why) => Row::compared(test, Outcome::NotApplicable, why),
    }
}

/// How names of functions begin that are not of the tests.
const OTHERS: [&str; 10] = [
    "operator new",
    "malloc",
    "calloc",
    "aligned_alloc",
    "std::",
    "void std::",
    "__gnu_cxx::",
    "_",
    "libc",
    "ld-linux",
];

/// Functions of the program in a stack of a dump, and its calls, total bytes, live bytes and
/// highest live bytes. Stacks without such a function are omitted.
fn lines(run: &Run) -> Vec<(Vec<String>, String)> {
    let mut lines: Vec<_> = run
        .out
        .lines()
        .chain(run.err.lines())
        .filter_map(|line| {
            let line = line.strip_prefix("_mpTrace_;")?.trim_end();
            // Dumps by the tests have spaces, that at exit `$`.
            let mut fields = line.rsplitn(5, ['$', ' ']);
            let (highest, live) = (fields.next()?, fields.next()?);
            let total: f64 = fields.next()?.parse().ok()?;
            let calls = fields.next()?;
            let numbers = format!("{calls} {total:.5e} {live} {highest}"); // it prints six digits
            let names = fields.next()?.trim_end();
            if names.contains("mallocProfiler::") {
                return None; // memory of MallocProfiler itself
            }
            let is_own = |name: &&str| !OTHERS.iter().any(|other| name.starts_with(other));
            let plain = |name: &str| name.split('(').next().unwrap_or(name).to_owned();
            let names: Vec<String> = names.split(';').filter(is_own).map(plain).collect();
            (!names.is_empty()).then_some((names, numbers))
        })
        .collect();
    lines.sort();
    lines
}

/// Compares the dumps line by line.
fn compare(test: &str, own: &Run, other: &Run) -> Row {
    let (own, other) = (lines(own), lines(other));
    // MallocProfiler has no inlined functions.
    let has_all = |own: &[String], names: &[String]| {
        let mut own = own.iter();
        names.iter().all(|name| own.any(|one| one == name))
    };
    let is_there = |(names, numbers): &&(Vec<String>, String)| {
        own.iter().any(|(own, same)| same == numbers && has_all(own, names))
    };
    if other.is_empty() {
        return Row::compared(test, Outcome::NotApplicable, "its own checks pass; it has no dumps");
    }
    let missing = other.iter().filter(|line| !is_there(line)).count();
    let why = format!(
        "{} of {} lines of MallocProfiler's dumps have the same functions and four numbers",
        other.len() - missing,
        other.len()
    );
    if test.contains("mtTest") {
        let why = format!("{why}; MallocProfiler loses events of threads at random");
        return Row::compared(test, Outcome::NotApplicable, why);
    }
    Row::compared(test, (missing == 0).into(), why)
}
