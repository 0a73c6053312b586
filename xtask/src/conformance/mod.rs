//! `cargo xtask conformance TOOL=CHECKOUT…`: compiles the tests and examples of other tools with
//! the SDK, runs them, compares the results with those of the tool, and writes
//! `docs/conformance.md`.

mod alloc_monitor;
mod caliper;
mod heaptrack;
mod malloc_profiler;
mod malloc_tag;
mod memray;
mod page;
mod program;
mod row;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{heaptide, output, target};
use row::Row;

/// A tool whose tests can be run.
struct Tool {
    /// Its name on the command line and as a heading of the page.
    name: &'static str,
    /// Runs the tests of a checkout. The second directory is empty but for `sdk`, which `heaptide
    /// sdk` has written, and `heaptide`, a link to the command.
    run: fn(&Path, &Path) -> Vec<Row>,
}

/// All tools, in the order of the page.
const TOOLS: [Tool; 7] = [
    Tool { name: "malloc-tag", run: malloc_tag::run },
    Tool { name: "malloctag-tools", run: malloc_tag::run_tools },
    Tool { name: "Caliper", run: caliper::run },
    Tool { name: "AllocMonitor", run: alloc_monitor::run },
    Tool { name: "MallocProfiler", run: malloc_profiler::run },
    Tool { name: "heaptrack", run: heaptrack::run },
    Tool { name: "memray", run: memray::run },
];

const PAGE: &str = "docs/conformance.md";

/// Runs the tests of the named tools and rewrites their sections of the page.
///
/// # Errors
///
/// A tool is unknown, a checkout is not a directory, the command does not build, or the page cannot
/// be written. Tests that fail are no error.
pub fn conformance(root: &Path, arguments: &[String]) -> Result<(), String> {
    let names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
    let usage = || format!("conformance: expected TOOL=CHECKOUT… with {}", names.join(", "));
    let mut chosen = Vec::new();
    for argument in arguments {
        let (name, checkout) = argument.split_once('=').ok_or_else(usage)?;
        let tool = TOOLS.iter().find(|tool| tool.name == name).ok_or_else(usage)?;
        let checkout = fs::canonicalize(checkout).map_err(|e| format!("{checkout}: {e}"))?;
        chosen.push((tool, checkout));
    }
    if chosen.is_empty() {
        return Err(usage());
    }
    let command = heaptide(root)?;
    for (tool, checkout) in chosen {
        let work = prepare(root, tool, &command)?;
        let rows = (tool.run)(&checkout, &work);
        let path = root.join(PAGE);
        let old = fs::read_to_string(&path).unwrap_or_default(); // the first run creates it
        let version = version(tool, &checkout);
        let new = page::with_section(&old, &names, tool.name, &version, &rows);
        fs::write(&path, new).map_err(|e| format!("{PAGE}: {e}"))?;
        println!("{}: {} tests", tool.name, rows.len());
    }
    Ok(())
}

/// Creates the directory for the tests of a tool.
fn prepare(root: &Path, tool: &Tool, command: &Path) -> Result<PathBuf, String> {
    let work = target(root).join("conformance").join(tool.name);
    let failed = |e: std::io::Error| format!("{}: {e}", work.display());
    if work.exists() {
        fs::remove_dir_all(&work).map_err(failed)?;
    }
    fs::create_dir_all(&work).map_err(failed)?;
    symlink(command, work.join("heaptide")).map_err(failed)?;
    output(Command::new(command).arg("sdk").arg(work.join("sdk")))?;
    Ok(work)
}

/// Returns the tool with the version of its checkout.
fn version(tool: &Tool, checkout: &Path) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(checkout).args(["log", "-1", "--format=%h of %cs"]);
    match output(&mut git) {
        Ok(commit) => format!("{} at {}", tool.name, commit.trim()),
        Err(_) => tool.name.to_owned(),
    }
}
