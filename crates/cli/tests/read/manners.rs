//! `-` in place of a file, invalid numbers, and unusual paths of recordings.

use crate::harness::{Guest, Outcome, heaptide, recorded, run, scratch};
use crate::questions::formats;
use std::fs;
use std::path::{Path, PathBuf};

/// Records into a new directory.
fn recording(test: &str) -> (PathBuf, PathBuf) {
    let place = scratch(test);
    let program = Guest::read("leaks.c").build("leaks.c", &[]);
    let recording = place.join("a.heaptide");
    let mut command = recorded(&recording, &["--mode", "trace"]);
    assert_eq!(run(command.arg(program), &place).status, 0);
    (place, recording)
}

fn ask(place: &Path, words: &[&str]) -> Outcome {
    run(heaptide().args(words).current_dir(place), place)
}

#[test]
fn dash_is_standard_output() {
    let (place, _) = recording("manners-dash");
    let mut lines: Vec<Vec<String>> = formats()
        .into_iter()
        .filter(|format| format != "pprof") // which contains the time of writing
        .map(|format| ["export", "a.heaptide", "--format", &format].map(str::to_owned).to_vec())
        .collect();
    let more: [&[&str]; 6] = [
        &["query", "SELECT function,count() GROUP BY function", "a.heaptide"],
        &["query", "SELECT count()", "a.heaptide", "--format", "json"],
        &["diff", "a.heaptide", "a.heaptide"],
        &["diff", "a.heaptide", "a.heaptide", "--format", "json"],
        &["diff", "a.heaptide", "a.heaptide", "--format", "svg"],
        &["export", "a.heaptide", "--format", "flamegraph", "--force"],
    ];
    lines.extend(more.map(|words| words.iter().map(|word| (*word).to_owned()).collect()));
    for line in lines {
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        let expected = ask(&place, &words);
        assert_eq!(expected.status, 0, "{words:?}: {expected:?}");
        assert_eq!(ask(&place, &[&*words, &["-o", "-"]].concat()), expected, "{words:?}");
    }
    let svg = ask(&place, &["export", "a.heaptide", "--format", "flamegraph"]);
    assert_eq!(ask(&place, &["flamegraph", "a.heaptide", "-o", "-"]), svg);
    let packed = ["export", "a.heaptide", "--format", "pprof", "-o", "-"];
    assert!(ask(&place, &packed).stdout.len() > 100);
    assert!(!place.join("-").exists());
    // A file with this name can still be written.
    assert_eq!(ask(&place, &["flamegraph", "a.heaptide", "-o", "./-"]).status, 0);
    assert_eq!(fs::read_to_string(place.join("-")).expect("the file"), svg.stdout);
}

#[test]
fn dash_is_no_directory() {
    let (place, _) = recording("manners-directory");
    let lines: [&[&str]; 5] = [
        &["sdk", "-"],
        &["man", "-"],
        &["run", "-q", "-o", "-", "--", "true"],
        &["merge", "a.heaptide", "-o", "-"],
        &["export", "a.heaptide", "--format", "parquet", "-o", "-"],
    ];
    for words in lines {
        let outcome = ask(&place, words);
        assert_eq!((outcome.status, &*outcome.stdout), (2, ""), "{words:?}");
        let first = outcome.stderr.lines().next().unwrap_or_default();
        assert!(first.contains("the output is a directory, not standard output"), "{first}");
        assert!(!place.join("-").exists(), "{words:?}");
    }
}

