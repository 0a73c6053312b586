//! Programs that cannot be recorded run as without `heaptide run`, and one line gives the reason.

use crate::harness::{Guest, Outcome, clean, profiles, recorded, run, scratch};
use heaptide_fixtures::skips::{ROOT, is_root, skip};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What allocates, prints, and ends with status 3.
const PROGRAM: &str = "\
#include <stdio.h>
#include <stdlib.h>
int main(void) { printf(\"%d\\n\", malloc(100) != NULL); return 3; }
";

/// Builds the program with these flags; none if the compiler cannot.
fn build(place: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let (source, program) = (place.join(format!("{name}.c")), place.join(name));
    fs::write(&source, PROGRAM).expect("a source");
    let mut compiler = Command::new("cc");
    compiler.arg("-w").arg(&source).arg("-o").arg(&program).args(flags);
    compiler.output().expect("a compiler").status.success().then_some(program)
}

/// Runs a program bare and recorded: the same but for one line, which has these words.
fn assert_told(program: &Path, place: &Path, words: &[&str]) {
    let bare = run(&mut clean(Command::new(program)), place);
    let recording = place.join("a");
    let outcome = run(recorded(&recording, &["--force"]).arg(program), place);
    let own = outcome.stderr.lines().filter(|line| line.starts_with("heaptide: "));
    let own: Vec<&str> = own.collect();
    let others = outcome.stderr.lines().filter(|line| !line.starts_with("heaptide: "));
    assert_eq!((bare.status, &bare.stdout), (outcome.status, &outcome.stdout), "{program:?}");
    // What sanitizers print has numbers of processes in it.
    assert_eq!(bare.stderr.lines().count(), others.count(), "{}", outcome.stderr);
    assert!(own.len() == 1 && own[0].contains("nothing was recorded"), "{}", outcome.stderr);
    let unrecorded = unrecorded(&recording);
    for word in words {
        assert!(own[0].contains(word), "{}", own[0]);
        assert!(unrecorded.contains(word), "{unrecorded}");
    }
    assert!(profiles(&recording).is_empty());
}

/// The reason in the recording.
fn unrecorded(recording: &Path) -> String {
    let text = fs::read(recording.join("recording.json")).expect("the metadata");
    let metadata: Value = serde_json::from_slice(&text).expect("JSON");
    metadata["unrecorded"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn sanitizers_that_replace_the_allocator() {
    let place = scratch("sanitizers");
    let mut found = 0;
    for (flag, name) in [
        ("address", "AddressSanitizer"),
        ("thread", "ThreadSanitizer"),
        ("leak", "LeakSanitizer"),
        ("hwaddress", "HWAddressSanitizer"),
    ] {
        let option = format!("-fsanitize={flag}");
        let Some(program) = build(&place, flag, &[&option]) else { continue };
        assert_told(&program, &place, &[name, &option, flag]);
        let script = place.join(format!("{flag}.script"));
        fs::write(&script, format!("#!{}\n", program.display())).expect("a script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a mode");
        assert_told(&script, &place, &[name]);
        found += 1;
    }
    assert!(found > 0, "the compiler has no sanitizers");
}

#[test]
fn a_sanitizer_that_leaves_the_allocator_alone_is_recorded() {
    let place = scratch("ubsan");
    let Some(program) = build(&place, "undefined", &["-fsanitize=undefined"]) else {
        return skip("-fsanitize=undefined");
    };
    let outcome = run(recorded(&place.join("a"), &[]).arg(&program), &place);
    assert_eq!((outcome.status, &*outcome.stderr), (3, ""));
    assert_eq!(profiles(&place.join("a")).len(), 1);
    assert_eq!(unrecorded(&place.join("a")), "");
}

#[test]
fn static_programs() {
    let place = scratch("static-programs");
    for flag in ["-static", "-static-pie"] {
        let program = build(&place, &flag[1..], &[flag]).expect("a static program");
        assert_told(&program, &place, &["is statically linked"]);
    }
}

#[test]
fn programs_of_another_class() {
    let place = scratch("other-class");
    let Some(program) = build(&place, "narrow", &["-m32"]) else {
        return skip("-m32");
    };
    assert_told(&program, &place, &["32-bit x86"]);
}

#[test]
fn programs_with_rights_of_their_own() {
    if !is_root() {
        return skip(ROOT);
    }
    let place = scratch("own-rights");
    let program = build(&place, "privileged", &[]).expect("a program");
    for (mode, word) in [(0o4755, "is set-user-id"), (0o2755, "is set-group-id")] {
        chown(&program, Some(65534), Some(65534)).expect("another owner");
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("a mode");
        assert_told(&program, &place, &[word]);
    }
}

#[test]
fn a_program_that_loads_no_recorder_for_no_known_reason() {
    let place = scratch("no-reason");
    let mut command = recorded(&place.join("a"), &["--no-preload"]);
    let outcome = run(command.arg("true"), &place);
    assert_eq!((outcome.status, outcome.stderr.lines().count()), (0, 1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("the recorder was not loaded"), "{}", outcome.stderr);
}

#[test]
fn children_of_an_unrecorded_program_are_recorded() {
    let place = scratch("unrecorded-parent");
    let source = Guest::read("static.c"); // shows that static programs can be built
    assert!(source.says("not recorded"));
    let text = "#include <stdlib.h>\nint main(void) { return system(\"true; true\") != 0; }\n";
    fs::write(place.join("parent.c"), text).expect("a source");
    let mut compiler = Command::new("cc");
    compiler.args(["-static", "parent.c", "-o", "parent"]).current_dir(&place);
    assert!(compiler.status().expect("a compiler").success());
    let recording = place.join("a");
    let outcome: Outcome = run(recorded(&recording, &[]).arg(place.join("parent")), &place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("only child processes were recorded"), "{}", outcome.stderr);
    assert!(unrecorded(&recording).contains("is statically linked"));
    assert!(!profiles(&recording).is_empty());
}
