//! What the tests need from the system: installed as root on Debian, else named exactly.

use std::process::Command;

use crate::chores::{output, run};

/// How to see whether something is here.
enum Probe {
    /// A program in PATH.
    Program(&'static str),
    /// A shared library of this name, of any version.
    Library(&'static str),
    /// A module of python3.
    PythonModule(&'static str),
    /// A file.
    File(&'static str),
}

/// One thing, and the Debian packages that bring it: the first that this release has is taken.
struct Need {
    probe: Probe,
    packages: &'static [&'static str],
    purpose: &'static str,
}

const fn need(probe: Probe, packages: &'static [&'static str], purpose: &'static str) -> Need {
    Need { probe, packages, purpose }
}

const NEEDS: &[Need] = &[
    need(Probe::Program("gcc"), &["gcc"], "guest programs in C"),
    need(Probe::Program("g++"), &["g++"], "guest programs in C++, the compiler as a guest"),
    need(Probe::Program("clang"), &["clang"], "the headers under another compiler"),
    need(Probe::Program("ld.lld"), &["lld"], "the headers under another linker"),
    need(Probe::Program("pkg-config"), &["pkg-config"], "programs linked as `sdk` says"),
    need(Probe::Program("readelf"), &["binutils"], "the rules over libheaptide.so"),
    need(Probe::Program("musl-gcc"), &["musl-tools"], "guests under another libc"),
    need(Probe::Program("gdb"), &["gdb"], "a second opinion on stacks"),
    need(Probe::Program("git"), &["git"], "a guest, and the list of sources"),
    need(Probe::Program("pgrep"), &["procps"], "processes, looked for by their command lines"),
    need(Probe::Program("setpriv"), &["util-linux"], "programs that die with their parent"),
    need(Probe::Program("sqlite3"), &["sqlite3"], "a guest"),
    need(Probe::Program("jq"), &["jq"], "a guest"),
    need(Probe::Program("redis-server"), &["redis-server"], "a guest"),
    need(Probe::Program("redis-benchmark"), &["redis-tools"], "work for that guest"),
    need(Probe::Program("python3"), &["python3"], "a guest, and the runner of benchmarks"),
    need(
        Probe::PythonModule("test.test_json"),
        &["libpython3-testsuite"],
        "python's own tests as a guest",
    ),
    need(
        Probe::PythonModule("ensurepip"),
        &["python3-venv"],
        "an environment with DuckDB, pandas and polars, readers of exports",
    ),
    need(Probe::Program("chromium"), &["chromium"], "pages, looked at in a browser"),
    need(
        Probe::File("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"),
        &["fonts-dejavu-core"],
        "letters in pictures",
    ),
    need(Probe::Program("dot"), &["graphviz"], "graphs, drawn"),
    need(Probe::Program("go"), &["golang-go"], "`go tool pprof`, a reader of exports"),
    need(Probe::Program("callgrind_annotate"), &["valgrind"], "a reader of exports"),
    need(Probe::Program("ms_print"), &["valgrind"], "a reader of exports"),
    need(Probe::Program("node"), &["nodejs"], "the Firefox Profiler, a reader of exports"),
    need(Probe::Program("npm"), &["npm"], "brings that profiler"),
    need(Probe::Library("libjemalloc"), &["libjemalloc2"], "guests under jemalloc"),
    need(
        Probe::Library("libtcmalloc"),
        &["libgoogle-perftools4", "libgoogle-perftools4t64"],
        "guests under tcmalloc",
    ),
    need(
        Probe::Library("libtcmalloc_minimal"),
        &["libtcmalloc-minimal4", "libtcmalloc-minimal4t64"],
        "guests under tcmalloc without its profiler",
    ),
    need(
        Probe::Library("libmimalloc"),
        &["libmimalloc2.0", "libmimalloc3"],
        "guests under mimalloc",
    ),
];

/// Where Debian and others keep shared libraries.
const LIBRARY_DIRECTORIES: &[&str] =
    &["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];

impl Probe {
    fn name(&self) -> &'static str {
        match self {
            Probe::Program(name)
            | Probe::Library(name)
            | Probe::PythonModule(name)
            | Probe::File(name) => name,
        }
    }

    fn is_here(&self) -> bool {
        match self {
            Probe::Program(name) => std::env::var_os("PATH").is_some_and(|path| {
                std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
            }),
            Probe::Library(name) => {
                LIBRARY_DIRECTORIES.iter().any(|directory| holds_library(directory, name))
            }
            Probe::File(path) => std::path::Path::new(path).is_file(),
            Probe::PythonModule(name) => {
                output(Command::new("python3").args(["-c", &format!("import {name}")])).is_ok()
            }
        }
    }
}

/// Whether the directory has `NAME.so.VERSION`.
fn holds_library(directory: &str, name: &str) -> bool {
    let start = format!("{name}.so.");
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    files.map(|file| file.file_name()).any(|file| file.to_string_lossy().starts_with(&start))
}

/// Prints each need and whether it is met.
pub fn show() -> Result<(), String> {
    for need in NEEDS {
        let state = if need.probe.is_here() { "here" } else { "missing" };
        println!("{state:<8} {:<26} {:<24} {}", need.probe.name(), need.packages[0], need.purpose);
    }
    Ok(())
}

/// Installs what is missing, as root on Debian; else says what to install.
pub fn install() -> Result<(), String> {
    for part in ["fmt", "clippy"] {
        output(Command::new("cargo").args([part, "--version"])).map_err(|e| {
            format!("{e}; `rustup component add rustfmt clippy` brings what the tests need")
        })?;
    }
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !need.probe.is_here()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|need| package(need)).collect();
    if !is_root() || !Probe::Program("apt-get").is_here() {
        let names: Vec<&str> = missing.iter().map(|need| need.probe.name()).collect();
        return Err(format!(
            "the tests need {}, which are not here; `sudo apt-get install -y {}` brings them",
            names.join(", "),
            packages.join(" ")
        ));
    }
    run(Command::new("apt-get").args(["update", "-q"]))?;
    let packages: Vec<&str> = missing.iter().map(|need| package(need)).collect();
    let mut command = Command::new("apt-get");
    command.args(["install", "-y", "-q", "--no-install-recommends"]).args(packages);
    run(command.env("DEBIAN_FRONTEND", "noninteractive"))?;
    match missing.iter().find(|need| !need.probe.is_here()) {
        None => Ok(()),
        Some(need) => Err(format!(
            "{} is still missing after installing {}; put it in place and try again",
            need.probe.name(),
            package(need)
        )),
    }
}

/// The package name that this release of Debian knows.
fn package(need: &Need) -> &'static str {
    let known = |name: &&&str| output(Command::new("apt-cache").args(["show", name])).is_ok();
    need.packages.iter().find(known).unwrap_or(&need.packages[0])
}

fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_tells_what_is_here_from_what_is_not() {
        assert!(Probe::Program("cargo").is_here());
        assert!(!Probe::Program("no-such-program-anywhere").is_here());
        assert!(!Probe::Library("libno-such-library").is_here());
        assert!(!Probe::PythonModule("no_such_module_anywhere").is_here());
    }

    #[test]
    fn every_need_names_a_package() {
        assert!(NEEDS.iter().all(|need| !need.packages.is_empty()));
    }
}
