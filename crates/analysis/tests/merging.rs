//! Merged recordings: no data is lost or mixed up, and the origin of each file is known.

use std::fs;
use std::path::{Path, PathBuf};

use heaptide_analysis::model::{End, Measures, Rank, Recording, Run};
use heaptide_analysis::recording::Choice;
use heaptide_analysis::recording::merge::{Merged, merge};
use heaptide_analysis::recording::metadata::{Metadata, Status, StatusKind};
use heaptide_analysis::recording::snapshot;
use heaptide_analysis::recording::snapshot::Reference;
use heaptide_fixtures::{ProfileBuilder, Scratch, site};
use heaptide_format::{Mode, PAGE};

const KEY: [u8; 3] = [7, 7, 7];

/// Returns a process of rank `rank` with one live block of `bytes` bytes, at an address in a file
/// that does not exist here.
fn profile(pid: u32, image: u32, rank: u32, bytes: u64) -> Vec<u8> {
    let mut p = ProfileBuilder::new(Mode::Stacks, pid, image);
    p.program("/bin/app", &["app"]);
    let module = p.module("/gone/libx.so", 0x10_0000, &KEY);
    let node = p.node(0, module, 0x10_0100 + u64::from(rank), 0);
    p.site(0, site(node, 1, bytes));
    p.lane(0, "app", |_| {});
    p.header.peak_bytes = bytes;
    (p.header.rank, p.header.ranks, p.header.job) = (rank + 1, 2, p.string("77"));
    p.finish()
}

/// Writes a recording to a directory, with the exit status of its first process.
fn recording(scratch: &Scratch, name: &str, files: &[(&str, Vec<u8>)], code: i32) -> PathBuf {
    let directory = scratch.join(name);
    fs::create_dir(&directory).expect("a directory");
    files.iter().for_each(|(file, bytes)| fs::write(directory.join(file), bytes).expect("a file"));
    let metadata = Metadata {
        version: 1,
        heaptide: "0.1.0".to_owned(),
        command: vec!["app".to_owned(), name.to_owned()],
        root_pid: 12,
        status: Some(Status { kind: StatusKind::Exited, code }),
        sealed: true,
        ..Metadata::default()
    };
    metadata.write(&directory).expect("metadata");
    directory
}

