//! A command that has no file descriptor left. One test, since the limit is that of the process.

use heaptide_analysis::recording::running::Running;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Such a command, a server with many clients, took running programs for ended ones.
#[test]
fn a_running_process_has_not_ended() {
    let file = std::env::current_exe().expect("this file, which is mapped");
    let [me, gone] = [std::process::id(), u32::MAX].map(|pid| Running { pid, file: file.clone() });
    assert!(me.is_there() && !gone.is_there());
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, 0, hard).expect("a lower limit");
    let found = (me.is_there(), gone.is_there());
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("the limit");
    assert_eq!(found, (true, false));
}
