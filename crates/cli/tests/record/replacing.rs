//! Recordings are replaced as a whole or not at all, and nothing else is replaced.

use crate::harness::{heaptide, profiles, recorded, report, run, scratch, until};
use crate::recording::{list, number};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Records `sh -c SCRIPT` and returns what the command printed.
pub fn record(recording: &Path, options: &[&str], script: &str, place: &Path) -> (i32, String) {
    let mut command = recorded(recording, options);
    let outcome = run(command.args(["sh", "-c", script]).current_dir(place), place);
    (outcome.status, outcome.stderr)
}

/// Returns the sorted names in a directory.
pub fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("a directory").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns the recordings in a directory, and leftovers of others.
pub fn recordings(place: &Path) -> Vec<String> {
    names(place).into_iter().filter(|name| !name.starts_with("std")).collect()
}

/// Returns names and contents of all files of a recording.
fn contents(recording: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let bytes = fs::read(recording.join(&name)).expect("a file");
        (name, bytes)
    };
    names(recording).into_iter().map(read).collect()
}

#[test]
fn only_recordings_are_replaced() {
    let place = scratch("only-recordings");
    let photos = place.join("photos");
    fs::create_dir_all(photos.join("photos.profile/2024")).expect("directories");
    fs::write(photos.join("photos.profile/2024/a.jpg"), "x").expect("a file");
    for (name, file) in [("traces", "a.trace"), ("snapshots", "12-0.1.snapshot")] {
        fs::create_dir(place.join(name)).expect("a directory");
        fs::write(place.join(name).join(file), "x").expect("a file");
    }
    fs::create_dir_all(place.join("symbols/symbols.json")).expect("directories");
    fs::create_dir(place.join("empty")).expect("a directory");
    for (name, named) in [
        ("photos", "photos.profile"),
        ("traces", "a.trace"),
        ("snapshots", "recording.json"),
        ("symbols", "symbols.json"),
        ("empty", "recording.json"),
    ] {
        let before = names(&place.join(name));
        let (status, stderr) = record(&place.join(name), &["--force"], "exit 0", &place);
        assert_eq!((status, stderr.lines().count()), (2, 1), "{name}: {stderr}");
        assert!(stderr.contains(named) && stderr.contains("--force"), "{stderr}");
        assert_eq!(names(&place.join(name)), before);
    }
    assert!(photos.join("photos.profile/2024/a.jpg").exists());
}

#[test]
fn a_program_that_does_not_start_leaves_the_old_recording() {
    let place = scratch("not-started");
    let recording = place.join("a");
    assert_eq!(record(&recording, &[], "exit 4", &place).0, 4);
    let before = contents(&recording);
    let script = place.join("script");
    fs::write(&script, "#!/no/such/interpreter\n").expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).expect("a mode");
    fs::write(place.join("text"), "no program").expect("a file");
    let text = place.join("text").display().to_string();
    let library =
        ["/nonexistent", "/etc/passwd", "/dev/zero", "/bin/sh", "/lib64/ld-linux-x86-64.so.2"];
    let none: Option<&str> = None;
    let of_libraries = library.map(|library| ("true".to_owned(), Some(library)));
    for (program, library) in [
        ("/etc/passwd".to_owned(), none),
        (script.display().to_string(), none),
        (text, none),
        ("/".to_owned(), none),
        ("/no/such/program".to_owned(), none),
    ]
    .into_iter()
    .chain(of_libraries)
    {
        for (output, options) in [(&recording, &["--force"][..]), (&place.join("new"), &[])] {
            let mut command = recorded(output, options);
            command.envs(library.map(|library| ("HEAPTIDE_LIBRARY", library)));
            let outcome = run(command.arg(&program), &place);
            assert_eq!(outcome.status, 2, "{program} {library:?}: {}", outcome.stderr);
            assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
            assert!(outcome.stderr.starts_with("heaptide: "), "{}", outcome.stderr);
        }
        assert!(contents(&recording) == before, "{program} {library:?}");
        assert_eq!(recordings(&place), ["a", "script", "text"], "{program} {library:?}");
    }
    assert_eq!(record(&recording, &["--force"], "exit 5", &place), (5, String::new()));
    assert!(contents(&recording) != before);
    assert_eq!(recordings(&place), ["a", "script", "text"]);
}

#[test]
fn spellings_of_a_path() {
    let place = scratch("spellings");
    std::os::unix::fs::symlink("a", place.join("link")).expect("a link");
    for (spelling, options) in
        [("a/", &[][..]), ("a//", &["--force"]), ("./a/.", &["--force"]), ("link", &["--force"])]
    {
        let status = record(Path::new(spelling), options, "exit 3", &place);
        assert_eq!(status, (3, String::new()), "{spelling}");
        assert_eq!(recordings(&place), ["a", "link"], "{spelling}");
        assert_eq!(list(&report(&place.join("a"), &place), "processes").len(), 1);
    }
    let refused = record(Path::new("a/"), &[], "exit 3", &place);
    assert!(refused.0 == 2 && refused.1.contains("exists"), "{}", refused.1);
}

/// Starts a run that lasts until the file `go` exists; returns when its program runs.
fn lasting(recording: &Path, script: &str, place: &Path) -> std::process::Child {
    let mut command = recorded(recording, &[]);
    command.args(["sh", "-c", script]).current_dir(place).stdin(Stdio::null());
    let child = command.spawn().expect("heaptide");
    until("the program", || place.join("ready").exists());
    child
}

