//! System requirements of the tests: `setup` installs them, `setup --check` lists them.

use std::path::Path;
use std::process::Command;

use crate::commands::{output, run};
use crate::readers::READERS;

/// How to check whether a requirement is met.
enum Probe {
    /// A program in PATH.
    Program(&'static str),
    /// A shared library of this name, of any version.
    Library(&'static str),
    /// A static library of this name.
    Archive(&'static str),
    /// A module of python3.
    PythonModule(&'static str),
    /// A file.
    File(&'static str),
    /// Support in gcc for programs with this flag.
    Gcc(&'static str),
}

/// A requirement, and the Debian packages that provide it: the first one that this release has is
/// used.
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
    need(Probe::Library("libomp"), &["libomp-dev"], "OpenMP of another compiler"),
    need(Probe::Program("ld.lld"), &["lld"], "the headers under another linker"),
    need(Probe::Program("pkg-config"), &["pkg-config"], "programs linked as `sdk` says"),
    need(Probe::Program("readelf"), &["binutils"], "the rules over libheaptide.so"),
    need(Probe::Program("nm"), &["binutils"], "names that libraries export"),
    need(Probe::Gcc("-m32"), &["gcc-multilib"], "programs that the recorder cannot be loaded into"),
    need(Probe::Gcc("-fsanitize=undefined"), &["gcc"], "programs with a sanitizer"),
    need(Probe::Program("musl-gcc"), &["musl-tools"], "guests under another libc"),
    need(Probe::Program("curl"), &["curl"], "debug files from a server, requests of the book"),
    need(Probe::Program("mpicc"), &["libmpich-dev"], "the page of the book on MPI"),
    need(Probe::Program("mpirun"), &["mpich"], "the page of the book on MPI"),
    need(Probe::Program("mandoc"), &["mandoc"], "a reader of the manual pages"),
    need(Probe::Program("groff"), &["groff"], "a reader of the manual pages"),
    need(Probe::Program("xz"), &["xz-utils"], "modules with MiniDebugInfo"),
    need(Probe::Program("dwz"), &["dwz"], "debug files that share a supplementary one"),
    need(Probe::Program("gdb"), &["gdb"], "a second opinion on stacks"),
    need(Probe::Program("git"), &["git"], "a guest, and the list of sources"),
    need(Probe::Program("pgrep"), &["procps"], "processes, looked for by their command lines"),
    need(Probe::Program("setpriv"), &["util-linux"], "programs that die with their parent"),
    need(Probe::Program("tmux"), &["tmux"], "a terminal for `heaptide top`"),
    need(Probe::Program("gfortran"), &["gfortran"], "guests in Fortran"),
    need(Probe::Program("luajit"), &["luajit"], "a guest"),
    need(Probe::Program("ruby"), &["ruby"], "a guest"),
    need(Probe::Program("php"), &["php-cli"], "a guest"),
    need(Probe::Program("java"), &["default-jdk-headless"], "a guest"),
    need(Probe::Program("ocaml"), &["ocaml-nox"], "a guest"),
    need(Probe::Program("sqlite3"), &["sqlite3"], "a guest"),
    need(Probe::Program("jq"), &["jq"], "a guest"),
    need(Probe::Program("redis-server"), &["redis-server"], "a guest"),
    need(Probe::Program("redis-benchmark"), &["redis-tools"], "work for that guest"),
    need(Probe::Program("python3"), &["python3"], "a guest, and the runner of benchmarks"),
    need(
        Probe::PythonModule("test.test_json"),
        &[
            "libpython3-testsuite",
            "libpython3.14-testsuite",
            "libpython3.13-testsuite",
            "libpython3.9-testsuite",
        ],
        "python's own tests as a guest",
    ),
    need(Probe::PythonModule("yaml"), &["python3-yaml"], "files for other systems, in the book"),
    need(Probe::PythonModule("ensurepip"), &["python3-venv"], "an environment of readers"),
    need(Probe::Program("chromium"), &["chromium"], "pages, looked at in a browser"),
    need(
        Probe::File("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"),
        &["fonts-dejavu-core"],
        "letters in pictures",
    ),
    need(Probe::Program("dot"), &["graphviz"], "graphs, drawn"),
    need(Probe::Program("go"), &["golang-go"], "`go tool pprof`, a reader of exports"),
    need(Probe::Program("prometheus"), &["prometheus"], "the reader of `heaptide serve`"),
    need(Probe::Program("systemd-analyze"), &["systemd"], "the unit of `heaptide serve`, checked"),
    need(Probe::PythonModule("yaml"), &["python3-yaml"], "its manifest, read"),
    need(Probe::Program("valgrind"), &["valgrind"], "counts of the recorder's instructions"),
    need(Probe::Program("callgrind_annotate"), &["valgrind"], "a reader of exports"),
    need(Probe::Program("ms_print"), &["valgrind"], "a reader of exports"),
    need(Probe::Program("heaptrack_print"), &["heaptrack"], "a reader of exports"),
    need(Probe::Program("node"), &["nodejs"], "the Firefox Profiler, a reader of exports"),
    need(Probe::Program("npm"), &["npm"], "installs that profiler"),
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
    need(Probe::Archive("libgtest_main.a"), &["libgtest-dev"], "tests with limits"),
    // Its headers have other names in version 3.
    need(Probe::File("/usr/share/doc/catch2/copyright"), &["catch2"], "tests with limits"),
    need(Probe::Archive("libjemalloc.a"), &["libjemalloc-dev"], "guests that contain jemalloc"),
    need(
        Probe::Archive("libtcmalloc_minimal.a"),
        &["libgoogle-perftools-dev"],
        "guests that contain tcmalloc",
    ),
];

/// Directories of shared libraries, on Debian and elsewhere.
const LIBRARY_DIRECTORIES: &[&str] =
    &["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];

impl Probe {
    fn name(&self) -> &'static str {
        match self {
            Probe::Program(name)
            | Probe::Library(name)
            | Probe::Archive(name)
            | Probe::PythonModule(name)
            | Probe::File(name)
            | Probe::Gcc(name) => name,
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
            Probe::Archive(name) => {
                let place = |directory| Path::new(directory).join(name);
                LIBRARY_DIRECTORIES.iter().any(|directory| place(directory).is_file())
            }
            Probe::File(path) => Path::new(path).is_file(),
            Probe::Gcc(flag) => {
                let script = format!("echo 'int main(){{}}' | gcc {flag} -xc - -o /dev/null");
                output(Command::new("sh").args(["-c", &script])).is_ok()
            }
            Probe::PythonModule(name) => {
                output(Command::new("python3").args(["-c", &format!("import {name}")])).is_ok()
            }
        }
    }
}

/// Returns whether the directory has `NAME.so.VERSION`.
fn holds_library(directory: &str, name: &str) -> bool {
    let start = format!("{name}.so.");
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    files.map(|file| file.file_name()).any(|file| file.to_string_lossy().starts_with(&start))
}

/// This variable lists requirements without which tests may be skipped.
pub const ALLOW_SKIP: &str = "HEAPTIDE_ALLOW_SKIP";

/// Returns whether tests may be skipped without this requirement: the variable is a comma-separated
/// list of names, or `all`.
pub fn may_be_missing(name: &str) -> bool {
    let allowed = std::env::var(ALLOW_SKIP).unwrap_or_default();
    allowed.split(',').any(|word| word == "all" || word == name)
}

/// Prints each requirement and whether it is met.
///
/// # Errors
///
/// A requirement is not met.
pub fn check(root: &Path) -> Result<(), String> {
    let line = |is_here, name: &str, package: &str, purpose: &str| {
        let state = if is_here { "here" } else { "missing" };
        println!("{state:<8} {name:<26} {package:<24} {purpose}");
    };
    for need in NEEDS {
        line(need.probe.is_here(), need.probe.name(), need.packages[0], need.purpose);
    }
    for reader in READERS {
        line(reader.is_here(root), reader.name, "tests/readers", reader.purpose);
    }
    line(has_musl_target(), MUSL_TARGET, "rustup target add", MUSL_PURPOSE);
    all_here(root)
}

/// Checks whether all requirements of the tests are met.
///
/// # Errors
///
/// A requirement that [`ALLOW_SKIP`] does not name is not met; the error describes how to install
/// it.
pub fn all_here(root: &Path) -> Result<(), String> {
    let needs = NEEDS.iter().filter(|need| !need.probe.is_here()).map(|need| need.probe.name());
    let readers = READERS.iter().filter(|reader| !reader.is_here(root)).map(|reader| reader.name);
    let target = (!has_musl_target()).then_some(MUSL_TARGET);
    let missing: Vec<&str> =
        needs.chain(readers).chain(target).filter(|name| !may_be_missing(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(",");
    Err(format!(
        "the tests need {missing}, not found here; `cargo xtask setup` installs what it can, \
         {ALLOW_SKIP}={missing} skips the tests that need it"
    ))
}

/// Installs missing requirements that [`ALLOW_SKIP`] does not name: as root on Debian. On other
/// systems it prints the names of the packages.
///
/// # Errors
///
/// Something could not be installed.
pub fn install(root: &Path) -> Result<(), String> {
    for part in ["fmt", "clippy"] {
        output(Command::new("cargo").args([part, "--version"])).map_err(|e| {
            format!("{e}; `rustup component add rustfmt clippy` installs what the tests need")
        })?;
    }
    install_packages()?;
    for reader in READERS {
        if !may_be_missing(reader.name) && !reader.is_here(root) {
            reader.install(root)?;
        }
    }
    if has_musl_target() || may_be_missing(MUSL_TARGET) {
        return Ok(());
    }
    run(Command::new("rustup").args(["target", "add", MUSL_TARGET]))
        .map_err(|error| format!("{error}; {ALLOW_SKIP}={MUSL_TARGET} does without"))
}

fn install_packages() -> Result<(), String> {
    let is_missing = |need: &&Need| !may_be_missing(need.probe.name()) && !need.probe.is_here();
    let missing: Vec<&Need> = NEEDS.iter().filter(is_missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() || !Probe::Program("apt-get").is_here() {
        let packages: Vec<&str> = missing.iter().map(|need| package(need)).collect();
        let names: Vec<&str> = missing.iter().map(|need| need.probe.name()).collect();
        return Err(format!(
            "the tests need {}, not found here; `sudo apt-get install -y {}` installs them",
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

/// The Rust target of programs linked with musl, used by tests.
pub const MUSL_TARGET: &str = "x86_64-unknown-linux-musl";
const MUSL_PURPOSE: &str = "programs in Rust under another libc";

/// Returns whether rustc has this target.
pub fn has_musl_target() -> bool {
    let mut rustc = Command::new("rustc");
    let library = output(rustc.args(["--print", "target-libdir", "--target", MUSL_TARGET]));
    library.is_ok_and(|path| Path::new(path.trim()).is_dir())
}

/// Returns the name of the package in this release of Debian.
fn package(need: &Need) -> &'static str {
    let known = |name: &&&str| output(Command::new("apt-cache").args(["show", name])).is_ok();
    need.packages.iter().find(known).unwrap_or(&need.packages[0])
}

/// Returns whether this process runs as root.
pub fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_distinguish_met_and_missing_needs() {
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
