//! Some guest programs of aarch64, run under qemu without the command. Their recordings are sealed
//! and read on this machine. A machine of that architecture runs all tests, with the command.
//!
//! `cargo xtask aarch64` runs these tests and sets their variables. They need a cross compiler, an
//! emulator and the recorder's library for aarch64.

use crate::expectations;
use crate::harness::{
    BUILD_FLAGS, Guest, Outcome, assert_same_tree, clean, directory, heaptide, programs, report,
    run, scratch,
};
use crate::stacks::assert_agrees;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The emulator and compilers of aarch64.
struct Emulator {
    qemu: PathBuf,
    sysroot: PathBuf,
    compilers: [PathBuf; 2],
    library: PathBuf,
}

impl Emulator {
    /// Reads the paths that `cargo xtask aarch64` sets.
    fn get() -> Emulator {
        let path = |name: &str| -> PathBuf {
            let name = format!("TEST_AARCH64_{name}");
            env::var_os(&name).unwrap_or_else(|| panic!("no {name}: cargo xtask aarch64")).into()
        };
        Emulator {
            qemu: path("QEMU"),
            sysroot: path("SYSROOT"),
            compilers: [path("CC"), path("CXX")],
            library: path("LIBRARY"),
        }
    }

    fn build(&self, source: &Path, target: &Path, flags: &[&str]) {
        let is_cpp = source.extension().is_some_and(|extension| extension == "cpp");
        let mut command = Command::new(&self.compilers[usize::from(is_cpp)]);
        command.args(BUILD_FLAGS).arg("-w").arg(source).arg("-o").arg(target).args(flags);
        let output = command.output().expect("the cross compiler runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs a program in `place`, with the recorder if a recording is given. Variables for the
    /// program are passed through the emulator, so that only the emulated loader preloads the
    /// library.
    fn run(&self, program: &Program, place: &Path, recording: Option<(&Path, &str)>) -> Outcome {
        fs::create_dir_all(place).expect("a working directory");
        let mut command = clean(Command::new(&self.qemu));
        command.arg("-L").arg(&self.sysroot).current_dir(place);
        if let Some((recording, reuse)) = recording {
            let mut preload = std::ffi::OsString::from("LD_PRELOAD=");
            preload.push(&self.library);
            command.arg("-E").arg(preload);
            command.env("HEAPTIDE_OUTPUT", recording).env("HEAPTIDE_REUSE", reuse);
        }
        run(command.arg(&program.path).args(&program.arguments), place)
    }

    /// Stores names in a recording, from modules below the emulated root.
    fn seal(&self, recording: &Path, place: &Path) {
        let mut command = heaptide();
        command.args(["seal", "--sysroot"]).arg(&self.sysroot).arg(recording);
        let outcome = run(&mut command, place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    }
}

/// A built program.
struct Program {
    path: PathBuf,
    arguments: Vec<String>,
}

impl Program {
    fn build(emulator: &Emulator, guest: &Guest, name: &str) -> Program {
        let place = directory("aarch64").join(name.replace('.', "-"));
        fs::create_dir_all(&place).expect("a directory for programs");
        let text = place.to_str().expect("a path in UTF-8");
        let words = |line: &str| -> Vec<String> {
            line.split_whitespace().map(|word| word.replace('%', text)).collect()
        };
        for plugin in guest.values("plugin: ").map(words) {
            let [target, source, flags @ ..] = plugin.as_slice() else { panic!("{plugin:?}") };
            let flags = flags.iter().map(String::as_str).chain(["-shared", "-fPIC"]);
            let flags: Vec<_> = flags.collect();
            emulator.build(&programs().join(source), &place.join(target), &flags);
        }
        let path = place.join("program");
        let flags: Vec<_> = guest.values("build: ").flat_map(words).collect();
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        emulator.build(&programs().join(name), &path, &flags);
        Program { path, arguments: guest.values("args: ").flat_map(words).collect() }
    }
}

/// Checks that output and status match the bare run, that the known numbers are met, and that
/// verified reuse does not change the stacks.
fn check(name: &str) {
    let (emulator, guest) = (Emulator::get(), Guest::read(name));
    let program = Program::build(&emulator, &guest, name);
    let place = scratch(&format!("aarch64-{name}"));
    let bare = emulator.run(&program, &place.join("bare"), None);
    let reports = ["yes", "off"].map(|reuse| {
        let recording = place.join(format!("{reuse}.heaptide"));
        let outcome = emulator.run(&program, &place.join(reuse), Some((&recording, reuse)));
        assert_eq!(bare.without_known(), outcome.without_known(), "bare and recorded differ");
        emulator.seal(&recording, &place);
        (report(&recording, &place), outcome)
    });
    for (report, outcome) in &reports {
        let mut known = expectations::parse(guest.text(), "// expect ");
        known.extend(expectations::parse(&outcome.stdout, "known "));
        assert!(!known.is_empty(), "{name} knows no number");
        if !guest.says("losses: allowed") {
            known.extend(expectations::parse("recording lost_events=0", ""));
        }
        expectations::assert_met(report, &known);
    }
    if !guest.says("order: varies") {
        assert_same_tree(&reports[0].0, &reports[1].0);
    }
}

macro_rules! programs {
    ($($name:ident $file:literal)*) => {
        $(#[test]
        #[ignore = "cargo xtask aarch64 runs it"]
        fn $name() {
            check($file);
        })*
    };
}

programs! {
    counts "counts.c"
    proxies_cpp "proxies.cpp"
    late_module "late_module.c"
    exceptions_cpp "exceptions.cpp"
    intercepted "intercepted.c"
    map_files "map_files.c"
    api_labels "api_labels.c"
    trace_realloc "trace_realloc.c"
}

#[test]
#[ignore = "cargo xtask aarch64 runs it"]
fn every_frame_agrees_with_the_runtime() {
    let (emulator, guest) = (Emulator::get(), Guest::read("backtrace.cpp"));
    let program = Program::build(&emulator, &guest, "backtrace.cpp");
    let place = scratch("aarch64-backtrace");
    let recording = place.join("a.heaptide");
    let outcome = emulator.run(&program, &place.join("recorded"), Some((&recording, "yes")));
    assert_eq!(outcome.status, 0, "{}", outcome.stdout);
    emulator.seal(&recording, &place);
    // The loader and the kernel use different names for the vDSO, which contains the return path of
    // signal handlers.
    let output = outcome.stdout.replace("linux-vdso.so.1+", "[vdso]+");
    assert_agrees(&report(&recording, &place), &output, "program", 140);
}
