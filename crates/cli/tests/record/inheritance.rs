//! What a program inherits from `heaptide run`: the same as from exec.

use crate::harness::{Guest, Outcome, heaptide, profiles, recorded, report, run, scratch, until};
use crate::recording::{list, number};
use heaptide_fixtures::skips::{may_make_namespaces, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command under test, for scripts.
const HEAPTIDE: &str = env!("CARGO_BIN_EXE_heaptide");

/// Returns a shell command in which `$H` is `heaptide`.
fn shell(script: &str, place: &Path) -> Command {
    let mut command = crate::harness::clean(Command::new("bash"));
    command.args(["-c", script]).env("H", HEAPTIDE).current_dir(place);
    command
}

fn build(name: &str) -> PathBuf {
    Guest::read(name).build(name, &[])
}

/// Returns the output of `run_inherits` without the variables of the recorder.
fn without_own(outcome: &Outcome) -> Vec<&str> {
    let own = ["entry HEAPTIDE_", "entry LD_PRELOAD=", "entry KOKKOS_TOOLS_LIBS="];
    outcome.stdout.lines().filter(|line| !own.iter().any(|own| line.starts_with(own))).collect()
}

#[test]
fn everything_is_inherited() {
    let place = scratch("inherited");
    let program = build("run_inherits.c");
    let strange = |words: &[&str]| {
        let mut command = crate::harness::clean(Command::new(&program));
        command.arg("strange").args(words).arg(&program).args(["a", "-b"]);
        run(&mut command, &place)
    };
    let bare = strange(&[]);
    assert_eq!(bare.status, 3, "{}", bare.stdout);
    assert!(bare.stdout.contains("entry A=2\nentry A=3\nentry no equals sign\nentry \n"));
    let recording = place.join("a.heaptide");
    let path = recording.to_str().expect("UTF-8");
    for (options, is_recorded) in [
        (&["-o", path][..], true),
        (&["-o", path, "--force", "--no-preload"], false),
        (&["--mode", "off"], false),
    ] {
        let outcome = strange(&[&[HEAPTIDE, "run", "--quiet"], options, &["--"]].concat());
        assert_eq!(outcome.status, 3, "{options:?}");
        assert_eq!(without_own(&bare), without_own(&outcome), "{options:?}");
        for variable in ["LD_PRELOAD=", "KOKKOS_TOOLS_LIBS="] {
            let is_it = |line: &&str| line.contains(variable) && line.contains("libheaptide");
            let named = outcome.stdout.lines().filter(is_it).count();
            assert_eq!(named == 1, is_recorded, "{options:?}: {}", outcome.stdout);
        }
        if is_recorded {
            assert_eq!(list(&report(&recording, &place), "processes").len(), 1);
        }
    }
}

#[test]
fn settings_of_the_user_are_inherited() {
    let place = scratch("inherited-settings");
    let program = build("run_inherits.c");
    let mut command = recorded(&place.join("a"), &["--stacks-from", "4K"]);
    command.env("LD_PRELOAD", "libm.so.6").env("HEAPTIDE_BY_SIZE", "on");
    let outcome = run(command.arg(&program).env("HEAPTIDE_THRESHOLD", "7"), &place);
    let of = |name: &str| {
        let start = format!("entry {name}=");
        let lines = outcome.stdout.lines().filter_map(|line| line.strip_prefix(&start));
        lines.collect::<Vec<_>>()
    };
    assert_eq!(of("HEAPTIDE_BY_SIZE"), ["on"]);
    assert_eq!(of("HEAPTIDE_THRESHOLD"), ["4096"]);
    assert!(of("LD_PRELOAD")[0].ends_with(".so:libm.so.6"), "{}", outcome.stdout);
}

#[test]
fn ignored_signals_stay_ignored() {
    let place = scratch("ignored-signals");
    let raise = "$H run -q --force -o r -- bash -c 'kill -$0 $$; exit 7'";
    for signal in ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "PIPE", "CHLD", "ALRM", "RTMIN"] {
        let script = format!("trap '' {signal}; {raise} {signal}");
        let outcome = run(&mut shell(&script, &place), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (7, ""), "{signal}");
    }
    let script = "nohup $H run -q --force -o r -- bash -c 'kill -HUP $$; echo survived'";
    let outcome = run(&mut shell(script, &place), &place);
    assert_eq!((outcome.status, &*outcome.stdout), (0, "survived\n"));
    // A background job of a script, which ignores SIGINT because of the shell.
    let script = format!("{raise} INT & wait $!");
    assert_eq!(run(&mut shell(&script, &place), &place).status, 7);
}

