//! Root attaches to processes of other users, who own the recording and can put links there: root
//! changes nothing to which these lead.

use crate::attaching::{Target, of_another_user};
use crate::harness::{NOBODY, heaptide, profiles, run, until};
use crate::recording::number;
use heaptide_fixtures::skips::{ROOT, is_root, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// A directory of root with a file.
struct Victim {
    directory: PathBuf,
    file: PathBuf,
}

const CONTENT: &str = "of root";

impl Victim {
    fn new(place: &Path) -> Victim {
        let directory = place.join("victim");
        fs::create_dir(&directory).expect("a directory");
        let file = directory.join("file");
        fs::write(&file, CONTENT).expect("a file");
        Victim { directory, file }
    }

    fn assert_untouched(&self, how: &str) {
        let there = fs::read_dir(&self.directory).expect("it is there").flatten();
        let names: Vec<_> = there.map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["file"], "{how}");
        assert_eq!(fs::read_to_string(&self.file).expect("it is there"), CONTENT, "{how}");
        for path in [&self.directory, &self.file] {
            assert_eq!(path.metadata().expect("it is there").uid(), 0, "{how}: {path:?}");
        }
    }
}

/// Starts `heaptide attach` with traces and snapshots, and waits until the process is recorded.
fn attached(target: &Target) -> Child {
    let mut command = heaptide();
    command.current_dir(&target.place).args(["attach", "--mode", "trace", "-o", "a.heaptide"]);
    command
        .args(["--snapshot-when", "signal=USR1", "--keep-snapshots", "1"])
        .arg(target.pid().to_string());
    let errors = fs::File::create(target.place.join("errors")).expect("a file");
    let mut child = command.stdin(Stdio::null()).stderr(errors).spawn().expect("heaptide");
    let begun = || fs::read_to_string(target.place.join("errors")).expect("its errors");
    until("a recording", || {
        assert!(child.try_wait().expect("its state").is_none(), "{}", begun());
        begun().contains("recording process")
    });
    child
}

/// Puts a link of the process's user at a path.
fn put_link(to: &Path, at: &Path) {
    symlink(to, at).expect("a link");
    lchown(at, Some(NOBODY), Some(NOBODY)).expect("its owner");
}

/// Puts links for each file that root writes into a recording.
fn put_links(target: &Target, recording: &Path, victim: &Victim) {
    let name = |suffix: &str| recording.join(format!("{}-0.{suffix}", target.pid()));
    put_link(&victim.directory.join("trace"), &name("trace"));
    put_link(&victim.file, &recording.join("symbols.json"));
    put_link(&victim.directory.join("removed"), &recording.join("removed.json"));
    put_link(&victim.directory.join("snapshot"), &name("1.snapshot"));
}

/// Puts a link in the place of the recording.
fn replace(_: &Target, recording: &Path, victim: &Victim) {
    fs::rename(recording, recording.with_file_name("moved.heaptide")).expect("to move it");
    put_link(&victim.directory, recording);
}

#[test]
fn links_of_the_process_s_user_lead_root_nowhere() {
    if !is_root() {
        return skip(ROOT);
    }
    type Attack = fn(&Target, &Path, &Victim);
    for (how, attack) in [("in", put_links as Attack), ("instead", replace as Attack)] {
        let (mut target, copied) = of_another_user(&format!("attach_links_{how}"), "attached.c");
        let victim = Victim::new(&copied);
        let mut command = attached(&target);
        attack(&target, &target.recording("a.heaptide"), &victim);
        for _ in 0..60 {
            target.steps("mp"); // fills extents, which are moved to the trace file
        }
        let pid = Pid::from_raw(command.id() as i32);
        for signal in [Signal::SIGUSR1, Signal::SIGINT] {
            kill(pid, signal).expect("it runs");
        }
        command.wait().expect("its end");
        victim.assert_untouched(how);
        let _ = fs::remove_dir_all(copied);
    }
}

/// `heaptide seal` and `heaptide ctl` of root, in a recording that another user owns.
#[test]
fn commands_of_root_change_recordings_as_their_owner() {
    if !is_root() {
        return skip(ROOT);
    }
    let (mut target, copied) = of_another_user("attach_owner", "attached.c");
    let place = &target.place;
    chown(place, Some(NOBODY), Some(NOBODY)).expect("its owner");
    target.attach("a.heaptide", &[]);
    target.steps("m");
    let recording = target.recording("a.heaptide");
    let on = |words: &[&str]| {
        let mut command = heaptide();
        command.args(&words[..1]).arg(&recording).args(&words[1..]);
        let outcome = run(&mut command, &copied);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    };
    on(&["ctl", "snapshot"]);
    target.detach();
    on(&["seal"]);
    for entry in fs::read_dir(&recording).expect("it is there").flatten() {
        let owner = entry.metadata().expect("it is there").uid();
        assert_eq!(owner, NOBODY, "{:?}", entry.file_name());
    }
    assert_eq!(number(&target.process("a.heaptide")["totals"], "allocations"), 100);
    let _ = fs::remove_dir_all(copied);
}

#[test]
fn a_place_that_the_process_s_user_could_replace_is_refused() {
    if !is_root() {
        return skip(ROOT);
    }
    let (target, copied) = of_another_user("attach_place", "attached.c");
    chown(&target.place, Some(NOBODY), Some(NOBODY)).expect("its owner");
    fs::create_dir(target.place.join("of_root")).expect("a directory");
    let refused = target.command(&["attach", "--for", "10ms", "-o", "of_root/a.heaptide"]);
    assert_eq!((refused.status, refused.stderr.lines().count()), (2, 1), "{}", refused.stderr);
    assert!(refused.stderr.contains("could replace"), "{}", refused.stderr);
    assert!(profiles(&target.recording("of_root/a.heaptide")).is_empty());
    let _ = fs::remove_dir_all(copied);
}
