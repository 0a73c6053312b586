//! Builds the programs of every package, linked with musl so that they run with any libc.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::unwind_tables;
use crate::commands::{output, run, target};
use crate::library;

/// The pinned versions of build tools.
const PINS: &str = "xtask/package-requirements.txt";
/// The target of the build.
pub const TRIPLE: &str = "x86_64-unknown-linux-musl";
/// The features: scheduler and executors of clusters.
pub const FEATURES: [&str; 2] = ["--features", "heaptide-sql/cluster"];
const COMMAND: Program =
    Program { package: "heaptide-cli", name: "heaptide", profile: "packaged", features: &[] };
/// The SQL engine, optimised for size.
const SQL: Program = Program {
    package: "heaptide-sql",
    name: "heaptide-sql",
    profile: "packaged-sql",
    features: &FEATURES,
};
/// The largest size of the SQL engine, in bytes.
const SQL_BYTES_MAX: u64 = 60 << 20;

/// mimalloc in the programs must not read settings from variables, which are meant for the recorded
/// program, nor contain the time of its compilation.
const C_FLAGS: &str = "-DMI_NO_GETENV -Wno-builtin-macro-redefined -D__DATE__=\"\" -D__TIME__=\"\"";

/// Paths of the programs.
pub struct Programs {
    /// The command with the embedded recorder library.
    pub heaptide: PathBuf,
    /// The SQL engine.
    pub sql: PathBuf,
}

/// Builds both programs.
///
/// # Errors
///
/// A tool cannot be fetched, the build fails, or a program is not static or too large.
pub fn build(root: &Path) -> Result<Programs, String> {
    let tools = tools(root)?;
    let heaptide = COMMAND.build(root, &tools)?;
    let sql = SQL.build(root, &tools)?;
    let bytes = size(&sql)?;
    if bytes > SQL_BYTES_MAX {
        return Err(format!(
            "{} has {bytes} bytes, expected {SQL_BYTES_MAX} at most; see the profile {} in \
             Cargo.toml",
            sql.display(),
            SQL.profile
        ));
    }
    let recorder = output(Command::new(&heaptide).arg("library").env_remove("HEAPTIDE_LIBRARY"))?;
    if let Some(problem) = library::check(root, Path::new(recorder.trim()))?.first() {
        return Err(problem.to_string());
    }
    Ok(Programs { heaptide, sql })
}

/// A program to build for packages.
struct Program {
    package: &'static str,
    name: &'static str,
    profile: &'static str,
    features: &'static [&'static str],
}

impl Program {
    fn build(&self, root: &Path, tools: &Path) -> Result<PathBuf, String> {
        let mut zigbuild = Command::new(tools.join("cargo-zigbuild"));
        zigbuild.args(["zigbuild", "--locked", "--package", self.package]);
        zigbuild.args(["--profile", self.profile, "--target", TRIPLE]).args(self.features);
        run(with_flags(&mut zigbuild, root, tools)?)?;
        let built = target(root).join(TRIPLE).join(self.profile).join(self.name);
        let programs = target(root).join("package/programs");
        std::fs::create_dir_all(&programs).map_err(|e| format!("{}: {e}", programs.display()))?;
        let program = programs.join(self.name);
        unwind_tables::remove(&built, &program)?;
        check(root, &program)?;
        println!("{} has {} bytes", program.display(), size(&program)?);
        Ok(program)
    }
}

/// Returns the command with settings for reproducible builds in any directory: build tools first in
/// PATH, and flags that replace directories of this machine in the programs.
fn with_flags<'a>(
    command: &'a mut Command,
    root: &Path,
    tools: &Path,
) -> Result<&'a mut Command, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(tools.to_path_buf()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).map_err(|error| format!("PATH: {error}"))?;
    let flags = |option: &str| {
        let flag = |(place, name): &(PathBuf, &str)| format!("{option}={}={name}", place.display());
        places(root).iter().map(flag).collect::<Vec<_>>().join(" ")
    };
    command.env("PATH", path).env("RUSTFLAGS", flags("--remap-path-prefix"));
    let c_flags = format!("{} {C_FLAGS}", flags("-ffile-prefix-map"));
    Ok(command.env("TARGET_CFLAGS", c_flags).current_dir(root))
}

/// Returns directories of this machine, with their replacements in programs.
fn places(root: &Path) -> [(PathBuf, &'static str); 2] {
    [(cargo_home(), "cargo"), (root.to_path_buf(), "heaptide")]
}

/// Returns cargo's directory of the sources of dependencies.
fn cargo_home() -> PathBuf {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home).unwrap_or_default()
}

/// Installs the pinned build tools, and returns their directory.
///
/// # Errors
///
/// The Rust target is missing, or a tool cannot be fetched.
pub fn tools(root: &Path) -> Result<PathBuf, String> {
    if !crate::needs::has_musl_target() {
        return Err(format!(
            "the target {TRIPLE} is not installed; `rustup target add {TRIPLE}` installs it"
        ));
    }
    let place = target(root).join("package-tools");
    let pins = std::fs::read_to_string(root.join(PINS)).map_err(|e| format!("{PINS}: {e}"))?;
    let mark = place.join("installed-pins");
    if std::fs::read_to_string(&mark).is_ok_and(|installed| installed == pins) {
        return Ok(place.join("bin"));
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place))?;
    let mut pip = Command::new(place.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    run(pip.args(["--require-hashes", "--requirement"]).arg(root.join(PINS)))?;
    std::fs::write(&mark, pins).map_err(|error| format!("{}: {error}", mark.display()))?;
    Ok(place.join("bin"))
}

/// Checks that a program needs no library or loader, and contains no directory of this machine.
fn check(root: &Path, program: &Path) -> Result<(), String> {
    let headers = output(Command::new("readelf").args(["-ldW"]).arg(program))?;
    if let Some(line) = headers.lines().find(|line| is_dynamic(line)) {
        let line = line.trim();
        return Err(format!("{}: `{line}`, expected a static program", program.display()));
    }
    let bytes = std::fs::read(program).map_err(|e| format!("{}: {e}", program.display()))?;
    for (place, _) in places(root) {
        let name = OsString::from(&place);
        let name = name.as_encoded_bytes();
        if !name.is_empty() && bytes.windows(name.len()).any(|part| part == name) {
            return Err(format!(
                "{} names {}, expected no directory of this machine",
                program.display(),
                place.display()
            ));
        }
    }
    Ok(())
}

/// Returns whether a line of readelf's output shows that the program needs a loader or a library.
fn is_dynamic(line: &str) -> bool {
    line.contains("(NEEDED)") || line.trim_start().starts_with("INTERP")
}

fn size(file: &Path) -> Result<u64, String> {
    let data = std::fs::metadata(file).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(data.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_loader_or_a_library_is_dynamic() {
        assert!(is_dynamic("  INTERP         0x000318 0x0000000000000318"));
        assert!(is_dynamic(" 0x0000000000000001 (NEEDED)   Shared library: [libc.so.6]"));
        assert!(!is_dynamic("  LOAD           0x000000 0x0000000000400000"));
    }
}
