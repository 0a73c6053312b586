//! Pages on a terminal: width, colours and pager.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Guest, clean, heaptide, run, scratch};

const ESCAPE: char = '\x1b';

/// Creates a directory with a recording `a` of a program in C++.
fn recorded(name: &str) -> PathBuf {
    let place = scratch(name);
    let program = Guest::read("owners.cpp").build(name, &["-g"]);
    let mut command = heaptide();
    command.args(["run", "-q", "-o", "a"]).arg(program).current_dir(&place);
    let outcome = run(&mut command, &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    place
}

/// The environment variables that determine colours and the pager. CI services set `CI`, and show
/// colours on every terminal.
const SCREEN_VARIABLES: [&str; 7] =
    ["CI", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PAGER", "HEAPTIDE_PAGER", "LESS"];

/// Returns the output of `heaptide WORDS` on a terminal of 70 columns.
fn on_terminal(words: &[&str], variables: &[(&str, &str)], place: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../harness/terminal.py");
    let mut command = clean(Command::new("python3"));
    command.arg(script).arg("page").arg(env!("CARGO_BIN_EXE_heaptide")).args(words);
    for variable in SCREEN_VARIABLES {
        command.env_remove(variable);
    }
    command.env("TERM", "xterm").envs(variables.iter().copied()).current_dir(place);
    let outcome = run(&mut command, place);
    assert_eq!(outcome.status, 0, "{words:?}: {}{}", outcome.stdout, outcome.stderr);
    outcome.stdout
}

#[test]
fn a_terminal_has_colours_unless_the_user_wants_none() {
    let place = recorded("screen-colours");
    let report = ["--no-pager", "report", "a"];
    assert!(on_terminal(&report, &[], &place).contains(ESCAPE));
    assert!(!on_terminal(&report, &[("NO_COLOR", "1")], &place).contains(ESCAPE));
    assert!(!on_terminal(&report, &[("CLICOLOR", "0")], &place).contains(ESCAPE));
    assert!(!on_terminal(&report, &[("TERM", "dumb")], &place).contains(ESCAPE));
    let never = ["--no-pager", "report", "a", "--color", "never"];
    assert!(!on_terminal(&never, &[("CLICOLOR_FORCE", "1")], &place).contains(ESCAPE));
    let piped = |words: &[&str], forced: &str| {
        let mut command = heaptide();
        command.env_remove("NO_COLOR");
        run(command.args(words).env("CLICOLOR_FORCE", forced).current_dir(&place), &place).stdout
    };
    assert!(!piped(&["report", "a"], "").contains(ESCAPE));
    assert!(piped(&["report", "a"], "1").contains(ESCAPE));
    assert!(piped(&["report", "a", "--color", "always"], "").contains(ESCAPE));
    assert!(
        !piped(&["report", "a", "--format", "json", "--color", "always"], "1").contains(ESCAPE)
    );
}

#[test]
fn pages_are_as_wide_as_the_terminal() {
    let place = recorded("screen-width");
    let views: [&[&str]; 7] = [
        &["report", "a"],
        &["report", "a", "--by", "stack"],
        &["report", "a", "--by", "function"],
        &["tree", "a"],
        &["peak", "a"],
        &["diff", "a", "a"],
        &["info", "a"],
    ];
    for view in views {
        let words = [view, &["--no-pager", "--color", "never"]].concat();
        let shown = on_terminal(&words, &[], &place);
        assert!(shown.lines().count() > 2, "{view:?}: {shown}");
        for line in shown.lines().filter(|line| line.trim().contains(' ')) {
            assert!(line.chars().count() <= 70, "{view:?}: {line}");
        }
    }
}

#[test]
fn a_terminal_has_the_pager_that_the_user_chose() {
    let place = recorded("screen-pager");
    let marked = |words: &[&str], variables: &[(&str, &str)]| {
        let shown = on_terminal(words, variables, &place);
        let lines = shown.lines().filter(|line| line.starts_with("paged:")).count();
        assert!(lines == 0 || lines == shown.lines().count(), "{shown}");
        lines > 0
    };
    let (pager, other) = ("sed s/^/paged:/", "cat");
    assert!(marked(&["report", "a"], &[("PAGER", pager)]));
    assert!(marked(&["report", "a"], &[("PAGER", other), ("HEAPTIDE_PAGER", pager)]));
    assert!(marked(&["query", "SELECT function, allocations", "a"], &[("PAGER", pager)]));
    assert!(!marked(&["report", "a"], &[("PAGER", pager), ("HEAPTIDE_PAGER", "")]));
    assert!(!marked(&["--no-pager", "report", "a"], &[("PAGER", pager)]));
    assert!(!marked(&["report", "a", "--format", "json"], &[("PAGER", pager)]));
    // A pager that exits early is not an error.
    let first = on_terminal(&["report", "a", "--by", "stack"], &[("PAGER", "head -n 1")], &place);
    assert_eq!(first.lines().count(), 1, "{first}");
}
