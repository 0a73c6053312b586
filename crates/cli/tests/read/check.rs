//! `heaptide check`: limits that are met and exceeded, of a program and of a recording, with and
//! without a baseline.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Guest, Outcome, heaptide, recorded, run, scratch};

/// `checked.c` and its directory; the header of the program contains the numbers.
struct Trial {
    place: PathBuf,
    program: PathBuf,
}

impl Trial {
    fn new(name: &str) -> Trial {
        let place = scratch(name);
        fs::create_dir(place.join("tmp")).expect("a directory");
        Trial { place, program: Guest::read("checked.c").build("checked", &["-pthread"]) }
    }

    fn check(&self, words: &[&str]) -> Outcome {
        self.check_in(words, &[])
    }

    fn check_in(&self, words: &[&str], environment: &[(&str, &str)]) -> Outcome {
        let mut command = heaptide();
        command.current_dir(&self.place).env("TMPDIR", self.place.join("tmp"));
        for name in ["GITHUB_SERVER_URL", "CI_SERVER_URL"] {
            command.env_remove(name);
        }
        run(command.arg("check").args(words).envs(environment.iter().copied()), &self.place)
    }

    fn json(&self, words: &[&str]) -> (i32, Value) {
        let outcome = self.check(&[&["--format", "json"], words].concat());
        (outcome.status, serde_json::from_str(&outcome.stdout).expect("JSON"))
    }

    /// Records the program with `rows` rows.
    fn record(&self, rows: u32) -> String {
        let name = format!("{rows}.heaptide");
        let mut command = recorded(&self.place.join(&name), &[]);
        let outcome = run(command.arg(&self.program).arg(rows.to_string()), &self.place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        name
    }

    fn program(&self) -> &str {
        self.program.to_str().expect("text")
    }
}

/// Checks for a refusal with one line on standard error, and returns the line.
fn refused(outcome: &Outcome) -> &str {
    assert_eq!((outcome.status, outcome.stderr.lines().count()), (2, 1), "{}", outcome.stderr);
    outcome.stderr.trim()
}

#[test]
fn a_limit_that_is_exceeded_names_its_owners() {
    let trial = Trial::new("check_program");
    let limits =
        ["--owner", "^parse_row$", "--max", "allocations=99", "--max", "requested_bytes=100K"];
    let words = [&limits[..], &["--", trial.program(), "100"]].concat();
    let outcome = trial.check(&words);
    // Standard output belongs to the program.
    assert_eq!((outcome.status, &*outcome.stdout), (1, ""));
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    let [_, _, exceeded, owner, kept] = lines[..] else { panic!("{}", outcome.stderr) };
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(exceeded), "EXCEEDED owner ^parse_row$: allocations 100, limit 99");
    assert!(words(owner).starts_with("parse_row 100 "), "{owner}");
    assert!(owner.contains("checked.c:"), "{owner}");
    assert_eq!(words(kept), "ok owner ^parse_row$: requested_bytes 97.7 KiB, limit 100 KiB");
    assert_eq!(fs::read_dir(trial.place.join("tmp")).expect("it").count(), 0, "nothing is left");
    let kept = trial.check(&[&limits[..], &["--", trial.program(), "99"]].concat());
    assert_eq!(kept.status, 0, "{}", kept.stderr);
}

