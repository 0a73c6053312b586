//! Recognizes programs that start others, and the program that an interpreter runs.

/// What a program is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// A program to measure.
    Program,
    /// Starts other programs. Above this peak it does more than that.
    Launcher { idle_bytes: u64 },
    /// Starts programs that it may have to compile first.
    BuildingLauncher,
    /// Compiles or links.
    Compiler,
}

/// The highest peak of programs that only start others: shells, make, env.
const SMALL_BYTES: u64 = 1 << 20;
/// The highest peak of a small shell that runs a script; the script can be the program to measure.
const SCRIPT_BYTES: u64 = 64 << 10;
/// Launchers that hold much whatever they start: runtimes, indices of packages, MPI.
const ANY_BYTES: u64 = u64::MAX;

/// Shells.
const SHELLS: &[&str] = &[
    "sh", "ash", "bash", "csh", "dash", "fish", "ksh", "ksh93", "mksh", "rbash", "tcsh", "yash",
    "zsh", "zsh5",
];

/// Programs that hold little themselves.
const SMALL: &[&str] = &[
    "catchsegv",
    "ccache",
    "chroot",
    "chrt",
    "dbus-run-session",
    "direnv",
    "distcc",
    "doas",
    "dumb-init",
    "env",
    "flock",
    "gmake",
    "gosu",
    "icecc",
    "ionice",
    "linux32",
    "linux64",
    "make",
    "mise",
    "ninja",
    "ninja-build",
    "nice",
    "nohup",
    "nsenter",
    "numactl",
    "parallel",
    "prlimit",
    "rtx",
    "run-parts",
    "runuser",
    "samu",
    "sccache",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "stdbuf",
    "su",
    "su-exec",
    "sudo",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "tini",
    "unbuffer",
    "unshare",
    "volta-shim",
    "watch",
    "xargs",
    "xvfb-run",
    // Drivers of compilers.
    "c++",
    "cc",
    "clang",
    "clang++",
    "collect2",
    "f77",
    "f95",
    "flang",
    "g++",
    "gcc",
    "gdc",
    "gfortran",
    "gnat",
    "icpx",
    "icx",
    "ifx",
    "nvcc",
    "zig",
];

/// Programs that hold much themselves.
const LARGE: &[&str] = &[
    "aprun",
    "bundle",
    "bundler",
    "conda",
    "corepack",
    "corepack.js",
    "ctest",
    "flux",
    "hatch",
    "hydra_pmi_proxy",
    "ibrun",
    "jsrun",
    "juliaup",
    "mamba",
    "micromamba",
    "mpiexec",
    "mpiexec.hydra",
    "mpirun",
    "nox",
    "npm",
    "npm-cli.js",
    "npx",
    "npx-cli.js",
    "orted",
    "orterun",
    "pdm",
    "pipenv",
    "pipx",
    "pixi",
    "pnpm",
    "pnpm.cjs",
    "poetry",
    "prted",
    "prterun",
    "prun",
    "pyenv",
    "rustup",
    "rye",
    "slurmstepd",
    "srun",
    "torchrun",
    "tox",
    "uv",
    "uvx",
    "yarn",
    "yarn.js",
];

/// Modules of Python that start programs.
const MODULES: &[&str] = &[
    "hatch",
    "nox",
    "pdm",
    "pipenv",
    "poetry",
    "torch.distributed.launch",
    "torch.distributed.run",
    "tox",
];

/// Compilers and linkers that a launcher may run before the program.
const COMPILERS: &[&str] = &[
    "as",
    "asm",
    "build-script-build",
    "cc1",
    "cc1plus",
    "cgo",
    "clippy-driver",
    "compile",
    "gold",
    "ld",
    "ld.bfd",
    "ld.gold",
    "ld.lld",
    "ld64.lld",
    "link",
    "lld",
    "mold",
    "rust-lld",
    "rustc",
    "rustdoc",
    "wasm-ld",
    "wild",
];

