//! A program all of whose threads wait in the recorder is reported, once, and can be killed.

use crate::harness::{Guest, clean, recorded, report, scratch};
use crate::recording::number;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn threads_that_wait_in_the_recorder_are_reported() {
    let place = scratch("watchdog");
    let program = Guest::read("run_stuck.c").build("bare", &[]);
    let bare = clean(Command::new(&program)).status().expect("the program");
    assert!(bare.success());

    let recording = place.join("stuck.heaptide");
    let mut command = recorded(&recording, &[]);
    let mut child = command.arg(&program).stderr(Stdio::piped()).spawn().expect("heaptide run");
    let mut lines = BufReader::new(child.stderr.take().expect("its messages")).lines();
    let line = lines.next().expect("a message").expect("a line");
    let (pid, rest) = line
        .strip_prefix("heaptide: all 2 threads of process ")
        .and_then(|rest| rest.split_once(" waited in the recorder for 5 s: at "))
        .unwrap_or_else(|| panic!("{line}"));
    assert!(rest.starts_with("libheaptide.so+0x") && rest.contains("system call at lib"), "{line}");

    // No second line comes.
    let pid = Pid::from_raw(pid.parse().expect("a pid"));
    kill(pid, Signal::SIGKILL).expect("a process");
    assert_eq!(lines.map(|line| line.expect("a line")).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(child.wait().expect("its end").code(), Some(128 + Signal::SIGKILL as i32));
    assert!(number(&report(&recording, &place)["processes"][0]["totals"], "allocations") >= 2);
}
