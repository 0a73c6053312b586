//! The chores: each a list of programs to run, stopping at the first that fails.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::{commits, library, needs, options, stack, text, tidy};

/// The recorder: it has no std and its own panic handler, so it cannot be built as a test.
const CAPTURE: &str = "heaptide-capture";
/// The SQL engine: built by itself, with the features of its own dependencies, and only once.
const SQL: &str = "heaptide-sql";

/// Everything a change has to pass.
pub fn test(root: &Path) -> Result<(), String> {
    needs::install()?;
    cargo(root, &["fmt", "--all", "--check"])?;
    let rest = ["--workspace", "--exclude", CAPTURE, "--exclude", SQL];
    let warnings = ["--", "-D", "warnings"];
    cargo(root, &[&["clippy", "--all-targets"][..], &rest, &warnings].concat())?;
    cargo(root, &["clippy", "--package", CAPTURE, "--", "-D", "warnings"])?;
    self::tidy(root)?;
    if has_nextest(root) {
        cargo(root, &[&["nextest", "run", "--no-fail-fast"][..], &rest].concat())?;
        cargo(root, &[&["test", "--doc"][..], &rest].concat())?;
    } else {
        cargo(root, &[&["test", "--no-fail-fast"][..], &rest].concat())?;
    }
    sql(root)?;
    models(root)?;
    println!("\nall tests passed");
    Ok(())
}

/// The SQL engine's crate: its tests run the command that was built before.
fn sql(root: &Path) -> Result<(), String> {
    cargo(root, &["clippy", "--package", SQL, "--all-targets", "--", "-D", "warnings"])?;
    let test = if has_nextest(root) { &["nextest", "run"][..] } else { &["test"] };
    cargo(root, &[test, &["--no-fail-fast", "--package", SQL]].concat())
}

/// The models of the insert-only tables: every order of their steps, in a build of its own.
fn models(root: &Path) -> Result<(), String> {
    let mut command = Command::new(cargo_program());
    command.args(["test", "--release", "--package", "heaptide-unwind", "--lib"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target(root).join("loom"));
    run(command.current_dir(root))
}

/// The rules over sources and library; all problems are shown before it fails.
pub fn tidy(root: &Path) -> Result<(), String> {
    let mut problems = tidy::check(&text::all(root)?);
    let library = built_library(root)?;
    problems.extend(library::check(root, &library)?);
    problems.extend(stack::check(&library)?);
    problems.extend(options::check(root)?);
    problems.extend(commits::check(root));
    for problem in &problems {
        eprintln!("{problem}");
    }
    match problems.len() {
        0 => {
            println!("tidy: all rules kept");
            Ok(())
        }
        n => Err(format!("tidy: {n} problems, listed above")),
    }
}

/// The measurements, by the release build.
pub fn bench(root: &Path, options: &[String]) -> Result<(), String> {
    let build = ["build", "--release", "--package", "heaptide", "--package", "heaptide-synthetic"];
    cargo(root, &build)?;
    let heaptide = target(root).join("release/heaptide");
    let mut runner = Command::new("python3");
    runner.arg("benches/run.py").arg("--heaptide").arg(heaptide).args(options);
    run(runner.current_dir(root))
}

/// The command, as the tests build it.
pub fn heaptide(root: &Path) -> Command {
    let mut command = Command::new(cargo_program());
    command.args(["run", "--quiet", "--package", "heaptide", "--"]).current_dir(root);
    command
}

/// The library that the command carries.
fn built_library(root: &Path) -> Result<PathBuf, String> {
    let path = output(heaptide(root).arg("library").env_remove("HEAPTIDE_LIBRARY"))?;
    Ok(PathBuf::from(path.trim()))
}

/// What a program prints.
pub fn output(command: &mut Command) -> Result<String, String> {
    let shown = shown(command);
    let done = command.output().map_err(|e| format!("{shown}: {e}"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(format!("{shown}: {}: {}", done.status, said.trim()));
    }
    String::from_utf8(done.stdout).map_err(|e| format!("{shown}: {e}"))
}

/// Runs a program to its end, its output passing through.
pub fn run(command: &mut Command) -> Result<(), String> {
    let shown = shown(command);
    println!("== {shown}");
    let start = Instant::now();
    let status = command.status().map_err(|e| format!("{shown}: {e}"))?;
    println!("== {shown}: {status}, {:.0} s", start.elapsed().as_secs_f64());
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<(), String> {
    run(Command::new(cargo_program()).args(arguments).current_dir(root))
}

fn has_nextest(root: &Path) -> bool {
    let mut command = Command::new(cargo_program());
    command.args(["nextest", "--version"]).current_dir(root);
    output(&mut command).is_ok()
}

fn cargo_program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string())
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn shown(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
