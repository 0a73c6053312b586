//! Programs and recordings whose paths contain line breaks, or are not UTF-8.

use crate::harness::{Guest, heaptide, preloaded, recorded, report, run, scratch, until};
use crate::recording::list;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Names of a program. The kernel lists two of them identically among the mappings of a process.
const NAMES: [&[u8]; 3] = [b"no\xffutf8", b"new\nline", br"lit\012eral"];

fn program(place: &Path, name: &[u8]) -> PathBuf {
    let path = place.join(OsStr::from_bytes(name));
    let built = Guest::read("leaks.c").build("leaks.c", &[]);
    fs::copy(built, &path).expect("a copy of the program");
    path
}

fn functions(recording: &Path, place: &Path) -> Vec<String> {
    let report = report(recording, place);
    let frames = list(&list(&report, "processes")[0], "frames");
    frames.iter().filter_map(|frame| frame["function"].as_str().map(str::to_owned)).collect()
}

#[test]
fn programs_keep_their_symbols() {
    for (number, name) in NAMES.iter().enumerate() {
        let place = scratch(&format!("odd-names-{number}"));
        let program = program(&place, name);
        let recording = place.join("a.heaptide");
        assert_eq!(run(recorded(&recording, &[]).arg(&program), &place).status, 0);
        let sealed = functions(&recording, &place);
        for function in ["leaky", "forgetful", "grows", "main"] {
            assert!(sealed.iter().any(|name| name == function), "{function}: {sealed:?}");
        }
        fs::remove_file(recording.join("symbols.json")).expect("names");
        assert_eq!(functions(&recording, &place), sealed, "looked up again");
        let info = run(heaptide().arg("info").arg(&recording), &place).stdout;
        let shown = String::from_utf8_lossy(name);
        let shown = shown.replace('\u{fffd}', r"\xff").replace('\n', r"\x0a");
        assert!(info.contains(&format!("/{shown}\n")), "{shown}: {info}");
    }
}

/// A running program is found by the file that it writes to, regardless of its path.
#[test]
fn recordings_in_odd_places_are_controlled() {
    let page = [0; 4096];
    for (number, name) in
        [b"new\nline".as_slice(), b"no\xffutf8", br"lit\012eral"].iter().enumerate()
    {
        let place = scratch(&format!("odd-places-{number}"));
        let inside = place.join(OsStr::from_bytes(name));
        fs::create_dir(&inside).expect("a directory");
        let built = Guest::read("looping.c").build("looping.c", &[]);
        // The program's own file, and so its list of mappings, has such a name, too.
        let program = inside.join(OsStr::from_bytes(name));
        fs::copy(built, &program).expect("a copy of the program");
        let (shared, recording) = (inside.join("page"), inside.join("a.heaptide"));
        fs::write(&shared, page).expect("the shared page");
        let mut command = preloaded(&program, &recording);
        command.arg(&shared);
        let mut child = command.spawn().expect("the looping program");
        until("allocations", || fs::read(&shared).expect("the page")[2] > 0);
        let by_recording = run(heaptide().arg("ctl").arg(&recording).arg("status"), &place);
        let pid = child.id().to_string();
        let by_pid = run(heaptide().args(["ctl", &pid, "status"]), &place);
        let report = report_of(&recording, &place);
        child.kill().expect("kill the program");
        child.wait().expect("wait for it");
        for outcome in [by_recording, by_pid] {
            assert_eq!(outcome.status, 0, "{name:?}: {outcome:?}");
            assert!(outcome.stdout.contains("recording  on"), "{name:?}: {outcome:?}");
        }
        assert_eq!(report["processes"][0]["end"]["kind"], "running", "{name:?}");
    }
}

/// Returns the report of a running program, whose tables can be from slightly different times.
fn report_of(recording: &Path, place: &Path) -> serde_json::Value {
    let mut command = heaptide();
    let outcome = run(command.args(["report", "--format", "json"]).arg(recording), place);
    serde_json::from_str(&outcome.stdout).expect("JSON")
}
