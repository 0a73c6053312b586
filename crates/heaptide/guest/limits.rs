//! Limits: some are kept, and one is exceeded, which prints the stacks.

use heaptide::{Limits, assert_no_alloc, recording};

use crate::{block, blocks};

#[inline(never)]
fn wasteful() {
    drop(blocks(7, 100)); // 8 allocations
}

/// Limits as an attribute, on a function with a parameter and a result.
#[heaptide::limits(allocations = 8, leaked_blocks = 0)]
fn limited(count: usize) -> Result<usize, String> {
    let made = blocks(count, 100);
    let count = made.len().checked_sub(1).ok_or("nothing")?;
    Ok(count + 1)
}

#[heaptide::limits]
fn sum(numbers: &[i32]) -> i32 {
    numbers.iter().sum()
}

pub fn run() {
    assert_eq!(sum(&[1, 2, 3]), 6);
    assert_eq!(limited(7), Ok(7));
    let exceeded = std::panic::catch_unwind(|| limited(8));
    assert_eq!(exceeded.is_err(), recording());
    assert_eq!(assert_no_alloc(|| 1 + 1), 2);
    let exact = Limits::new().allocations(8).leaked_blocks(0).leaked_bytes(0);
    exact.check(wasteful);
    let kept = Limits::new().leaked_blocks(1).check(|| block(50));
    // Nested limits count independently.
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