/// Interpreters, and their options that take the next word as a value.
const INTERPRETERS: &[(&str, &[&str])] = &[
    ("python", &["-W", "-X", "--check-hash-based-pycs"]),
    ("pypy", &["-W", "-X"]),
    ("node", &["-r", "--require", "--import", "--loader", "--experimental-loader", "-C"]),
    ("nodejs", &["-r", "--require", "--import", "--loader", "-C"]),
    ("bun", &["-r", "--preload"]),
    ("deno", &[]),
    ("ruby", &["-I", "-r", "-C", "-E"]),
    ("perl", &["-I"]),
    ("php", &["-d", "-c"]),
    ("java", &["-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules"]),
    ("lua", &["-l"]),
    ("luajit", &["-l"]),
    ("Rscript", &[]),
    ("julia", &["-J", "-t", "-p", "-L", "-C"]),
    ("dotnet", &[]),
];
/// Options of interpreters whose value is the program: a module, an archive or a text.
const PROGRAM_OPTIONS: &[&str] = &["-m", "-c", "-e", "--eval", "-jar", "-p", "--print"];
/// Programs that are several programs, by the name under which they are called.
const MULTICALL: &[&str] = &["busybox", "coreutils", "rustup", "toybox"];

/// Returns the role of a program with these arguments.
pub(crate) fn role(program: &str, command: &[String]) -> Role {
    let name = name(program, command);
    let script = script(program, command);
    let is_c = matches!(script, Some(("-c", _)));
    let word = |at: usize| command.get(at).map_or("", |word| word.as_str());
    match name {
        _ if SHELLS.contains(&name) => match script {
            Some(_) if !is_c => Role::Launcher { idle_bytes: SCRIPT_BYTES },
            _ => Role::Launcher { idle_bytes: SMALL_BYTES },
        },
        "clang" | "clang++" | "flang" if word(1).starts_with("-cc1") => Role::Program,
        "cargo" | "cross" | "cargo-nextest" => of_subcommand(command, &["b", "build", "check"]),
        "go" => of_subcommand(command, &["build", "install", "vet"]),
        "dotnet" if ["run", "test", "watch"].contains(&word(1)) => Role::BuildingLauncher,
        _ if SMALL.contains(&name) => Role::Launcher { idle_bytes: SMALL_BYTES },
        _ if LARGE.contains(&name) => Role::Launcher { idle_bytes: ANY_BYTES },
        _ if COMPILERS.contains(&name) => Role::Compiler,
        _ => match script {
            Some(("-m", module)) if MODULES.contains(&module) => {
                Role::Launcher { idle_bytes: ANY_BYTES }
            }
            Some(("", path)) if is_script_of_launcher(file_name(path)) => {
                Role::Launcher { idle_bytes: ANY_BYTES }
            }
            Some(("", path)) if ["parallel", "ccache"].contains(&file_name(path)) => {
                Role::Launcher { idle_bytes: SMALL_BYTES }
            }
            _ => Role::Program,
        },
    }
}

/// Returns whether a program only starts others, as far as its arguments and its peak show.
///
/// ```
/// use heaptide_analysis::recording::only_starts_others;
/// let words = ["sh", "-c", "./app"].map(str::to_owned);
/// assert!(only_starts_others("/bin/sh", &words, 40_000));
/// assert!(!only_starts_others("/bin/sh", &words, 40_000_000));
/// ```
pub fn only_starts_others(program: &str, command: &[String], peak_bytes: u64) -> bool {
    matches!(role(program, command), Role::Launcher { idle_bytes } if peak_bytes <= idle_bytes)
}

/// Returns the role of a launcher that compiles: if the user wants no more than that, the compilers
/// are the programs to measure.
fn of_subcommand(command: &[String], only_build: &[&str]) -> Role {
    let words = command.iter().skip(1).filter(|word| !word.starts_with(['-', '+']));
    match words.map(String::as_str).find(|word| only_build.contains(word)) {
        Some(_) => Role::Launcher { idle_bytes: ANY_BYTES },
        None => Role::BuildingLauncher,
    }
}

/// Returns what identifies a program: its file, and for an interpreter the script or module.
pub(crate) fn key(program: &str, command: &[String]) -> String {
    let of = if program.is_empty() { command.first().map_or("", |word| word) } else { program };
    let name = name(program, command);
    let script = script(program, command).map_or(String::new(), |(option, word)| match option {
        "-c" | "-e" | "--eval" | "-p" | "--print" => option.to_owned(),
        _ => format!("{option} {word}"),
    });
    let called = if MULTICALL.contains(&file_name(program)) { name } else { "" };
    format!("{of}\0{called}\0{script}")
}

