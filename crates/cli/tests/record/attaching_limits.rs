//! Attaching to programs near their limits, or with threads that are hard to stop.

use crate::attaching::{Target, program};
use crate::harness::{clean, heaptide, until};
use crate::limits::Mount;
use crate::recording::number;
use heaptide_fixtures::skips::may_make_namespaces;
use std::fs;
use std::process::Command;

/// Starts `attached.c` with a limit set by `ulimit`.
fn limited(name: &str, limit: &str) -> Target {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit {limit}; exec \"$0\"")).arg(program("attached.c"));
    Target::start(name, clean(command))
}

/// Sets a limit of a running program.
fn set(target: &Target, limit: &str) {
    let pid = format!("--pid={}", target.pid());
    let output = Command::new("prlimit").args([&pid, limit]).output().expect("prlimit");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Checks that attaching fails with one line that contains these words, that the program allocates
/// as before and nothing is left behind, and that attaching succeeds once the limit is raised.
fn assert_refused(mut target: Target, limit: &str, words: [&str; 2]) {
    target.steps("m");
    let refused = target.command(&["attach", "--for", "10ms", "-o", "a.heaptide"]);
    assert_eq!((refused.status, refused.stderr.lines().count()), (2, 1), "{}", refused.stderr);
    assert!(words.iter().all(|word| refused.stderr.contains(word)), "{}", refused.stderr);
    assert!(!target.recording("a.heaptide").exists());
    target.steps("mp");
    set(&target, limit);
    target.attach("b.heaptide", &[]);
    target.steps("m");
    target.detach();
    assert_eq!(number(&target.process("b.heaptide")["totals"], "allocations"), 100);
}

#[test]
fn a_program_without_descriptors_is_refused() {
    let target = Target::waiting("attach_descriptors");
    set(&target, "--nofile=3:100");
    assert_refused(target, "--nofile=100:100", ["could not load", "cannot open shared object"]);
    let target = Target::waiting("attach_no_descriptor");
    target.attach("first.heaptide", &[]); // loads the library
    target.detach();
    set(&target, "--nofile=3:100");
    let words = ["could not create its profile: Too many open files", "one free file descriptor"];
    assert_refused(target, "--nofile=100:100", words);
}

#[test]
fn a_program_that_may_write_no_large_files_is_refused() {
    let target = limited("attach_file_size", "-S -f 4");
    let words = ["could not create its profile: File too large", "limit of file sizes"];
    assert_refused(target, "--fsize=unlimited", words);
}

#[test]
fn a_full_disk_leaves_an_attached_program_that_runs() {
    if !may_make_namespaces("attaching_limits::full_disk") {
        return;
    }
    let mut target = Target::waiting("attach_full_disk");
    let mount = Mount::new(&target.place.join("disk"), "size=512k,nr_inodes=64");
    let filled = mount.0.join("filled");
    std::fs::write(&filled, vec![1; 508 << 10]).expect("room");
    let refused = target.command(&["attach", "--for", "10ms", "-o", "disk/a.heaptide"]);
    assert_eq!((refused.status, refused.stderr.lines().count()), (2, 1), "{}", refused.stderr);
    assert!(refused.stderr.contains("No space left on device"), "{}", refused.stderr);
    target.steps("amp");
    std::fs::remove_file(filled).expect("it is there");
    // Space for a part of the traces only.
    target.attach("disk/b.heaptide", &["--mode", "trace"]);
    for _ in 0..50 {
        target.steps("mp");
    }
    target.detach();
    let process = target.process("disk/b.heaptide");
    assert_eq!(number(&process["totals"], "allocations"), 50 * 200);
    assert_eq!(number(&process["totals"], "live_blocks"), 0);
}

#[test]
fn many_threads_that_only_allocate_are_recorded() {
    let mut command = Command::new(program("attached_threads.c"));
    command.arg("64");
    let target = Target::start("attach_many", command);
    for round in 0..2 {
        let name = format!("{round}.heaptide");
        target.attach(&name, &["--patience", "60s"]);
        let outcome = target.command(&["detach", "-q", "--patience", "60s"]);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        target.process(&name); // checks consistency
    }
    assert_eq!(target.end(), Some(0));
}

/// A command that times out leaves no recording, and the next one succeeds.
#[test]
fn a_command_without_patience_leaves_nothing_behind() {
    let mut command = Command::new(program("attached_starts.c"));
    command.arg("");
    let mut target = Target::start("attach_patience", clean(command));
    target.attach("first.heaptide", &[]); // loads the library
    target.detach();
    target.tell(b'v');
    assert_eq!(target.answer(), b'w', "the child runs");
    let gave_up = target.command(&["attach", "--patience", "10ms", "-o", "a.heaptide"]);
    assert_eq!((gave_up.status, gave_up.stderr.lines().count()), (2, 1), "{}", gave_up.stderr);
    assert!(gave_up.stderr.contains("gave up on process"), "{}", gave_up.stderr);
    assert!(!target.recording("a.heaptide").exists());
    target.tell(b'.');
    assert_eq!(target.answer(), b'v');
    target.steps("s"); // not recorded
    target.attach("b.heaptide", &["--patience", "60s"]);
    target.steps("s");
    target.detach();
    assert_eq!(crate::attaching::started(&target, "b.heaptide"), 1);
}

/// The kernel stops such a thread only when the child has ended.
#[test]
fn a_thread_that_waits_for_a_child_of_vfork_is_waited_for() {
    let mut command = Command::new(program("attached_starts.c"));
    command.arg("");
    let mut target = Target::start("attach_vfork", clean(command));
    target.tell(b'v');
    assert_eq!(target.answer(), b'w', "the child runs");
    let mut command = heaptide();
    command.args(["attach", "--background", "-o", "a.heaptide", "--patience", "60s"]);
    command.arg(target.pid().to_string()).current_dir(&target.place);
    let mut attaching = command.spawn().expect("heaptide");
    let status = format!("/proc/{}/status", target.pid());
    let is_traced = || {
        let status = fs::read_to_string(&status).expect("the program's status");
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    };
    until("the command to attach", is_traced);
    target.tell(b'.');
    assert!(attaching.wait().expect("its end").success());
    assert_eq!(target.answer(), b'v');
    target.steps("s");
    target.detach();
    assert_eq!(crate::attaching::started(&target, "a.heaptide"), 1);
}
