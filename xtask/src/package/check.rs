//! Tests packages: installs each into a clean root, and there records a C program and a Python
//! program, and reports, exports and queries the recordings.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::programs;
use super::roots::{ROOTS, Root};
use super::tarball;
use super::tree::Tree;
use crate::commands::{output, run};

/// A kind of package.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Builds it, and returns its path.
    pub build: fn(&Path, &Tree) -> Result<PathBuf, String>,
    /// Installs it into a root, and returns the parent directory of `bin` there; `None` if such
    /// systems do not use this kind.
    pub install: fn(&Path, &Trial) -> Result<Option<String>, String>,
}

/// A root to install packages into.
pub struct Trial {
    root: &'static Root,
    place: PathBuf,
}

/// The C program; its comment explains the numbers.
const PROGRAM: &str = "examples/c/heat.c";
/// Its output about its own scope when recorded.
const PRINTED: &str = "its scope asked for 300000 bytes in 110 blocks";
/// A query for the totals of all blocks. A block that gets a label is counted twice.
const IN_C: &str = "SELECT sum(allocations) AS blocks, sum(requested_bytes) AS bytes FROM sites \
                    WHERE label IS NULL AND stack_contains(stack, '^main$')";
const BLOCKS_IN_C: &str = "112,1900000";
/// The Python program: 50 buffers, each with a terminating byte.
const IN_PYTHON: &str = "kept = [bytearray(100_000) for _ in range(50)]";
const BUFFERS: &str = "SELECT count(*) AS sites FROM sites \
                       WHERE allocations = 50 AND requested_bytes = 5000050";

/// Installs each package into each root and tests it there.
///
/// # Errors
///
/// A package does not work, or a root cannot be created.
pub fn all(root: &Path, packages: &[(&Kind, PathBuf)]) -> Result<(), String> {
    let mut results = Vec::new();
    for system in &ROOTS {
        if !system.is_possible()? {
            continue;
        }
        for (kind, package) in packages {
            let trial = Trial { root: system, place: system.copy(root)? };
            let result = match (kind.install)(package, &trial)? {
                Some(prefix) => trial.works(root, &prefix).map(|()| "works"),
                None => Ok("not for this system"),
            };
            let result = result.map_err(|e| format!("{} in {}: {e}", kind.name, system.name))?;
            results.push(format!("{:<10} {:<10} {result}", kind.name, system.name));
        }
    }
    results.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// Unpacks the archive in `/opt`.
pub fn unpack(package: &Path, trial: &Trial) -> Result<Option<String>, String> {
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(package).arg("--directory");
    run(tar.arg(trial.place.join("opt")))?;
    Ok(Some(format!("/opt/{}", tarball::directory())))
}

/// Installs it like `dpkg --install`.
pub fn install_deb(package: &Path, trial: &Trial) -> Result<Option<String>, String> {
    if !trial.root.is_debian() {
        return Ok(None);
    }
    let file = trial.bring(package)?;
    trial.run("/usr/bin/dpkg", &["--install", &file])?;
    Ok(Some("/usr".to_owned()))
}

/// Installs it with the host's rpm, because these systems have none.
pub fn install_rpm(package: &Path, trial: &Trial) -> Result<Option<String>, String> {
    let mut rpm = Command::new("rpm");
    rpm.args(["--install", "--force-debian", "--root"]).arg(&trial.place).arg(package);
    run(&mut rpm)?;
    Ok(Some("/usr".to_owned()))
}

/// Installs it with pip into a virtual environment.
pub fn install_wheel(package: &Path, trial: &Trial) -> Result<Option<String>, String> {
    if !trial.root.is_debian() {
        return Ok(None);
    }
    let file = trial.bring(package)?;
    trial.run("/usr/bin/python3", &["-m", "venv", "/opt/venv"])?;
    trial.run("/opt/venv/bin/python", &["-m", "pip", "install", "--no-index", &file])?;
    trial.run("/opt/venv/bin/python", &["-m", "heaptide", "--version"])?;
    Ok(Some("/opt/venv".to_owned()))
}

/// Copies it like the `COPY` of a Dockerfile.
pub fn copy_image(package: &Path, trial: &Trial) -> Result<Option<String>, String> {
    let to = trial.place.join("opt/heaptide");
    run(Command::new("cp").arg("-a").arg(package.join("tree")).arg(to))?;
    Ok(Some("/opt/heaptide".to_owned()))
}

impl Trial {
    /// Copies a file into the root, and returns its path there.
    fn bring(&self, file: &Path) -> Result<String, String> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let to = format!("/tmp/{name}");
        fs::copy(file, self.place.join(&to[1..])).map_err(|e| format!("{to}: {e}"))?;
        Ok(to)
    }

    /// Runs a program in the root, with its own /proc and an empty environment. Returns its output.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--root"]);
        command.arg(&self.place).arg("--wd=/tmp").arg(program).args(arguments);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        output(command.env("HOME", "/").env("LC_ALL", "C.UTF-8"))
    }

    /// Records, reports, exports and queries with the package's programs in `prefix`.
    fn works(&self, root: &Path, prefix: &str) -> Result<(), String> {
        let command = format!("{prefix}/bin/heaptide");
        let heaptide = |words: &[&str]| self.run(&command, words);
        self.compile(root, prefix)?;
        let printed = heaptide(&["run", "-q", "-o", "c.heaptide", "--", "/tmp/heat"])?;
        expect("the program in C", &printed, PRINTED)?;
        expect("report", &heaptide(&["report", "--by", "scope", "c.heaptide"])?, "simulate")?;
        expect("peak", &heaptide(&["peak", "c.heaptide"])?, "set_up")?;
        let exported = heaptide(&["export", "--format", "folded", "c.heaptide"])?;
        expect("export", &exported, "take_picture")?;
        let answer = heaptide(&["sql", "--format", "csv", IN_C, "c.heaptide"])?;
        expect("SQL", &answer, BLOCKS_IN_C)?;
        heaptide(&["export", "--format", "parquet", "-o", "tables", "c.heaptide"])?;
        let answer = heaptide(&["sql", "--format", "csv", IN_C, "--dataset", "tables"])?;
        expect("SQL over Parquet", &answer, BLOCKS_IN_C)?;
        if !self.root.is_debian() {
            return Ok(());
        }
        let python = ["/usr/bin/python3", "-c", IN_PYTHON];
        heaptide(&[&["run", "-q", "-o", "py.heaptide", "--"], &python[..]].concat())?;
        let answer = heaptide(&["sql", "--format", "csv", BUFFERS, "py.heaptide"])?;
        expect("SQL over the program in Python", &answer, "sites\n1")
    }

    /// Compiles the C program for the root's libc, with the headers that are installed there; a
    /// wheel has none.
    fn compile(&self, root: &Path, prefix: &str) -> Result<(), String> {
        let installed = self.place.join(&prefix[1..]).join("include");
        let has_headers = installed.join("heaptide.h").is_file();
        let include = if has_headers { installed } else { root.join("include") };
        let mut compiler = Command::new(programs::tools(root)?.join("python-zig"));
        compiler.args(["cc", "-target", &format!("x86_64-linux-{}", self.root.libc), "-dynamic"]);
        compiler.args(["-g", "-O0", "-fno-sanitize=all", "-I"]).arg(include);
        compiler.arg(root.join(PROGRAM)).arg("-o").arg(self.place.join("tmp/heat"));
        run(&mut compiler)
    }
}

fn expect(what: &str, found: &str, expected: &str) -> Result<(), String> {
    if found.contains(expected) {
        return Ok(());
    }
    Err(format!("{what}: expected `{expected}`, found:\n{found}"))
}