/// Returns the name for messages: as called, and for an interpreter with the script or module.
pub(crate) fn title(program: &str, command: &[String]) -> String {
    let called = called(program, command);
    match script(program, command) {
        Some(("", word)) => match file_name(word) {
            name if is_script_of_launcher(name) => name.trim_end_matches("-cli.js").to_owned(),
            name => format!("{called} {name}"),
        },
        Some((option @ ("-m" | "-jar"), word)) => format!("{called} {option} {word}"),
        _ => called.to_owned(),
    }
}

/// Returns the short name for lists.
pub(crate) fn short_title(program: &str, command: &[String]) -> String {
    match script(program, command) {
        Some(("", word)) if is_script_of_launcher(file_name(word)) => title(program, command),
        _ => called(program, command).to_owned(),
    }
}

fn is_script_of_launcher(name: &str) -> bool {
    LARGE.contains(&name)
}

/// Returns the file name of the first argument, or that of the program if it is a title.
fn called<'a>(program: &'a str, command: &'a [String]) -> &'a str {
    let word = command.first().map_or("", |word| word.as_str());
    let name = file_name(word.strip_prefix('-').unwrap_or(word));
    if name.is_empty() || word.contains(' ') { file_name(program) } else { name }
}

/// Returns whether an image runs a part of its parent's program: Python's multiprocessing starts
/// the interpreter again.
pub(crate) fn is_part_of_parent(program: &str, command: &[String]) -> bool {
    let is_code = |(option, word): (&str, &str)| {
        option == "-c" && word.trim_start().starts_with("from multiprocessing")
    };
    script(program, command).is_some_and(is_code)
}

/// Returns whether an image only cleans up after a pool of Python's multiprocessing.
pub(crate) fn is_tracker(program: &str, command: &[String]) -> bool {
    let is_code = |(_, word): (&str, &str)| word.contains("multiprocessing.resource_tracker");
    is_part_of_parent(program, command) && script(program, command).is_some_and(is_code)
}

/// Returns the name of a program without the prefix of a target and the suffix of a version:
/// `g++` for `/usr/bin/x86_64-linux-gnu-g++-12`.
fn name<'a>(program: &'a str, command: &'a [String]) -> &'a str {
    let called = || command.first().map_or("", |word| file_name(word));
    let mut name = file_name(program);
    if name.is_empty() || MULTICALL.contains(&name) {
        name = called().trim_start_matches('-');
        // `busybox sh x` names the program in its second word.
        if MULTICALL.contains(&name) {
            name = command.get(1).map_or(name, |word| file_name(word));
        }
    }
    let is_version = |c: char| c.is_ascii_digit() || c == '.';
    if let Some((first, version)) = name.rsplit_once('-')
        && !first.is_empty()
        && version.chars().all(is_version)
    {
        name = first;
    }
    match name.split_once("-linux-") {
        Some((_, rest)) => rest.split_once('-').map_or(name, |(_, name)| name),
        None => name,
    }
}