/// The sentence of the report stands before everything else, and is a field in JSON.
#[test]
fn all_formats_begin_with_what_holds_the_memory() {
    let trial = Trial::new("check_answer");
    let recording = trial.record(300);
    let mut command = heaptide();
    command.current_dir(&trial.place).args(["report", &recording]);
    let report = run(&mut command, &trial.place).stdout;
    let (heading, _) = report.split_once("\n\n").expect("a blank line");
    let sentence = heading.lines().skip(1).collect::<Vec<_>>().join(" ");
    assert!(sentence.starts_with("`parse_row` (checked.c:"), "{report}");
    let check = |format: &str| {
        trial.check(&["--max", "allocations=1K", "--format", format, &recording]).stdout
    };
    assert_eq!(check("text").lines().next(), Some(&*sentence));
    assert_eq!(check("markdown").lines().next(), Some(&*sentence), "its names are code");
    let json: Value = serde_json::from_str(&check("json")).expect("JSON");
    assert_eq!((&json["answer"], &json["chosen"]), (&json!(sentence), &json!(null)));
    let mut command = heaptide();
    command.current_dir(&trial.place).args(["report", "--format", "json", &recording]);
    let report: Value =
        serde_json::from_str(&run(&mut command, &trial.place).stdout).expect("JSON");
    assert_eq!((&report["answer"], &report["subject"]), (&json!(sentence), &json!(null)));
}

/// Records `resident_between.c` with an argument, and checks a limit.
fn check_between(name: &str, what: &str, limits: &[&str]) -> Outcome {
    let place = scratch(name);
    let program = Guest::read("resident_between.c").build("resident_between", &[]);
    run(recorded(&place.join("a.heaptide"), &[]).arg(program).arg(what), &place);
    let mut command = heaptide();
    run(command.current_dir(&place).arg("check").args(limits).arg("a.heaptide"), &place)
}

#[test]
fn resident_memory_of_a_killed_program_is_not_below_a_limit() {
    let outcome = check_between("check-killed", "killed", &["--max", "resident=32M"]);
    assert!(refused(&outcome).contains("resident"), "{}", outcome.stderr);
}

#[test]
fn mapped_memory_that_is_not_checked_is_stated() {
    let heap = check_between("check-heap", "mapped", &["--max", "peak=20M"]);
    assert_eq!(heap.status, 0, "{}", heap.stdout);
    let note = "heap only; with the memory that the program maps itself (--kind program), peak is \
                80.0 MiB";
    assert!(heap.stdout.contains(note), "{}", heap.stdout);
    let limits = ["--max", "peak=20M", "--kind", "program"];
    let both = check_between("check-mapped", "mapped", &limits);
    assert_eq!(both.status, 1, "{}", both.stdout);
    assert!(!both.stdout.contains("heap only"), "{}", both.stdout);
}

#[test]
fn parts_are_scopes_owners_and_threads() {
    let trial = Trial::new("check_parts");
    let recording = trial.record(30);
    let value = |part: &[&str], metric: &str| {
        let limit = format!("{metric}=0");
        let words = [part, &["--max", &*limit, &*recording]].concat();
        let (_, json) = trial.json(&words);
        (json["limits"][0]["value"].clone(), json["limits"][0]["owners"].clone())
    };
    assert_eq!(value(&["--scope", "^parse$"], "allocations").0, json!(50));
    assert_eq!(value(&["--scope", "^parse$"], "temporary").0, json!(20));
    assert_eq!(value(&["--thread", "^worker$"], "requested_bytes").0, json!(2500));
    let (leaked, owners) = value(&["--scope", "^parse$"], "leaked");
    assert_eq!((leaked.as_u64(), owners.as_array().map(Vec::len)), (Some(30 * 1000), Some(1)));
    assert_eq!(owners[0]["owner"], "parse_row");
    let (both, _) = value(&["--scope", "^parse$", "--owner", "^scratch$"], "allocations");
    assert_eq!(both, json!(20));
    let share = trial.json(&["--scope", "^parse$", "--max", "temporary=40%", &recording]);
    assert_eq!((share.0, &share.1["limits"][0]["whole"]), (0, &json!(50)));
    assert_eq!(trial.json(&["--scope", "^parse$", "--max", "temporary=39%", &recording]).0, 1);
    let (status, all) = trial.json(&["--max", "resident=1", "--max", "peak=1G", &recording]);
    assert_eq!(status, 1);
    assert_eq!(
        (&all["limits"][0]["exceeded"], &all["limits"][1]["exceeded"]),
        (&json!(true), &json!(false))
    );
}

