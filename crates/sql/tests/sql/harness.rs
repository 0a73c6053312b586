//! Recordings for the tests, created once, and commands that run on them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Returns the command that is next to the SQL engine's program.
pub fn heaptide() -> Command {
    let path = Path::new(env!("CARGO_BIN_EXE_heaptide-sql")).with_file_name("heaptide");
    assert!(path.is_file(), "{} is not there; `cargo build` makes it", path.display());
    let mut command = Command::new(path);
    for (name, _) in std::env::vars() {
        if name.starts_with("HEAPTIDE_") || name.starts_with("LD_") {
            command.env_remove(name);
        }
    }
    command
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Creates an empty directory for one test.
pub fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a scratch directory");
    path
}

/// Runs a command that has to succeed, and returns its standard output.
pub fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("a program");
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}: {stderr}");
    String::from_utf8(stdout).expect("UTF-8")
}

/// Returns the message of a command that has to fail.
pub fn refused(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("a program");
    assert_eq!((status.code(), &*stdout), (Some(2), &b""[..]), "{command:?}");
    String::from_utf8(stderr).expect("UTF-8")
}

/// Returns the result of a statement as rows.
pub fn rows(source: &Path, sql: &str) -> Vec<serde_json::Value> {
    let text = output(heaptide().args(["sql", "--format", "json", sql]).arg(source));
    serde_json::from_str(&text).expect("a list of rows")
}

/// Returns a trace of the program with scopes and labels, whose header in
/// `tests/programs/timesteps.c` has the expected numbers, and a recording of the C++ compiler with
/// its processes. Each test process creates its own.
pub fn recordings() -> &'static [PathBuf; 2] {
    static MADE: OnceLock<[PathBuf; 2]> = OnceLock::new();
    MADE.get_or_init(|| {
        let place = scratch(&format!("recordings-{}", std::process::id()));
        let programs = root().join("tests/programs");
        let program = place.join("timesteps");
        let include = root().join("include");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-g", "-fno-builtin", "-I"]).arg(include).arg("-I").arg(&programs);
        output(gcc.arg(programs.join("timesteps.c")).arg("-o").arg(&program));
        let steps = place.join("steps.heaptide");
        output(recorded(&steps, &["--mode", "trace"]).arg(program));
        let source = place.join("small.cpp");
        let text = "#include <map>\n#include <string>\nstd::map<int, std::string> names;\n";
        fs::write(&source, text).expect("a source");
        let compiler = place.join("compiler.heaptide");
        let mut compile = recorded(&compiler, &[]);
        output(compile.args(["g++", "-c"]).arg(source).arg("-o").arg(place.join("small.o")));
        [steps, compiler]
    })
}

/// Returns `heaptide run`, to be followed by a program.
pub fn recorded(recording: &Path, options: &[&str]) -> Command {
    let mut command = heaptide();
    command.args(["run", "--quiet", "-o"]).arg(recording).args(options).arg("--");
    command
}

/// Returns all files in and below a directory, sorted.
pub fn files(place: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(place).expect("a directory") {
        let path = entry.expect("a name").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Records this many ranks of a job and exports them; returns the directory of the recordings and
/// the dataset.
pub fn job_and_dataset(place: &Path, ranks: usize) -> [PathBuf; 2] {
    let programs = root().join("tests/programs");
    let program = place.join("ranks");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-fno-builtin", "-I"]).arg(&programs);
    output(gcc.arg(programs.join("ranks.c")).arg("-o").arg(&program));
    let [job, dataset] = ["job", "dataset"].map(|name| place.join(name));
    fs::create_dir(&job).expect("a directory");
    for rank in 0..ranks {
        let recording = job.join(format!("r{rank}.heaptide"));
        let rank = rank.to_string();
        output(recorded(&recording, &[]).arg(&program).arg(&rank).env("HEAPTIDE_RANK", &rank));
        let mut export = heaptide();
        export.args(["export", "--format", "parquet", "-o"]).arg(&dataset).arg(&recording);
        output(&mut export);
    }
    [job, dataset]
}