/// Returns the program that an interpreter runs: the option that introduces it (empty for a file)
/// and the word. `None` for other programs, and for interpreters that read standard input.
fn script<'a>(program: &str, command: &'a [String]) -> Option<(&'a str, &'a str)> {
    let name = name(program, command);
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let is_shell = SHELLS.contains(&name);
    let with_value = match INTERPRETERS.iter().find(|(interpreter, _)| *interpreter == stem) {
        Some((_, options)) => *options,
        None if is_shell => &["-o", "-O"],
        None => return None,
    };
    let mut words = command.iter().skip(1).map(String::as_str);
    while let Some(word) = words.next() {
        let is_short = word.starts_with('-') && !word.starts_with("--");
        if with_value.contains(&word) {
            words.next();
        } else if is_shell && is_short && word.ends_with('c') {
            return words.next().map(|value| ("-c", value)); // also `sh -ec`
        } else if !is_shell && PROGRAM_OPTIONS.contains(&word) {
            return words.next().map(|value| (word, value));
        } else if !word.starts_with('-') {
            return Some(("", word));
        }
    }
    None
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn launchers_are_recognized_by_file_name_and_script() {
        let idle = |program: &str, line: &str| match role(program, &words(line)) {
            Role::Launcher { idle_bytes } => Some(idle_bytes),
            _ => None,
        };
        for (program, line, idle_bytes) in [
            ("/usr/bin/dash", "sh -c x", SMALL_BYTES),
            ("/usr/bin/dash", "sh -ec x", SMALL_BYTES),
            ("/usr/bin/bash", "bash ./shim a", SCRIPT_BYTES),
            ("/bin/busybox", "sh -c x", SMALL_BYTES),
            ("/usr/bin/make", "make -j4", SMALL_BYTES),
            ("/usr/bin/x86_64-linux-gnu-g++-12", "g++ -c a.cc", SMALL_BYTES),
            ("/usr/lib/llvm-14/bin/clang", "clang++ -c a.cc", SMALL_BYTES),
            ("/usr/bin/orterun", "mpirun -n 4 app", ANY_BYTES),
            ("/usr/bin/node", "node /usr/bin/npm test", ANY_BYTES),
            ("/usr/bin/node", "/usr/bin/node --no-warnings /x/npm-cli.js test", ANY_BYTES),
            ("/usr/bin/python3.11", "/usr/bin/python3 /opt/u/bin/poetry run a", ANY_BYTES),
            ("/usr/bin/python3.11", "python3 -X dev -m torch.distributed.run a.py", ANY_BYTES),
            ("/usr/bin/cargo", "cargo build --release", ANY_BYTES),
        ] {
            assert_eq!(idle(program, line), Some(idle_bytes), "{line}");
        }
        assert_eq!(role("/usr/bin/cargo", &words("cargo test")), Role::BuildingLauncher);
        assert_eq!(role("/h/bin/rustup", &words("cargo run")), Role::BuildingLauncher);
        assert_eq!(role("/usr/bin/rustc", &words("rustc a.rs")), Role::Compiler);
        assert_eq!(
            role("/opt/rust/bin/rust-lld", &words("rust-lld -flavor gnu a.o")),
            Role::Compiler
        );
        assert_eq!(role("/usr/bin/rustdoc", &words("rustdoc --test a.rs")), Role::Compiler);
        let clang = "/usr/lib/llvm-14/bin/clang";
        for (program, line) in [
            (clang, "clang -cc1 -triple x a.cc"),
            ("/usr/bin/python3.11", "python3 make"),
            ("/usr/bin/python3.11", "python3 a.py npm"),
            ("/usr/bin/env-server", "env-server"),
            ("/opt/app", "sh"),
            ("", "app"),
        ] {
            assert_eq!(role(program, &words(line)), Role::Program, "{program} {line}");
        }
    }

    #[test]
    fn programs_of_interpreters_are_told_apart_by_script() {
        let python = |line: &str| key("/usr/bin/python3.11", &words(line));
        assert_eq!(python("python3 a.py 1"), python("/usr/bin/python3 -X dev a.py 2"));
        assert_ne!(python("python3 a.py"), python("python3 b.py"));
        assert_ne!(python("python3 -m a"), python("python3 a"));
        assert_eq!(python("python3 -c x"), python("python3 -c y"));
        let java = |line: &str| key("/usr/bin/java", &words(line));
        assert_eq!(java("java -Xmx1g -cp a.jar Main 1"), java("java -cp b.jar Main 2"));
        assert_eq!(key("/bin/app", &words("app 1")), key("/bin/app", &words("app 2")));
        let busybox = |line: &str| key("/bin/busybox", &words(line));
        assert_ne!(busybox("sort a"), busybox("cat a"));
        let spawned = ["python3", "-c", "from multiprocessing.spawn import x"].map(str::to_owned);
        assert!(is_part_of_parent("/usr/bin/python3.11", &spawned));
        assert!(!is_part_of_parent("/usr/bin/python3.11", &words("python3 multiprocessing.py")));
    }
}
