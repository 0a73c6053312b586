//! Exports, read by the tools they are for, on programs of known numbers and on real ones.

use crate::harness::{Guest, Outcome, heaptide, recorded, run, scratch};
use std::fs;
use std::path::{Path, PathBuf};

/// A recording and where its exports go.
struct Recorded {
    place: PathBuf,
    recording: PathBuf,
}

impl Recorded {
    /// A guest program of known numbers, in a mode.
    fn guest(program: &str, name: &str, options: &[&str]) -> Recorded {
        let place = scratch(name);
        let recording = place.join("a.heaptide");
        let program = Guest::read(program).build(program, &[]);
        let outcome = run(recorded(&recording, options).arg(program), &place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        Recorded { place, recording }
    }

    fn export(&self, words: &str) -> Outcome {
        let mut command = heaptide();
        command.arg("export").args(words.split_whitespace()).arg(&self.recording);
        run(&mut command, &self.place)
    }

    /// Writes a file in the place, without a word.
    fn to_file(&self, words: &str, file: &str) -> PathBuf {
        let path = self.place.join(file);
        let outcome = self.export(&format!("{words} -o {}", path.display()));
        let Outcome { status, stdout, stderr } = outcome;
        assert_eq!((status, &*stdout, &*stderr), (0, "", ""), "{words}");
        path
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{path:?}: {e}"))
}

#[test]
fn files_are_not_replaced_unasked() {
    let of = Recorded::guest("peak.c", "foreign-files", &[]);
    let file = of.to_file("--format json", "a.json");
    let first = read(&file);
    let Outcome { status, stderr, .. } = of.export(&format!("--format json -o {}", file.display()));
    assert_eq!((status, stderr.lines().count()), (2, 1), "{stderr}");
    assert!(stderr.contains("exists; --force replaces it"), "{stderr}");
    of.to_file("--format json --force", "a.json");
    assert_eq!(first, read(&file));
    let Outcome { stdout, .. } = of.export("--format json");
    assert_eq!(first, stdout);
    let full = of.export("--format json --force -o /dev/full");
    assert_eq!((full.status, full.stderr.lines().count()), (2, 1), "{}", full.stderr);
    assert!(Path::new("/dev/full").exists());
    let nowhere = of.export("--format json -o no/such/directory");
    assert_eq!((nowhere.status, nowhere.stderr.lines().count()), (2, 1), "{}", nowhere.stderr);
}

#[test]
fn what_a_format_cannot_have_is_said() {
    let of = Recorded::guest("peak.c", "foreign-counters", &["--mode", "counters"]);
    for words in ["--format flamegraph", "--format pprof", "--format callgrind --scopes"] {
        let Outcome { status, stdout, stderr } = of.export(words);
        assert_eq!((status, &*stdout, stderr.lines().count()), (1, "", 1), "{words}: {stderr}");
        assert!(stderr.contains("recorded with --mode counters"), "{stderr}");
    }
    let of = Recorded::guest("peak.c", "foreign-zero", &[]);
    let Outcome { status, stderr, .. } = of.export("--format flamegraph --measure failed");
    assert_eq!(status, 1, "{stderr}");
    assert!(stderr.contains("failed of pid ") && stderr.contains(" is 0"), "{stderr}");
    for words in ["--format json --annotate", "--format pprof --per-lane"] {
        let Outcome { status, stderr, .. } = of.export(words);
        assert_eq!((status, stderr.lines().count()), (2, 1), "{words}: {stderr}");
    }
}