#[test]
fn small_stacks_are_enough_for_the_command() {
    let place = scratch("small-stacks");
    // The environment is also stored on the stack.
    let shell = |script: &str| {
        let mut command = shell(script, &place);
        command.env_clear().env("H", HEAPTIDE);
        command.envs(
            ["PATH", "HOME"].iter().filter_map(|name| Some((name, std::env::var(name).ok()?))),
        );
        command
    };
    for limit in [16, 32, 64, 96] {
        // The recorder itself needs more than the smallest limits.
        let preload = if limit < 64 { "--no-preload" } else { "" };
        let script =
            format!("ulimit -s {limit}; $H run -q --force {preload} -o r -- sh -c 'exit 9'");
        let outcome = run(&mut shell(&script), &place);
        assert_eq!(outcome.status, 9, "{limit}: {}", outcome.stderr);
        assert_eq!(profiles(&place.join("r")).len(), usize::from(limit >= 64));
        let script = format!("ulimit -s {limit}; $H report r >out; echo $?");
        let outcome = run(&mut shell(&script), &place);
        assert_eq!(outcome.stdout, if limit < 64 { "2\n" } else { "0\n" }, "{}", outcome.stderr);
    }
}

/// The command runs in the address space that the program left: little more than its own code,
/// whose size depends on the build.
#[test]
fn a_small_address_space_is_enough_for_the_command() {
    let place = scratch("small-address-space");
    let script = "code=$(size $H | awk 'NR == 2 { print $4 }')
        ulimit -v $((code / 1024 + 15000))
        $H run -q --no-preload -o r -- sh -c 'exit 9'";
    let outcome = run(&mut shell(script, &place), &place);
    assert_eq!(outcome.status, 9, "{}", outcome.stderr);
}

#[test]
fn a_file_of_no_known_format_is_a_script() {
    let place = scratch("script");
    let script = place.join("script");
    fs::write(&script, "echo \"$0 $*\"; exit 4\n").expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).expect("a mode");
    let outcome = run(recorded(&place.join("a"), &[]).arg(&script).args(["b", "c"]), &place);
    assert_eq!((outcome.status, outcome.stdout), (4, format!("{} b c\n", script.display())));
}