/// Only a whole process has a peak; earlier versions showed `at_peak_bytes` of rows.
const ONLY_WHOLE: &str = "heaptide: --metric peak_bytes: only defined for whole processes; use \
     --metric at_peak_bytes, the bytes of each row at peak";

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let (place, _) = recording("manners-numbers");
    let run = |option: &'static str, value: &'static str| {
        vec!["run", "-q", "--mode", "trace", "-o", "x.heaptide", option, value, "--", "true"]
    };
    let read = |command: &'static str, option: &'static str, value: &'static str| {
        vec![command, "a.heaptide", option, value]
    };
    let cases = [
        (
            run("--max-trace-size", "0"),
            "expected at least 1 byte; omit --max-trace-size for no limit",
        ),
        (
            run("--stacks-below", "0"),
            "expected at least 1 byte; use --mode scopes to record no stacks",
        ),
        (run("--snapshot-every", "0s"), "expected a time of at least 10ms"),
        (read("report", "--depth", "0"), "expected a number of levels, at least 1"),
        (read("tree", "--depth", "-1"), "unexpected argument '-1'"),
        (read("tree", "--min-percent", "101"), "expected 0 to 100"),
        (read("tree", "--min-percent", "nan"), "expected 0 to 100"),
        (read("report", "--top", "-1"), "unexpected argument '-1'"),
        (read("report", "--top", "1.5"), "invalid value '1.5'"),
        (
            read("report", "--snapshot", "0"),
            "expected the number of a snapshot, from 1, or its name",
        ),
        (read("tree", "--metric", "peak_bytes"), ONLY_WHOLE),
        (read("report", "--sort", "peak_bytes"), ONLY_WHOLE),
        (vec!["report", "a.heaptide", "--by", "stack", "--metric", "peak_bytes"], ONLY_WHOLE),
        (read("flamegraph", "--metric", "peak_bytes"), ONLY_WHOLE),
        (vec!["export", "a.heaptide", "--format", "folded", "--measure", "peak_bytes"], ONLY_WHOLE),
        (read("histogram", "--sort", "peak_bytes"), ONLY_WHOLE),
        (
            vec!["table", "a.heaptide"],
            "unknown command `table`; use `heaptide report --by function`",
        ),
        (vec!["report", "a.heaptide", "--leaks"], "use `heaptide leaks`"),
        (read("timeline", "--width", "0"), "--width 0: expected 32 to 1012"),
        (read("timeline", "--width", "60000"), "--width 60000: expected 32 to 1012"),
        (read("flamegraph", "--width", "299"), "299 is not in 300..=100000"),
        (read("report", "--min-size", "-1"), "unexpected argument '-1'"),
        (
            vec!["diff", "a.heaptide", "a.heaptide", "--fail-above", "-5%"],
            "unexpected argument '-5'",
        ),
        (vec!["diff", "a.heaptide", "a.heaptide", "--fail-above", "1e9%"], "expected a percentage"),
    ];
    for (words, says) in cases {
        let outcome = ask(&place, &words);
        assert_eq!((outcome.status, &*outcome.stdout), (2, ""), "{words:?}: {outcome:?}");
        let first = outcome.stderr.lines().next().unwrap_or_default();
        assert!(first.contains(says), "{words:?}: {}", outcome.stderr);
        assert!(!place.join("x.heaptide").exists(), "{words:?}");
    }
    // A process has a peak, and so do rows that are processes.
    let processes = ask(&place, &["report", "a.heaptide", "--by", "process", "--sort=peak_bytes"]);
    assert_eq!(processes.status, 0, "{processes:?}");
    // The header of a table without rows is a result.
    for command in ["report", "peak", "leaks", "histogram"] {
        let outcome = ask(&place, &[command, "a.heaptide", "--top", "0"]);
        assert!(outcome.status < 2 && outcome.stdout.contains("leaks-c"), "{command}: {outcome:?}");
    }
    let json = ask(&place, &["report", "a.heaptide", "--top", "0", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(report["processes"][0]["sites"], serde_json::json!([]));
}

/// A program that was started through a symbolic link has the name of the link and its own file.
#[test]
fn a_program_is_called_as_it_was_started() {
    let place = scratch("manners-link");
    let program = Guest::read("leaks.c").build("leaks.c", &[]);
    std::os::unix::fs::symlink(&program, place.join("alias")).expect("a link");
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    let outcome = run(command.arg("./alias").current_dir(&place), &place);
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let called = format!("alias ({})", program.display());
    for (words, expected) in [
        (["info", "a.heaptide"], format!("  program    {called}\n")),
        (["report", "a.heaptide"], format!("  program  {called}, pid ")),
    ] {
        let page = ask(&place, &words).stdout;
        assert!(page.contains(&expected), "{expected}: {page}");
    }
    let chrome = ask(&place, &["export", "a.heaptide", "--format", "chrome"]).stdout;
    assert!(chrome.contains(r#""name":"alias""#), "{chrome}");
    let functions = ask(&place, &["report", "a.heaptide", "--by", "function"]).stdout;
    assert!(functions.contains("  main  [leaks-c]"), "{functions}");
}

/// A recording can be named by any path that leads to it.
#[test]
fn odd_paths() {
    let (place, recording) = recording("manners-paths");
    std::os::unix::fs::symlink("a.heaptide", place.join("link")).expect("a link");
    std::os::unix::fs::symlink(&recording, place.join("l.heaptide")).expect("a link");
    let commands: [&[&str]; 5] = [
        &["report"],
        &["info"],
        &["timeline"],
        &["query", "SELECT count() FROM events"],
        &["flamegraph", "--force"],
    ];
    let paths = ["a.heaptide/", "./a.heaptide//", "link", "link/", "l.heaptide", "x/../a.heaptide"];
    fs::create_dir(place.join("x")).expect("a directory");
    for words in commands {
        let plain = ask(&place, &[words, &["a.heaptide"]].concat());
        for path in paths {
            let outcome = ask(&place, &[words, &[path]].concat());
            assert_eq!((outcome.status, outcome.stderr), (plain.status, plain.stderr.clone()));
            assert_eq!(outcome.stdout.lines().count(), plain.stdout.lines().count(), "{words:?}");
        }
        // From inside it.
        let inside = run(heaptide().args(words).arg(".").current_dir(&recording), &place);
        assert_eq!((inside.status, inside.stderr), (plain.status, plain.stderr), "{words:?}");
    }
    let same = ask(&place, &["diff", "a.heaptide/", "link"]);
    assert_eq!((same.status, &*same.stderr), (0, ""));
    let snapshot = ask(&place, &["diff", "a.heaptide/@1", "link/@1"]);
    assert!(snapshot.stderr.contains("no snapshot 1; available: none"), "{}", snapshot.stderr);
    // The picture is next to the recording, or in the current directory.
    let svgs = ["a.svg", "link.svg", "l.svg", "a.heaptide/a.svg"].map(|name| place.join(name));
    let there = svgs.each_ref().map(|svg| svg.exists());
    assert_eq!(there, [true; 4]);
    let files = fs::read_dir(&recording).expect("the recording").flatten();
    let profiles = files.filter(|file| file.file_name().to_string_lossy().ends_with(".profile"));
    for profile in profiles {
        let name = profile.file_name().into_string().expect("UTF-8");
        let odd = format!("link/./{name}");
        assert_eq!(ask(&place, &["report", &odd]).status, 0);
        let slash = ask(&place, &["report", &format!("{odd}/")]);
        assert_eq!((slash.status, slash.stderr.lines().count()), (2, 1), "{}", slash.stderr);
    }
}