#[test]
fn growth_from_a_baseline_names_what_grew() {
    let trial = Trial::new("check_baseline");
    let (before, after) = (trial.record(100), trial.record(110));
    let words = ["--max", "allocations=+5%", "--scope", "parse", "--baseline", "main.json"];
    let missing = trial.check(&[&words[..], &[&before]].concat());
    assert_eq!(refused(&missing), "heaptide: main.json: no such baseline; write it with --update");
    let update = trial.check(&[&words[..], &["--update", &before]].concat());
    assert_eq!(update.status, 0, "{}", update.stderr);
    let written: Value =
        serde_json::from_slice(&fs::read(trial.place.join("main.json")).expect("it"))
            .expect("JSON");
    let figures = json!({"total": 120, "owners": {"parse_row": 100, "scratch": 20}});
    assert_eq!(written["limits"]["scope parse: allocations"], figures);
    assert_eq!(trial.check(&[&words[..], &[&before]].concat()).status, 0);
    let (status, found) = trial.json(&[&words[..], &[&after]].concat());
    let limit = &found["limits"][0];
    assert_eq!((status, &limit["value"], &limit["most"]), (1, &json!(130), &json!(126)));
    let owner = &limit["owners"][0];
    assert_eq!(
        (&owner["owner"], &owner["value"], &owner["baseline"]),
        (&json!("parse_row"), &json!(110), &json!(100))
    );
    assert_eq!(limit["owners"].as_array().map(Vec::len), Some(1), "scratch did not grow");
    // The same, compared with a recording.
    let words = ["--max", "allocations=+5%", "--scope", "parse", "--baseline", &before, &after];
    assert_eq!(trial.json(&words).1["limits"], found["limits"]);
    // Another limit is added to the baseline, and the first one is kept.
    let more = ["--max", "leaked=+0", "--baseline", "main.json", "--update", &before];
    assert_eq!(trial.check(&more).status, 0);
    let written = fs::read_to_string(trial.place.join("main.json")).expect("it");
    assert!(written.contains("\"leaked\"") && written.contains("\"scope parse: allocations\""));
}

#[test]
fn formats_for_machines_name_the_line() {
    let trial = Trial::new("check_formats");
    let recording = trial.record(10);
    let programs = crate::harness::programs().canonicalize().expect("a directory");
    let environment = [
        ("GITHUB_SERVER_URL", "https://forge"),
        ("GITHUB_REPOSITORY", "me/app"),
        ("GITHUB_SHA", "abc"),
        ("GITHUB_WORKSPACE", programs.to_str().expect("text")),
    ];
    let limit = ["--owner", "parse_row", "--max", "allocations=9", "--max", "frees=0"];
    let files = ["--write", "markdown=comment.md", "--write", "junit=tests.xml"];
    let words = [&limit[..], &files, &["--format", "github", &recording]].concat();
    let outcome = trial.check_in(&words, &environment);
    assert_eq!((outcome.status, &*outcome.stderr), (1, ""));
    let line = Guest::read("checked.c").text().lines().position(|l| l.contains("void parse_row"));
    let line = line.expect("the function") + 1;
    assert_eq!(
        outcome.stdout,
        format!(
            "::error file=checked.c,line={line},title=heaptide%3A owner parse_row%3A allocations::\
             owner parse_row: allocations is 10, limit 9: parse_row 10\n"
        )
    );
    let read = |name: &str| fs::read_to_string(trial.place.join(name)).expect("a file");
    let comment = read("comment.md");
    assert!(comment.contains("\n\n### Memory: 1 of 2 limits exceeded\n"), "{comment}");
    let row = format!("| [`parse_row`](https://forge/me/app/blob/abc/checked.c#L{line}) | 10 |");
    assert!(comment.contains(&row), "{comment}");
    let tests = read("tests.xml");
    assert!(tests.contains("tests=\"2\" failures=\"1\" errors=\"0\""), "{tests}");
    assert!(
        tests.contains("<testcase classname=\"heaptide.check\" name=\"owner parse_row: frees\"/>")
    );
    assert!(
        tests.contains("<failure message=\"owner parse_row: allocations is 10, limit 9"),
        "{tests}"
    );
}

