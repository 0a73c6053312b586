//! Runs programs, and returns paths of build results.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Returns the standard output of a program.
pub fn output(command: &mut Command) -> Result<String, String> {
    let shown = shown(command);
    let done = command.output().map_err(|e| format!("{shown}: {e}"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(format!("{shown}: {}: {}", done.status, said.trim()));
    }
    String::from_utf8(done.stdout).map_err(|e| format!("{shown}: {e}"))
}

/// Runs a program, with its output passed through.
pub fn run(command: &mut Command) -> Result<(), String> {
    let shown = shown(command);
    println!("== {shown}");
    let start = Instant::now();
    let status = command.status().map_err(|e| format!("{shown}: {e}"))?;
    println!("== {shown}: {status}, {:.0} s", start.elapsed().as_secs_f64());
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
}

/// Runs cargo, with its output passed through.
pub fn cargo(root: &Path, arguments: &[&str]) -> Result<(), String> {
    run(Command::new(cargo_program()).args(arguments).current_dir(root))
}

/// Builds the command like the tests, and returns its path.
pub fn heaptide(root: &Path) -> Result<PathBuf, String> {
    output(
        Command::new(cargo_program())
            .args(["build", "--quiet", "--package", "heaptide-cli"])
            .current_dir(root),
    )?;
    Ok(command(root))
}

/// Returns the path of the built command.
pub fn command(root: &Path) -> PathBuf {
    target(root).join("debug/heaptide")
}

/// Returns the cargo that runs this program.
pub fn cargo_program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string())
}

/// Returns the target directory.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Formats a command as a shell user would type it, without the directory of its program.
pub fn shown(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
