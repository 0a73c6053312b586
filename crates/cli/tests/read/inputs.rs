//! Inputs replaced by files that would block the reader or never end: then the command hangs.

use crate::damaged::Recorded;
use crate::harness::{Outcome, heaptide, run, scratch};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Kinds of files that replace an input, and how each is reported.
const OTHERS: &[(&str, &str)] = &[
    ("pipe", "is a named pipe, expected a regular file"),
    ("device", "is a device, expected a regular file"),
    ("directory", "is a directory, expected a regular file"),
    ("huge", ""),
];

/// Replaces a file by one of [`OTHERS`].
fn put(kind: &str, path: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir(path);
    match kind {
        "pipe" => {
            let made = Command::new("mkfifo").arg(path).status().expect("mkfifo");
            assert!(made.success(), "no pipe at {path:?}");
        }
        "device" => symlink("/dev/zero", path).expect("a link"),
        "directory" => fs::create_dir(path).expect("a directory"),
        _ => File::create(path).expect("a file").set_len(1 << 40).expect("a sparse file"),
    }
}

/// Replaces a file by each of [`OTHERS`], runs a command that reads it, and restores the file.
fn in_the_place_of(path: &Path, place: &Path, line: &[&str], check: impl Fn(&str, Outcome)) {
    let kept = path.with_extension("kept");
    fs::rename(path, &kept).expect("moved");
    for (kind, says) in OTHERS {
        put(kind, path);
        check(says, run(heaptide().args(line).current_dir(place), place));
    }
    let _ = fs::remove_file(path);
    fs::rename(&kept, path).expect("moved back");
}

#[test]
fn files_of_a_recording() {
    let recorded = Recorded::new("inputs-recording");
    let recording = recorded.path.to_str().expect("UTF-8");
    let count = "SELECT count() FROM events";
    let cases: &[(&str, &[&str])] = &[
        ("recording.json", &["tree", recording]),
        ("symbols.json", &["tree", recording]),
        ("-0.profile", &["tree", recording]),
        (".baseline", &["tree", recording]),
        (".trace", &["tree", recording]),
        (".trace", &["query", count, recording]),
        (".1.snapshot", &["tree", "--snapshot", "1", recording]),
        (".1.snapshot", &["timeline", recording]),
    ];
    for (end, line) in cases {
        let file = recorded.file(end);
        in_the_place_of(&file, &recorded.place, line, |says, outcome| {
            assert_eq!(outcome.status, 0, "{line:?} {outcome:?}");
            let told = format!("heaptide: skipped: {}: ", file.display());
            let lines = outcome.stderr.lines().filter(|line| line.starts_with(&told));
            let lines: Vec<&str> = lines.collect();
            assert_eq!(lines.len(), 1, "{line:?}: {}", outcome.stderr);
            assert!(lines[0].contains(says), "{line:?}: {}", lines[0]);
        });
    }
    let profile = recorded.file("-0.profile");
    let line = ["tree", profile.to_str().expect("UTF-8")];
    in_the_place_of(&profile, &recorded.place, &line, |says, outcome| {
        if says.contains("directory") {
            return assert_eq!(outcome.status, 2, "{outcome:?}"); // may be a recording
        }
        let told = format!("heaptide: {}: ", profile.display());
        assert_eq!((outcome.status, outcome.stderr.lines().count()), (2, 1), "{outcome:?}");
        assert!(outcome.stderr.starts_with(&told) && outcome.stderr.contains(says), "{outcome:?}");
    });
}

#[test]
fn merging_leaves_out_what_is_no_file() {
    let recorded = Recorded::new("inputs-merge");
    for end in ["-0.profile", ".trace", ".baseline", ".1.snapshot", "recording.json"] {
        let file = recorded.file(end);
        let merged = recorded.place.join("merged.heaptide");
        let (from, to) = (recorded.path.to_str().expect("UTF-8"), merged.to_str().expect("UTF-8"));
        let line = ["merge", "--force", from, "-o", to];
        in_the_place_of(&file, &recorded.place, &line, |says, outcome| {
            assert_eq!(outcome.status, 0, "{end}: {outcome:?}");
            assert!(outcome.stderr.contains(says), "{end}: {outcome:?}");
        });
    }
}

#[test]
fn files_that_options_name() {
    let recorded = Recorded::new("inputs-options");
    let recording = recorded.path.to_str().expect("UTF-8");
    let cases: &[(&str, &[&str])] = &[
        ("some.rules", &["tree", "--rules", "some.rules", recording]),
        ("known.txt", &["leaks", "--suppressions", "known.txt", recording]),
        ("a.cali", &["query", "SELECT count()", "a.cali"]),
        ("lib.so", &["run", "--monitor", "./lib.so", "--", "true"]),
        ("a.profile", &["report", "a.profile"]),
    ];
    for (file, line) in cases {
        let file = recorded.place.join(file);
        fs::write(&file, "").expect("a file");
        in_the_place_of(&file, &recorded.place, line, |says, outcome| {
            if says.contains("directory") && line[0] == "report" {
                return assert_eq!(outcome.status, 2, "{outcome:?}"); // may be a recording
            }
            assert_eq!((outcome.status, outcome.stderr.lines().count()), (2, 1), "{outcome:?}");
            let name = file.file_name().and_then(|name| name.to_str()).expect("UTF-8");
            let told = outcome.stderr.contains(name) && outcome.stderr.contains(says);
            assert!(told, "{line:?}: {}", outcome.stderr);
        });
    }
    let sparse = recorded.place.join("sparse.rules");
    File::create(&sparse).expect("a file").set_len(1 << 40).expect("a sparse file");
    let mut command = heaptide();
    command.args(["tree", "--rules"]).arg(&sparse).arg(recording);
    let outcome = run(&mut command, &recorded.place);
    let says = "sparse.rules: cannot read rules: has 1099511627776 bytes, the limit is 16777216\n";
    assert!(outcome.stderr.ends_with(says), "{}", outcome.stderr);
}

/// `heaptide sdk` compares existing files with those that it wrote.
#[test]
fn files_of_an_sdk() {
    let place = scratch("inputs-sdk");
    let sdk = || run(heaptide().args(["sdk", "there"]).current_dir(&place), &place);
    assert_eq!(sdk().status, 0);
    let line = ["sdk", "there"];
    let library = place.join("there/lib/libheaptide.so");
    in_the_place_of(&library, &place, &line, |_, outcome| {
        assert_eq!((outcome.status, outcome.stderr.lines().count()), (2, 1), "{outcome:?}");
        assert!(outcome.stderr.contains("exists and was not written by `heaptide sdk`"));
    });
}

/// A module whose file has been replaced has frames without names, and a note.
#[test]
fn files_of_modules() {
    let place = scratch("inputs-module");
    let program = place.join("program");
    fs::copy(crate::harness::Guest::read("leaks.c").build("leaks.c", &[]), &program).expect("copy");
    let recording = place.join("a.heaptide");
    let mut command = crate::harness::recorded(&recording, &[]);
    assert_eq!(run(command.arg(&program), &place).status, 0);
    fs::remove_file(recording.join("symbols.json")).expect("names");
    let line = ["info", recording.to_str().expect("UTF-8")];
    in_the_place_of(&program, &place, &line, |says, outcome| {
        assert_eq!(outcome.status, 0, "{outcome:?}");
        let told = format!("{}: cannot read it: {says}", program.display());
        assert!(outcome.stdout.contains(&told), "{}", outcome.stdout);
    });
}