#[test]
fn limits_of_a_project() {
    let trial = Trial::new("check_project");
    let recording = trial.record(10);
    let text = "[check]\nbaseline = \"main.json\"\n\n[[check.limits]]\nscope = \"parse\"\n\
                max = [\"allocations=30\", \"leaked=+0\"]\n\n[[check.limits]]\nmax = [\"peak=1G\"]\n";
    fs::write(trial.place.join("heaptide.toml"), text).expect("a file");
    assert_eq!(trial.check(&["--update", &recording]).status, 0);
    let (status, found) = trial.json(&[&recording]);
    let names: Vec<&str> = found["limits"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|l| l["name"].as_str())
        .collect();
    assert_eq!(
        (status, names),
        (0, vec!["scope parse: allocations", "scope parse: leaked", "peak"])
    );
    let more = trial.record(11);
    assert_eq!(trial.json(&[&more]).1["exceeded"], 2);
    fs::write(trial.place.join("heaptide.toml"), text.replace("30", "30%")).expect("a file");
    let wrong = trial.check(&[&recording]);
    assert!(refused(&wrong).contains("heaptide.toml: check.limits: `allocations=30%`: "));
}

#[test]
fn what_cannot_be_checked_is_one_line_and_skipped_by_bisect() {
    let trial = Trial::new("check_refused");
    let program = trial.program();
    let failed = trial.check(&["--max", "peak=1G", "--", program, "1", "3"]);
    assert!(refused(&failed).ends_with(
        "ended with exit status 3, so its memory was not checked; use --ignore-status to check it"
    ));
    let killed = trial.check(&["--max", "peak=1G", "--", "sh", "-c", "kill -9 $$"]);
    let line = "sh was killed by signal 9 (SIGKILL), or ended with exit status 137, so its memory";
    assert!(refused(&killed).contains(line), "{}", killed.stderr);
    assert_eq!(
        trial.check(&["--ignore-status", "--max", "peak=1G", "--", program, "1", "3"]).status,
        0
    );
    let skipped = trial.check(&["--bisect", "--max", "peak=1G", "--", program, "1", "3"]);
    assert_eq!((skipped.status, skipped.stderr.lines().count()), (125, 1));
    let bad = trial.check(&["--bisect", "--max", "peak=1", "--", program, "1"]);
    assert_eq!(bad.status, 1);
    for (words, line) in [
        (&["--max", "peak=1G", "--", "./no-such-program"][..], "no-such-program"),
        (&["--max", "peak=1G", "nowhere.heaptide"], "nowhere.heaptide"),
        (&["--max", "peak=+1%", "nowhere.heaptide"], "add --baseline"),
        (
            &["--max", "peak=1G", "--update", "nowhere.heaptide"],
            "--update requires --baseline FILE",
        ),
        (&["nowhere.heaptide"], "no limits"),
        (&["--max", "peak=1", "--owner", "(", "nowhere.heaptide"], "--owner `(`: unclosed group"),
    ] {
        let outcome = trial.check(words);
        assert!(refused(&outcome).contains(line), "{}", outcome.stderr);
    }
    let counted = trial.place.join("counted.heaptide");
    let mut command = recorded(&counted, &["--mode", "counters"]);
    assert_eq!(run(command.arg(program), &trial.place).status, 0);
    let counted = counted.to_str().expect("text");
    let outcome = trial.check(&["--max", "peak=1", "--owner", "work", counted]);
    assert!(refused(&outcome).ends_with("--owner requires --mode stacks"));
    let of_thread = trial.json(&["--max", "allocations=4", "--thread", "worker", counted]);
    assert_eq!((of_thread.0, &of_thread.1["limits"][0]["value"]), (1, &json!(5)));
    let usage = trial.check(&["--max", "peaks=1G"]);
    assert_eq!(usage.status, 2);
    assert!(usage.stderr.contains("unknown metric `peaks`"), "{}", usage.stderr);
}

