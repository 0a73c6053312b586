//! Limits that are kept, and one that is exceeded, whose stacks are shown.

use heaptide::{Limits, assert_no_alloc, recording};

use crate::{block, blocks};

#[inline(never)]
fn wasteful() {
    drop(blocks(7, 100)); // 8 allocations
}

pub fn run() {
    assert_eq!(assert_no_alloc(|| 1 + 1), 2);
    let exact = Limits::new().allocations(8).leaked_blocks(0).leaked_bytes(0);
    exact.check(wasteful);
    let kept = Limits::new().leaked_blocks(1).check(|| block(50));
    // Of nested limits each holds by itself.
    Limits::new().allocations(8).check(|| Limits::new().allocations(8).check(wasteful));
    let exceeded = std::panic::catch_unwind(|| Limits::new().allocations(7).check(wasteful));
    assert_eq!(exceeded.is_err(), recording());
    if let Err(panic) = exceeded {
        let text = panic.downcast::<String>().expect("a text");
        assert!(text.ends_with("memory limit exceeded: 8 allocations, limit 7"), "{text}");
        assert!(text.contains("limits.rs:"), "{text}");
    }
    drop(kept);
}
