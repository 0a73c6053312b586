//! Runs test programs under UndefinedBehaviorSanitizer, to ensure that recorded programs are
//! correct.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::commands::target;

/// Time limit; some programs run until a test ends them.
const LONGEST: Duration = Duration::from_secs(5);
/// The minimal number of programs that need only a compiler.
const PROGRAMS_LEAST: usize = 100;

/// Builds and runs all programs that need no flags of their own.
///
/// # Errors
///
/// The sanitizer reports an error, or there are too few programs.
pub fn run_programs(root: &Path) -> Result<(), String> {
    let place = target(root).join("sanitizers");
    std::fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    let mut found = Vec::new();
    let mut count = 0;
    for source in sources(root)? {
        let Some(program) = build(root, &source, &place) else { continue };
        count += 1;
        let report = report(&program, &place)?;
        if let Some(line) = report.lines().find(|line| line.contains("runtime error: ")) {
            found.push(line.to_owned());
        }
    }
    println!("sanitizers: {count} programs, {} with undefined behaviour", found.len());
    match found.is_empty() {
        _ if count < PROGRAMS_LEAST => Err(format!("only {count} programs could be built")),
        true => Ok(()),
        false => Err(found.join("\n")),
    }
}

fn sources(root: &Path) -> Result<Vec<PathBuf>, String> {
    let directory = root.join("tests/programs");
    let entries =
        std::fs::read_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "c" || e == "cpp"));
    paths.sort();
    Ok(paths)
}

/// Returns `None` if the program needs more than a compiler, as parts of other programs do.
fn build(root: &Path, source: &Path, place: &Path) -> Option<PathBuf> {
    let is_c = source.extension().is_some_and(|e| e == "c");
    let program = place.join(source.file_name()?);
    let mut compiler = Command::new(if is_c { "gcc" } else { "g++" });
    compiler.args(["-O1", "-g", "-w", "-fno-builtin", "-fsanitize=undefined"]);
    compiler.arg("-I").arg(root.join("include")).arg("-o").arg(&program).arg(source);
    compiler.args(["-ldl", "-lpthread", "-lm"]).stderr(Stdio::null());
    compiler.status().is_ok_and(|status| status.success()).then_some(program)
}

/// Returns the program's standard error.
fn report(program: &Path, place: &Path) -> Result<String, String> {
    let failed = |error| format!("{}: {error}", program.display());
    let path = place.join("stderr");
    let errors = std::fs::File::create(&path).map_err(failed)?;
    let seconds = LONGEST.as_secs().to_string();
    let mut command = Command::new("timeout");
    command.args(["--signal", "KILL", &seconds]).arg(program).current_dir(place);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    command.status().map_err(failed)?; // some end by a signal on purpose
    Ok(String::from_utf8_lossy(&std::fs::read(&path).map_err(failed)?).into_owned())
}