/// Existing files are kept if the program could not be checked.
#[test]
fn a_kept_recording_is_not_replaced_unasked() {
    let trial = Trial::new("check_output");
    let words = ["--max", "peak=1G", "-o", "kept.heaptide", "--", trial.program(), "1"];
    assert_eq!(trial.check(&words).status, 0);
    assert!(trial.place.join("kept.heaptide").is_dir());
    assert_eq!(trial.check(&words).status, 2);
    let again = ["--force", "--max", "peak=1G", "-o", "kept.heaptide", "--", trial.program(), "1"];
    assert_eq!(trial.check(&again).status, 0);
    assert!(Path::new(&trial.place).join("kept.heaptide").is_dir());
}

/// The example: its limits are met, and the comment names a regression.
#[test]
fn the_example_of_continuous_integration() {
    let place = scratch("check_example");
    let example = crate::harness::programs().join("../../examples/ci");
    for file in ["rows.c", "heaptide.toml", "memory.json", "input.txt"] {
        fs::copy(example.join(file), place.join(file)).expect("a copy");
    }
    let check = |flags: &[&str]| {
        let mut compiler = Command::new("cc");
        compiler.args(["-g", "-std=c99", "-Wall", "-Wextra", "-Werror", "-o", "rows", "rows.c"]);
        let compiled = compiler.args(flags).current_dir(&place).status().expect("a compiler");
        assert!(compiled.success());
        let mut command = heaptide();
        command.args(["check", "--format", "github", "--write", "markdown=memory.md"]);
        run(command.args(["--", "./rows", "input.txt"]).current_dir(&place), &place)
    };
    let kept = check(&[]);
    assert_eq!((kept.status, &*kept.stdout), (0, "200 words\n"), "{}", kept.stderr);
    assert_eq!(kept.stderr, "::notice title=heaptide::all 3 memory limits kept\n");
    let worse = check(&["-DREGRESSION"]);
    assert_eq!((worse.status, &*worse.stdout), (1, "200 words\n"), "{}", worse.stderr);
    let comment = fs::read_to_string(place.join("memory.md")).expect("a comment");
    let mut rows = comment.lines().filter(|line| line.starts_with("| `split` in `rows.c:"));
    assert!(rows.any(|row| row.ends_with("` | 0 | 200 | +200 |")), "{comment}");
}

/// Without space for a profile, no event is counted, and each limit was met.
#[test]
fn events_that_were_not_recorded_are_no_success() {
    let trial = Trial::new("check-no-space");
    let recording = trial.place.join("a.heaptide");
    let limited = |words: &[&str]| {
        let mut command = Command::new("prlimit");
        command.args(["--fsize=10240", "--"]).arg(env!("CARGO_BIN_EXE_heaptide")).args(words);
        command.arg("--").arg(&trial.program);
        run(command.current_dir(&trial.place), &trial.place)
    };
    let checked = limited(&["check", "--max", "leaked=0"]);
    assert_eq!(checked.status, 2, "{}{}", checked.stdout, checked.stderr);
    assert!(checked.stderr.contains(" events are not recorded: the profile could not grow"));
    assert!(!checked.stderr.contains("cannot find"), "{}", checked.stderr);
    limited(&["run", "-q", "-o", recording.to_str().expect("a path")]);
    let mut command = heaptide();
    let leaks = run(command.arg("leaks").arg(&recording), &trial.place).stdout;
    assert!(leaks.contains(": nothing of what was recorded\n"), "{leaks}");
    assert!(leaks.contains(" not recorded: more blocks can be live"), "{leaks}");
}
