//! Tests of CMS's PerfTools/AllocMonitor, and its Services in a program that calls their signals.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program::{self, Run};
use super::row::{Outcome, Row};

/// The framework's interface as Services use it, and a program that calls their signals.
const FRAMEWORK: &str = include_str!("../../../tests/compat/cms_framework.h");
const HOST: &str = include_str!("../../../tests/compat/cms_services.cpp");
/// Headers of the framework that Services include.
const HEADERS: [&str; 3] = [
    "FWCore/ServiceRegistry/interface/ServiceRegistry.h",
    "FWCore/MessageLogger/interface/MessageLogger.h",
    "FWCore/ServiceRegistry/interface/ServiceMaker.h",
];
const PRELOAD: &str = "libPerfToolsAllocMonitorPreload.so";

/// Runs the tests that need no other part of the framework, and the Services.
pub fn run(checkout: &Path, work: &Path) -> Vec<Row> {
    let package = checkout.join("PerfTools/AllocMonitor");
    let mut rows = vec![
        test(&package, work, "test/test_proxies.cc", &[]),
        test(&package, work, "test/test_catch2_AllocMonitorRegistry.cc", &["-lCatch2"]),
    ];
    let prepared = prepare(work);
    for name in ["SimpleAllocMonitor", "EventProcessingAllocMonitor", "HistogrammingAllocMonitor"] {
        let source = format!("plugins/{name}.cc");
        rows.push(match &prepared {
            Ok(()) => service(&package, work, &source, name),
            Err(why) => Row::not_compiled(&source, why.clone()),
        });
    }
    rows
}

fn compile(work: &Path, sources: &[PathBuf], flags: &[&str]) -> Result<PathBuf, String> {
    let program = work.join("program");
    let mut command = Command::new("c++");
    command.args(["-std=c++20", "-O0", "-g", "-pthread", "-w", "-fno-builtin", "-I"]).arg(work);
    command.arg("-I").arg(work.join("sdk/include/compat")).args(sources);
    let run = program::run(command.args(flags).arg("-o").arg(&program), work)?;
    if run.is_ok() { Ok(program) } else { Err(run.reason()) }
}

fn start(program: &Path, work: &Path, with_preload: bool) -> Result<Run, String> {
    let mut command = Command::new(program);
    if with_preload {
        command.env("LD_PRELOAD", work.join("sdk/lib/compat").join(PRELOAD));
    }
    program::run(command.env("TMPDIR", work).current_dir(work), work)
}

/// Runs a test that checks itself.
fn test(package: &Path, work: &Path, source: &str, flags: &[&str]) -> Row {
    // Catch2 has one header with this name or several, depending on its version.
    let catch = "#if __has_include(<catch2/catch.hpp>)\n#include <catch2/catch.hpp>\n#else\n\
                 #include <catch2/catch_all.hpp>\n#endif\n";
    let _ = fs::write(work.join("catch.hpp"), catch); // shows as an error of the compiler
    let sources = [package.join(source)];
    let compiled = compile(work, &sources, flags).or_else(|_| compile(work, &sources, &[]));
    let program = match compiled {
        Ok(program) => program,
        Err(why) => return Row::not_compiled(source, why),
    };
    match start(&program, work, !source.contains("Registry")) {
        Ok(run) if run.is_ok() => Row::compared(source, Outcome::Yes, "its own checks pass"),
        Ok(run) => Row::failed(source, run.reason()),
        Err(why) => Row::failed(source, why),
    }
}

/// Writes the headers of the framework.
fn prepare(work: &Path) -> Result<(), String> {
    let write = |path: PathBuf, text: &str| {
        path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text))
    };
    let failed = |e: std::io::Error| format!("{}: {e}", work.display());
    write(work.join("cms_framework.h"), FRAMEWORK).map_err(failed)?;
    write(work.join("cms_services.cpp"), HOST).map_err(failed)?;
    for header in HEADERS {
        write(work.join(header), "#include \"cms_framework.h\"\n").map_err(failed)?;
    }
    Ok(())
}

/// Compiles a Service unchanged, and runs it in a program whose numbers are known.
fn service(package: &Path, work: &Path, source: &str, name: &str) -> Row {
    let sources = [package.join(source), work.join("cms_services.cpp")];
    let program = match compile(work, &sources, &[]) {
        Ok(program) => program,
        Err(why) => return Row::not_compiled(source, why),
    };
    let run = match start(&program, work, true) {
        Ok(run) if run.is_ok() => run,
        Ok(run) => return Row::failed(source, run.reason()),
        Err(why) => return Row::failed(source, why),
    };
    let expected = expected(name);
    let missing = expected.iter().find(|line| !run.out.lines().any(|printed| printed == **line));
    match missing {
        None => {
            let why = "the report of a program with known blocks; headers of ours replace the \
                       framework's";
            Row::compared(source, Outcome::Yes, why)
        }
        Some(line) => Row::compared(source, Outcome::No, format!("no line `{line}`")),
    }
}

/// Returns lines of a report for the blocks that `cms_services.cpp` allocates, with glibc.
fn expected(name: &str) -> &'static [&'static str] {
    match name {
        "SimpleAllocMonitor" => &[
            "Memory Report",
            "  total additional memory requested: 9600",
            "  max additional memory used: 5512",
            "  # allocations calls:   8",
            "  # deallocations calls: 8",
        ],
        "EventProcessingAllocMonitor" => &[
            "Event Processing Memory Report",
            "  total additional memory requested: 9000",
            "  max additional memory used: 5008",
            "  total additional memory not deallocated: 3000",
            "  # allocations calls:   6",
            "  # deallocations calls: 3",
        ],
        _ => &[
            "         256            1            1            1",
            "         512            3            3            3",
            "        1024            3            3            3",
        ],
    }
}