const UNTIL_GO: &str = "echo >ready; until test -e go; do sleep .01; done; exit 7";

#[test]
fn a_recording_in_use_is_not_replaced() {
    let place = scratch("in-use");
    let recording = place.join("a");
    let mut first = lasting(&recording, UNTIL_GO, &place);
    for options in [&["--force"][..], &["--force", "--mode", "trace"]] {
        let (status, stderr) = record(&recording, options, "exit 5", &place);
        assert_eq!((status, stderr.lines().count()), (2, 1), "{stderr}");
        assert!(stderr.contains("another heaptide process is writing to it"), "{stderr}");
    }
    let other = place.join("b");
    record(&other, &[], "exit 0", &place);
    let mut merge = heaptide();
    merge.arg("merge").args([&other, &other]).arg("-o").arg(&recording).arg("--force");
    let outcome = run(&mut merge, &place);
    assert!(
        outcome.stderr.contains("another heaptide process is writing to it"),
        "{}",
        outcome.stderr
    );
    fs::write(place.join("go"), "").expect("a file");
    assert_eq!(first.wait().expect("its end").code(), Some(7));
    let report = report(&recording, &place);
    assert_eq!(number(&list(&report, "processes")[0]["end"], "code"), 7);
}

#[test]
fn a_recording_that_a_process_still_writes_is_not_replaced() {
    let place = scratch("still-written");
    let recording = place.join("a");
    let daemon = "(until test -e go; do sleep .01; done) >/dev/null 2>&1 & exit 0";
    assert_eq!(record(&recording, &[], daemon, &place).0, 0);
    let (status, stderr) = record(&recording, &["--force"], "exit 5", &place);
    assert!(status == 2 && stderr.contains("is recording into it"), "{stderr}");
    fs::write(place.join("go"), "").expect("a file");
    until("the daemon to end", || record(&recording, &["--force"], "exit 5", &place).0 == 5);
    assert_eq!(recordings(&place), ["a", "go"]);
}

/// Creates two recordings of many processes, which take a while to merge.
pub fn to_merge(place: &Path) -> [PathBuf; 2] {
    ["one", "two"].map(|name| {
        let recording = place.join(name);
        let script = "for i in 1 2 3 4 5 6 7 8 9 10; do ls / >/dev/null; done";
        assert_eq!(record(&recording, &[], script, place).0, 0);
        recording
    })
}

pub fn merge(inputs: &[PathBuf; 2], output: &str, options: &[&str], place: &Path) -> Command {
    let mut command = heaptide();
    command.arg("merge").args(inputs).args(["-o", output]).args(options).current_dir(place);
    command
}

#[test]
fn merging_takes_any_spelling_of_its_output() {
    let place = scratch("merge-spelling");
    let inputs = to_merge(&place);
    for (output, options) in [("c/", &[][..]), ("c/", &["--force"]), ("./c//", &["--force"])] {
        let outcome = run(&mut merge(&inputs, output, options, &place), &place);
        assert_eq!(outcome.status, 0, "{output}: {}", outcome.stderr);
        assert_eq!(recordings(&place), ["c", "one", "two"]);
        assert_eq!(profiles(&place.join("c")).len(), 22);
    }
    let before = contents(&place.join("c"));
    let missing = [inputs[0].clone(), place.join("missing")];
    let outcome = run(&mut merge(&missing, "c", &["--force"], &place), &place);
    assert_eq!(outcome.status, 2, "{}", outcome.stderr);
    assert!(contents(&place.join("c")) == before);
    fs::create_dir(place.join("other")).expect("a directory");
    let outcome = run(&mut merge(&inputs, "other", &["--force"], &place), &place);
    assert!(outcome.status == 2 && outcome.stderr.contains("recording.json"), "{}", outcome.stderr);
    assert_eq!(recordings(&place), ["c", "one", "other", "two"]);
}

#[test]
fn a_recording_that_is_moved_or_removed_meanwhile() {
    let place = scratch("moved-meanwhile");
    let (status, stderr) = record(Path::new("a"), &[], "mv a b; exit 5", &place);
    assert_eq!((status, stderr.lines().count()), (5, 1), "{stderr}");
    let moved = place.join("b");
    assert!(stderr.contains("moved to") && stderr.contains(&*moved.to_string_lossy()), "{stderr}");
    assert_eq!(number(&list(&report(&moved, &place), "processes")[0]["end"], "code"), 5);
    let sealed = fs::read_to_string(moved.join("recording.json")).expect("the metadata");
    assert!(sealed.contains("\"sealed\":true"), "{sealed}");
    for mode in ["stacks", "trace"] {
        let script = "rm -rf c; exit 6";
        let (status, stderr) = record(Path::new("c"), &["--mode", mode], script, &place);
        assert_eq!(status, 6, "{stderr}");
        assert!(stderr.contains("removed while the program ran"), "{stderr}");
    }
    let script = "mv d e; mkdir d; echo mine >d/recording.json; exit 7";
    assert_eq!(record(Path::new("d"), &[], script, &place).0, 7);
    assert_eq!(fs::read_to_string(place.join("d/recording.json")).expect("a file"), "mine\n");
}
