//! Kernels, containers and sandboxes that reject system calls: the program behaves as bare, and its
//! known numbers are met. A filter rejects the calls of the command and the program.

use crate::expectations;
use crate::harness::{Guest, Outcome, clean, heaptide, report, run, scratch};
use heaptide_fixtures::skips::{may_make_namespaces, skip};
use nix::libc;
use std::path::Path;
use std::process::Command;

/// The status of `starts_refused.c` if there are no filters.
const NOT_HERE: i32 = 77;

/// Programs with known numbers: threads, exceptions, deep stacks, children of every kind, libraries
/// that are loaded and unloaded.
const GUESTS: [&str; 8] = [
    "leaks.c",
    "cross_thread.c",
    "exceptions.cpp",
    "deep.c",
    "fork.c",
    "spawn.c",
    "executes.c",
    "reload.c",
];

/// Calls that are newer than Linux 3.10, which has the age of glibc 2.17. `execveat` is missing,
/// because one of the programs makes that call itself.
const LATER: [i64; 21] = [
    libc::SYS_clone3,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_faccessat2,
    libc::SYS_getrandom,
    libc::SYS_io_uring_setup,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mlock2,
    libc::SYS_openat2,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pkey_alloc,
    libc::SYS_process_madvise,
    libc::SYS_renameat2,
    libc::SYS_rseq,
    libc::SYS_seccomp,
    libc::SYS_statx,
    libc::SYS_userfaultfd,
];

/// Calls that the default filter of Docker rejects, or rejected before it knew them. With EPERM for
/// `clone3`, glibc cannot start threads, so it is not included.
const CONTAINER: [i64; 26] = [
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_close_range,
    libc::SYS_faccessat2,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_keyctl,
    libc::SYS_membarrier,
    libc::SYS_mount,
    libc::SYS_move_pages,
    libc::SYS_name_to_handle_at,
    libc::SYS_openat2,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_open,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_rseq,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Calls that a kernel in user space, such as gVisor, may lack or restrict. `madvise` is not
/// included: without memory that is wiped in forked children (Linux 4.14), recording is impossible.
/// Nor is `prctl`, which programs use to name threads.
const SANDBOX: [i64; 14] = [
    libc::SYS_copy_file_range,
    libc::SYS_fallocate,
    libc::SYS_kcmp,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_mlock2,
    libc::SYS_perf_event_open,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_rseq,
    libc::SYS_seccomp,
    libc::SYS_userfaultfd,
];

/// Runs `words` with a filter that makes these calls fail with `errno`.
fn refused(errno: i32, calls: &[i64], words: &Command, place: &Path) -> Outcome {
    let numbers: Vec<String> = calls.iter().map(i64::to_string).collect();
    let mut command = Command::new(Guest::read("starts_refused.c").build("starts_refused.c", &[]));
    command.arg(errno.to_string()).arg(numbers.join(","));
    command.arg(words.get_program()).args(words.get_args());
    run(clean(command).current_dir(place), place)
}

/// Checks that each guest behaves as bare if these calls fail with `errno`, and that its known
/// numbers are met.
fn check(name: &str, errno: i32, calls: &[i64]) {
    let place = scratch(name);
    for name in GUESTS {
        let guest = Guest::read(name);
        let mut program = Command::new(guest.build(name, &[]));
        program.args(guest.arguments());
        let bare = refused(errno, calls, &program, &place);
        if bare.status == NOT_HERE {
            return skip("seccomp");
        }
        let recording = place.join(format!("{name}.heaptide"));
        let mut command = heaptide();
        command.args(["run", "--quiet", "-o"]).arg(&recording).arg("--");
        command.arg(program.get_program()).args(program.get_args());
        let outcome = refused(errno, calls, &command, &place);
        assert_eq!(bare, outcome, "{name}");
        let mut known = expectations::parse(guest.text(), "// expect ");
        known.extend(expectations::parse("recording lost_events=0", ""));
        expectations::assert_met(&report(&recording, &place), &known);
    }
}

#[test]
fn an_old_kernel() {
    check("refused-old", libc::ENOSYS, &LATER);
}

#[test]
fn a_container() {
    check("refused-container", libc::EPERM, &CONTAINER);
}

#[test]
fn a_kernel_in_user_space() {
    check("refused-sandbox", libc::ENOSYS, &SANDBOX);
}

/// Without /proc, as in some chroots, the recorder does not find its settings. The program behaves
/// as bare, and one line reports that nothing was recorded.
#[test]
fn without_proc() {
    if !may_make_namespaces("refusals::without_proc") {
        return;
    }
    let place = scratch("without-proc");
    for name in GUESTS {
        let guest = Guest::read(name);
        let program = guest.build(name, &[]);
        let hidden = |words: &Command| {
            let mut command = clean(Command::new("unshare"));
            let script = "mount -t tmpfs none /proc && exec \"$@\"";
            command.args(["--mount", "sh", "-c", script, "sh"]).arg(words.get_program());
            run(command.args(words.get_args()).current_dir(&place), &place)
        };
        let bare = hidden(Command::new(&program).args(guest.arguments()));
        let mut command = heaptide();
        command.args(["run", "--quiet", "-o"]).arg(place.join(format!("{name}.heaptide")));
        let outcome = hidden(command.arg("--").arg(&program).args(guest.arguments()));
        assert_eq!((bare.status, bare.stdout), (outcome.status, outcome.stdout), "{name}");
        let lines: Vec<&str> = outcome.stderr.lines().collect();
        let is_reported = lines.len() == 1 && lines[0].contains("nothing was recorded");
        assert!(is_reported, "{name}: {lines:?}");
    }
}
