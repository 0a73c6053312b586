//! Odd surroundings of a program: it behaves as without the recorder, and its known numbers are
//! met.

use crate::expectations;
use crate::harness::{Guest, clean, heaptide, report, run, scratch};
use heaptide_fixtures::skips::may_make_namespaces;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Programs with children of every kind.
const GUESTS: [&str; 3] = ["fork.c", "spawn.c", "leaks.c"];

/// Runs each program after a script of the shell, with and without the recorder. `around` are the
/// words that start the shell.
fn check(name: &str, around: &[&str], script: &str) {
    let place = scratch(&format!("surroundings-{name}"));
    for guest_name in GUESTS {
        let guest = Guest::read(guest_name);
        let program = guest.build(guest_name, &[]);
        let recording = place.join(format!("{guest_name}.heaptide"));
        let within = |words: &Command| {
            let mut command = clean(Command::new(around[0]));
            let script = format!("{script} && exec \"$@\"");
            command.args(&around[1..]).args(["-c", &script, "sh"]);
            command.arg(words.get_program()).args(words.get_args()).current_dir(&place);
            run(&mut command, &place)
        };
        let bare = within(Command::new(&program).args(guest.arguments()));
        let mut command = heaptide();
        command.args(["run", "--quiet", "-o"]).arg(&recording).arg("--").arg(&program);
        assert_eq!(bare, within(command.args(guest.arguments())), "{guest_name}");
        let mut known = expectations::parse(guest.text(), "// expect ");
        known.extend(expectations::parse("recording lost_events=0", ""));
        expectations::assert_met(&report(&recording, &place), &known);
        assert_usable_by_owner(&recording);
    }
}

/// Checks that the owner can read and change a recording.
fn assert_usable_by_owner(recording: &Path) {
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode();
    assert_eq!(mode(recording) & 0o700, 0o700);
    for entry in fs::read_dir(recording).expect("it is there").flatten() {
        assert_eq!(mode(&entry.path()) & 0o600, 0o600, "{:?}", entry.file_name());
    }
}

#[test]
fn a_umask_that_leaves_no_permission() {
    check("umask", &["sh"], "umask 777");
}

#[test]
fn a_current_directory_that_was_removed() {
    check("directory", &["sh"], "mkdir -p gone && cd gone && rmdir ../gone");
}

#[test]
fn no_home_and_no_directory_of_temporary_files() {
    check("homeless", &["sh"], "unset HOME XDG_CACHE_HOME && export TMPDIR=/nowhere");
}

#[test]
fn a_clock_that_is_far_ahead() {
    if !may_make_namespaces("surroundings::a_clock_that_is_far_ahead") {
        return;
    }
    let around = ["unshare", "--time", "--monotonic", "1000000", "--fork", "sh"];
    check("clock", &around, "true");
}
