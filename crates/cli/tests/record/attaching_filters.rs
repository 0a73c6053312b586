//! Attaching to programs that have confined themselves by seccomp: a filter also judges the calls
//! that a tracer lets a thread make, or cancels.

use crate::attaching::{Target, program};
use crate::recording::number;
use heaptide_fixtures::skips::{ROOT, is_root, skip};
use std::process::Command;

/// Starts `attached_filtered.c` with this filter.
fn filtered(filter: &str) -> Target {
    let mut command = Command::new(program("attached_filtered.c"));
    command.arg(filter);
    Target::start(&format!("attach_filter_{filter}"), command)
}

/// Checks that the program's calls have not failed.
fn assert_ends(mut target: Target) {
    target.steps("m");
    drop(target.child.stdin.take());
    assert_eq!(target.child.wait().expect("its end").code(), Some(7));
}

#[test]
fn a_filter_for_unknown_calls_is_not_provoked() {
    if !is_root() {
        return skip(ROOT); // only root can read filters
    }
    for filter in ["container", "unknown"] {
        let mut target = filtered(filter);
        for round in 0..2 {
            let name = format!("{round}.heaptide");
            target.attach(&name, &[]);
            target.steps("m");
            target.detach();
            target.steps("m");
            let process = target.process(&name);
            assert_eq!(number(&process["totals"], "allocations"), 100, "{filter}");
        }
        assert_ends(target);
    }
}

#[test]
fn a_program_that_attaching_would_end_is_refused() {
    for filter in ["kill", "trap", "deny"] {
        let mut target = filtered(filter);
        target.steps("m");
        let refused = target.command(&["attach", "--for", "10ms", "-o", "a.heaptide"]);
        assert_eq!((refused.status, refused.stderr.lines().count()), (2, 1), "{}", refused.stderr);
        assert!(refused.stderr.contains("seccomp filter"), "{filter}: {}", refused.stderr);
        assert!(!target.recording("a.heaptide").exists(), "{filter}");
        assert_ends(target);
    }
}