/// Returns the names of settings that `run_inherits` found.
fn settings(outcome: &Outcome) -> Vec<&str> {
    let lines = outcome.stdout.lines().filter_map(|line| line.strip_prefix("entry HEAPTIDE_"));
    let mut names: Vec<&str> = lines.filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_run_inside_a_run_has_its_own_settings() {
    let place = scratch("nested");
    let program = build("run_inherits.c");
    let inner = |options: &str| format!("$H run -q --force {options} -- {}", program.display());
    let bare = run(&mut shell(&inner("-o inner"), &place), &place);
    assert_eq!(settings(&bare), ["COMMAND", "MODE", "OUTPUT", "RUN"]);
    let steered = "--no-follow --start-off --by-size --stacks-from 99 --snapshot-on USR2";
    for options in [steered, "--mode trace --max-size 1M --free-stacks"] {
        let outer = |inner: &str| {
            let script = format!("$H run -q --force {options} -o outer -- sh -c '{inner}'");
            let outcome = run(&mut shell(&script, &place), &place);
            assert_eq!((outcome.status, &*outcome.stderr), (3, ""), "{script}");
            outcome
        };
        let outcome = outer(&inner("-o inner"));
        assert_eq!(settings(&bare), settings(&outcome), "{options}");
        assert_eq!(list(&report(&place.join("inner"), &place), "processes").len(), 1);
        let outcome = outer(&inner("--mode off"));
        assert_eq!(settings(&outcome), ["MODE", "RUN"]);
        assert!(!outcome.stdout.contains("LD_PRELOAD"), "{}", outcome.stdout);
    }
}

#[test]
fn mode_off_records_nothing_and_says_nothing() {
    let place = scratch("mode-off");
    for script in [
        "$H run --mode off -o r -- sh -c 'echo hello; exit 5'",
        "HEAPTIDE_MODE=off $H run -o r -- sh -c 'echo hello; exit 5'",
        "HEAPTIDE_MODE=stacks $H run --mode off -o r -- sh -c 'echo hello; exit 5'",
    ] {
        let outcome = run(&mut shell(script, &place), &place);
        assert_eq!((outcome.status, &*outcome.stdout, &*outcome.stderr), (5, "hello\n", ""));
        assert!(!place.join("r").exists(), "{script}");
    }
    let outcome = run(&mut shell("$H run --mode off -- /no/such", &place), &place);
    assert_eq!((outcome.status, outcome.stderr.lines().count()), (2, 1), "{}", outcome.stderr);
}

#[test]
fn the_mode_of_the_environment_is_the_default() {
    let place = scratch("mode-by-environment");
    let mode = |script: &str| {
        let outcome = run(&mut shell(script, &place), &place);
        assert_eq!(outcome.status, 0, "{script}: {}", outcome.stderr);
        let info = run(&mut shell("$H info r", &place), &place);
        let mode = info.stdout.lines().find(|line| line.contains("mode "));
        mode.unwrap_or_else(|| panic!("no mode in\n{}", info.stdout)).to_owned()
    };
    let plain = mode("$H run -q --force -o r -- true");
    let counters = mode("$H run -q --force --mode counters -o r -- true");
    assert_ne!(plain, counters);
    assert_eq!(mode("HEAPTIDE_MODE=counters $H run -q --force -o r -- true"), counters);
    assert_eq!(mode("HEAPTIDE_MODE= $H run -q --force -o r -- true"), plain);
    assert_eq!(mode("HEAPTIDE_MODE=counters $H run -q --force --mode stacks -o r -- true"), plain);
    let outcome = run(&mut shell("HEAPTIDE_MODE=garbage $H run -o g -- true", &place), &place);
    assert_eq!(outcome.status, 2);
    assert!(
        outcome.stderr.contains("counters, scopes, stacks, trace, sampled, off"),
        "{}",
        outcome.stderr
    );
    assert!(!place.join("g").exists());
}

#[test]
fn the_program_dies_with_the_parent_if_the_command_would() {
    let place = scratch("death-signal");
    let program = build("run_signals.c");
    for signal in ["KILL", "TERM"] {
        let script = format!(
            "setpriv --pdeathsig {signal} $H run -q --force -o r -- {} pause >out & \
             until grep -q ready out; do sleep .01; done; kill -9 $$",
            program.display()
        );
        let _ = fs::remove_file(place.join("out"));
        if run(&mut shell("setpriv --pdeathsig TERM true", &place), &place).status != 0 {
            return skip("setpriv");
        }
        run(&mut shell(&script, &place), &place);
        let out = fs::read_to_string(place.join("out")).expect("the output");
        let pid = out.trim_start_matches("ready ").trim().to_owned();
        until("the program to die", || !is_running(&pid));
    }
}

/// Returns whether a process runs and is not a zombie.
pub fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn the_status_comes_through_whatever_happens_to_messages() {
    let place = scratch("unwritable");
    for script in [
        "$H run --force -o r -- sh -c 'sleep .1; exit 5' 2>&1 | true; exit ${PIPESTATUS[0]}",
        "$H run --force -o r -- sh -c 'exit 5' 2>/dev/full",
        "$H run --force -o r -- sh -c 'exit 5' 2>&-",
        "$H run --force -o r --mode trace -- sh -c 'exit 5' 2>/dev/full >/dev/full",
        "$H run --force -o r -- sh -c 'rm -rf r; exit 5' 2>/dev/full",
        "$H run --force -o r -- sh -c 'kill -ALRM $$' 2>/dev/full",
    ] {
        let status = if script.contains("ALRM") { 142 } else { 5 };
        assert_eq!(run(&mut shell(script, &place), &place).status, status, "{script}");
    }
    let script = "$H run -o new -- /etc/passwd 2>/dev/full";
    assert_eq!(run(&mut shell(script, &place), &place).status, 2);
}

#[test]
fn the_end_of_the_program_is_noted() {
    let place = scratch("end-noted");
    let before = monotonic_ns();
    let mut command = recorded(&place.join("a"), &[]);
    let outcome = run(command.args(["sh", "-c", "sleep .1; kill -9 $$"]), &place);
    assert_eq!(outcome.status, 137);
    let text = fs::read(place.join("a/recording.json")).expect("the metadata");
    let metadata: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let ends = list(&metadata, "ends");
    let own = format!("{}-0", number(&metadata, "root_pid"));
    let end = ends.iter().find(|end| end["image"] == *own).expect("the end of the program");
    let end = number(end, "monotonic_ns");
    assert!((before + 100_000_000..=monotonic_ns()).contains(&end), "{before} {end}");
}

/// Returns the time on the clock of recordings.
fn monotonic_ns() -> i128 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock");
    i128::from(now.tv_sec()) * 1_000_000_000 + i128::from(now.tv_nsec())
}

#[test]
fn the_first_process_of_a_pid_namespace_is_recorded() {
    if !may_make_namespaces("inheritance::the_first_process_of_a_pid_namespace_is_recorded") {
        return;
    }
    let place = scratch("pid-namespace");
    let mut command = heaptide();
    let words = ["-p", HEAPTIDE, "run", "-q", "-o", "a", "--", "sh", "-c", "exit 6"];
    let mut unshare = crate::harness::clean(Command::new("unshare"));
    let outcome = run(unshare.args(words).current_dir(&place), &place);
    assert_eq!(outcome.status, 6, "{}", outcome.stderr);
    let info = run(command.arg("report").arg(place.join("a")), &place);
    assert!(info.stdout.contains("exited with status 6"), "{}", info.stdout);
}
