//! A program all of whose threads wait in the recorder is reported, once, and can be killed.

use crate::harness::{Guest, clean, recorded, report, scratch};
use crate::recording::number;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Kills a process group in the end: a failed test must leave no program that never ends.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = killpg(self.0, Signal::SIGKILL); // usually it has ended
    }
}

#[test]
fn threads_that_wait_in_the_recorder_are_reported() {
    let place = scratch("watchdog");
    let program = Guest::read("run_stuck.c").build("run-stuck", &[]);
    let bare = clean(Command::new(&program)).status().expect("the program");
    assert!(bare.success());

    let recording = place.join("stuck.heaptide");
    let mut command = recorded(&recording, &[]);
    command.arg(&program).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().expect("heaptide run");
    let _group = Group(Pid::from_raw(child.id() as i32));
    let mut lines = BufReader::new(child.stderr.take().expect("its messages")).lines();
    let line = lines.next().expect("a message").expect("a line");
    let (pid, rest) = line
        .strip_prefix("heaptide: all 2 threads of process ")
        .and_then(|rest| rest.split_once(" waited in the recorder for 5 s: at "))
        .unwrap_or_else(|| panic!("{line}"));
    // The library has a hash in its name unless it is installed.
    assert!(rest.starts_with("libheaptide") && rest.contains(".so+0x"), "{line}");
    assert!(rest.contains(", in a system call at libc.so.6+0x"), "{line}");

    // No second line comes.
    let pid = Pid::from_raw(pid.parse().expect("a pid"));
    kill(pid, Signal::SIGKILL).expect("a process");
    assert_eq!(lines.map(|line| line.expect("a line")).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(child.wait().expect("its end").code(), Some(128 + Signal::SIGKILL as i32));
    assert!(number(&report(&recording, &place)["processes"][0]["totals"], "allocations") >= 2);
}
