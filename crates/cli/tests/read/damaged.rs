//! Unreadable files of a recording: every command reports each of them, and shows the rest.

use crate::harness::{Guest, Outcome, heaptide, profiles, recorded, run, scratch};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A recording of three processes with events; two of them have snapshots and a baseline.
pub struct Recorded {
    /// The directory of the test.
    pub place: PathBuf,
    /// The recording.
    pub path: PathBuf,
}

impl Recorded {
    /// Records the program.
    pub fn new(test: &str) -> Recorded {
        let place = scratch(test);
        let path = place.join("a.heaptide");
        let program = Guest::read("api_moments.c").build("api_moments.c", &[]);
        let mut command = recorded(&path, &["--mode", "trace"]);
        let outcome = run(command.args(["sh", "-c", "\"$0\"; \"$0\"; :"]).arg(program), &place);
        assert_eq!(outcome.status, 0, "{outcome:?}");
        assert_eq!(profiles(&path).len(), 3);
        Recorded { place, path }
    }

    /// Returns the file of the recording whose name has this suffix, the last one if there are
    /// several.
    pub fn file(&self, end: &str) -> PathBuf {
        let entries = fs::read_dir(&self.path).expect("a recording").flatten();
        let paths = entries.map(|entry| entry.path());
        let paths = paths.filter(|path| path.to_string_lossy().ends_with(end));
        paths.max().unwrap_or_else(|| panic!("no {end} in {:?}", self.path))
    }

    fn ask(&self, line: &str) -> Outcome {
        let mut command = heaptide();
        command
            .args(line.split_whitespace().map(|word| word.replace('+', " ")))
            .arg(&self.path)
            .current_dir(&self.place);
        run(&mut command, &self.place)
    }
}

/// Commands that list unreadable files in their output.
const LISTING: &[&str] = &["report", "report --format json", "info"];

/// The other commands that read recordings. `a.heaptide` in them stands for the recording, and `+`
/// for a space in a word.
const OTHERS: &[&str] = &[
    "report --by function",
    "report --by process",
    "tree",
    "tree --scopes",
    "flamegraph --force",
    "peak",
    "peak --format json",
    "leaks",
    "histogram",
    "timeline",
    "timeline --format csv",
    "diff a.heaptide",
    "query SELECT+count()",
    "export --format csv",
    "export --format folded",
    "export --format flamegraph",
    "export --format chrome",
    "export --format html",
];

fn damage(file: &Path) {
    fs::write(file, "rubbish").expect("a file");
}

fn reports(outcome: &Outcome) -> Vec<&str> {
    outcome.stderr.lines().filter(|line| line.contains("skipped")).collect()
}

#[test]
fn every_command_reports_a_damaged_profile() {
    let recorded = Recorded::new("damaged-profile");
    let file = recorded.file("-0.profile");
    damage(&file);
    let name = file.file_name().and_then(|name| name.to_str()).expect("UTF-8");
    let says = format!("a.heaptide/{name}: the file is shorter than the magic number");
    for line in LISTING.iter().chain(OTHERS) {
        let outcome = recorded.ask(line);
        let found = if line.starts_with("leaks") { 1 } else { 0 };
        assert_eq!(outcome.status, found, "{line}: {outcome:?}");
        let reports = reports(&outcome);
        assert_eq!(reports.len(), 1, "{line}: {}", outcome.stderr);
        assert!(reports[0].contains(&says), "{line}: {}", outcome.stderr);
        let listed = LISTING.contains(line);
        assert_eq!(outcome.stdout.contains(&says), listed, "{line}: {}", outcome.stdout);
    }
}

#[test]
fn every_kind_of_file_is_reported() {
    let recorded = Recorded::new("damaged-kinds");
    let cases = [
        ("recording.json", "tree"),
        ("symbols.json", "tree"),
        (".trace", "tree"),
        (".baseline", "tree"),
        (".2.snapshot", "tree --snapshot 2"),
        (".2.snapshot", "timeline"),
        (".2.snapshot", "timeline --site kept --process all"),
        ("recording.json", "timeline --site kept --process all"),
    ];
    for (end, line) in cases {
        let file = recorded.file(end);
        let kept = fs::read(&file).expect("the file");
        damage(&file);
        let outcome = recorded.ask(line);
        fs::write(&file, kept).expect("the file");
        assert_eq!(outcome.status, 0, "{end}: {line}: {outcome:?}");
        let reports = reports(&outcome);
        let says = format!("heaptide: skipped: {}: ", file.display());
        assert!(reports.len() == 1 && reports[0].starts_with(&says), "{end}: {}", outcome.stderr);
    }
    assert_eq!(reports(&recorded.ask("tree")), [""; 0]);
}

/// On a terminal, commands that list the files in their output do not also print them as messages.
#[test]
fn nothing_is_said_twice_on_a_terminal() {
    let recorded = Recorded::new("damaged-terminal");
    damage(&recorded.file("-0.profile"));
    for line in LISTING {
        let script = format!("{} --no-pager {line} a.heaptide", env!("CARGO_BIN_EXE_heaptide"));
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &script, "/dev/null"]).current_dir(&recorded.place);
        let output = terminal.stdin(Stdio::null()).output().expect("script, of bsdutils");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{line}: {said}");
        let times = said.matches("the file is shorter than the magic number").count();
        assert_eq!((times, said.contains("skipped")), (1, false), "{line}: {said}");
    }
}

#[test]
fn many_files_are_counted() {
    let recorded = Recorded::new("damaged-many");
    for pid in 1..=8 {
        damage(&recorded.path.join(format!("{pid}-0.profile")));
    }
    let outcome = recorded.ask("tree");
    let reports = reports(&outcome);
    assert_eq!((outcome.status, reports.len()), (0, 6), "{}", outcome.stderr);
    let path = recorded.path.display();
    let more = format!(
        "heaptide: {path}: skipped 3 more unreadable files; `heaptide info {path}` lists them"
    );
    assert_eq!(reports[5], more);
    let info = recorded.ask("info").stdout;
    assert_eq!(info.lines().filter(|line| line.starts_with("unreadable: ")).count(), 8, "{info}");
}