fn name_address(directory: &Path, address: u64, function: &str) {
    let places = format!(r#""strings":["{function}"],"places":[[{address},1,0,0]]"#);
    let module = format!(r#"{{"path":"/gone/libx.so","build_id":"070707",{places}}}"#);
    let text = format!(r#"{{"version":1,"modules":[{module}]}}"#);
    fs::write(directory.join("symbols.json"), text).expect("symbols");
}

fn merged(scratch: &Scratch, name: &str, inputs: &[PathBuf]) -> (PathBuf, Merged) {
    let directory = scratch.join(name);
    fs::create_dir(&directory).expect("a directory");
    let merged = merge(inputs, &directory, &mut |_, _, _| {}).expect("a merged recording");
    (directory, merged)
}

fn totals(recording: &Recording) -> Measures {
    let mut sums = Measures::default();
    recording.processes.iter().for_each(|p| sums.add(&p.totals));
    sums
}

/// Two recordings with a process 12 each: the first executed another program and exited with 3, the
/// second has a snapshot and exited with 4.
fn two(scratch: &Scratch) -> [PathBuf; 2] {
    let files =
        [("12-0.profile", profile(12, 0, 0, 100)), ("12-1.profile", profile(12, 1, 0, 200))];
    let first = recording(scratch, "first", &files, 3);
    name_address(&first, 0xff, "of_first");
    let files = [
        ("12-0.profile", profile(12, 0, 1, 400)),
        ("12-0.1.snapshot", profile(12, 0, 1, 48)),
        ("12-0.baseline", profile(12, 0, 1, 32)),
    ];
    let second = recording(scratch, "second", &files, 4);
    name_address(&second, 0x100, "of_second");
    [first, second]
}

#[test]
fn equal_pids_stay_apart_with_their_ends_names_and_snapshots() {
    let scratch = Scratch::new("merge-pids");
    let inputs = two(&scratch);
    let (directory, said) = merged(&scratch, "all", &inputs);
    assert_eq!(said, Merged { runs: 2, images: 3, notes: Vec::new() });
    let recording = Recording::open(&directory).expect("a recording");
    assert!(recording.sealed && recording.damaged.is_empty());
    let shown: Vec<_> = recording
        .processes
        .iter()
        .map(|p| {
            let run = p.identity.run.clone().expect("a run");
            let function = p.tables.frames[0].function.as_deref().unwrap_or_default().to_owned();
            (run.number, p.identity.image, p.lifetime.end, p.totals.live_bytes, function)
        })
        .collect();
    let expected = [
        (1, 0, End::Exec, 100, "of_first".to_owned()),
        (2, 0, End::Exited(4), 400, "of_second".to_owned()),
        (1, 1, End::Exited(3), 200, "of_first".to_owned()),
    ];
    assert_eq!(shown, expected);
    let name = inputs[1].to_string_lossy().into_owned();
    assert_eq!(recording.processes[1].identity.run, Some(Run { number: 2, recording: name }));
    assert_eq!(recording.processes[1].identity.rank, Some(Rank { number: 1, of: 2 }));
    assert_eq!(recording.processes[1].identity.job, "77");
    let snapshots = snapshot::all(&directory).expect("snapshots");
    assert_eq!(
        snapshots.iter().map(|s| (s.run, s.pid, s.number)).collect::<Vec<_>>(),
        [(2, 12, 1)]
    );
    let choice = Choice { snapshot: Some(Reference::Number(1)), ..Choice::default() };
    let then = Recording::open_of(&directory, &choice).expect("the snapshot");
    assert_eq!(then.processes[0].totals.live_bytes, 48);
    assert!(directory.join("r2-12-0.baseline").exists());
}

#[test]
fn merged_recordings_merge_again_and_sums_are_sums() {
    let scratch = Scratch::new("merge-again");
    let [first, second] = two(&scratch);
    let third = recording(&scratch, "third", &[("12-0.profile", profile(12, 0, 0, 1600))], 0);
    let (inner, _) = merged(&scratch, "inner", &[first.clone(), second.clone()]);
    let (outer, said) = merged(&scratch, "outer", &[third.clone(), inner]);
    assert_eq!((said.runs, said.images), (3, 4));
    let parts = [first, second, third].map(|part| totals(&Recording::open(&part).expect("a part")));
    let mut sum = Measures::default();
    parts.iter().for_each(|part| sum.add(part));
    let recording = Recording::open(&outer).expect("a recording");
    assert_eq!(totals(&recording), sum);
    assert_eq!(sum.live_bytes, 100 + 200 + 400 + 1600);
    let mut ends: Vec<_> =
        recording.processes.iter().map(|p| (p.identity.run.clone(), p.lifetime.end)).collect();
    ends.sort_by_key(|(run, _)| run.clone());
    let ends: Vec<_> = ends
        .iter()
        .map(|(run, end)| {
            let run = run.as_ref().expect("a run");
            (run.number, run.recording.rsplit('/').next().unwrap_or_default(), *end)
        })
        .collect();
    let expected = [
        (1, "third", End::Exited(0)),
        (2, "first", End::Exec),
        (2, "first", End::Exited(3)),
        (3, "second", End::Exited(4)),
    ];
    assert_eq!(ends, expected);
}

#[test]
fn what_cannot_be_read_is_kept_and_said_and_nothing_readable_is_refused() {
    let scratch = Scratch::new("merge-damage");
    let files = [("12-0.profile", profile(12, 0, 0, 100)), ("13-0.profile", b"rubbish!".to_vec())];
    let half = recording(&scratch, "half", &files, 0);
    fs::write(half.join("symbols.json"), "{").expect("a file");
    let (directory, said) = merged(&scratch, "all", std::slice::from_ref(&half));
    let notes = said.notes.join("\n");
    assert!(notes.contains("13-0.profile: ") && notes.contains("copied as is"));
    assert!(notes.contains("looking up symbols again"), "{notes}");
    assert_eq!(fs::read(directory.join("r1-13-0.profile")).expect("a copy"), b"rubbish!");
    let recording_again = Recording::open(&directory).expect("a recording");
    assert_eq!((recording_again.processes.len(), recording_again.damaged.len()), (1, 1));
    let refused = |inputs: &[PathBuf]| {
        let error = merge(inputs, &scratch.join("none"), &mut |_, _, _| {}).expect_err("an error");
        error.to_string()
    };
    let rubbish = recording(&scratch, "rubbish", &[("1-0.profile", b"rubbish!".to_vec())], 0);
    assert!(refused(&[half.clone(), rubbish]).contains("none of its 1 profiles can be read"));
    assert!(refused(&[half.clone(), scratch.join("missing")]).contains("no such recording"));
    assert!(refused(&[half.clone(), half.join("../half")]).contains("given twice"));
}

#[test]
fn a_single_profile_merges_and_any_name_is_kept() {
    let scratch = Scratch::new("merge-single");
    let files =
        [("12-0.profile", profile(12, 0, 0, 100)), ("r9-odd.profile", profile(5, 0, 1, 40))];
    let both = recording(&scratch, "both", &files, 0);
    let (directory, said) = merged(&scratch, "one", &[both.join("12-0.profile")]);
    assert_eq!((said.runs, said.images), (1, 1));
    assert!(directory.join("r1-12-0.profile").exists());
    let (directory, _) = merged(&scratch, "two", &[both]);
    assert!(directory.join("r1-r9-odd.profile").exists());
    let recording = Recording::open(&directory).expect("a recording");
    assert_eq!(totals(&recording).live_bytes, 140);
    assert!(
        recording.processes.iter().all(|p| p.identity.run.as_ref().is_some_and(|r| r.number == 1))
    );
}

#[test]
fn a_copy_ends_with_the_profile_and_is_packed() {
    let scratch = Scratch::new("merge-long");
    let mut bytes = profile(12, 0, 0, 100);
    let whole = bytes.len();
    bytes.resize(whole + 64 * PAGE as usize, 0);
    let long = recording(&scratch, "long", &[("12-0.profile", bytes)], 0);
    let (directory, _) = merged(&scratch, "all", &[long]);
    let copy = fs::read(directory.join("r1-12-0.profile")).expect("a copy");
    assert!(copy.len() < whole && copy.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]), "{}", copy.len());
}
