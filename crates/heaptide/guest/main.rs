//! A program that uses each feature of the crate, with known results: `guest FEATURE`.
//!
//! `crates/cli/tests/record/languages.rs` runs it with and without the recorder. It checks some
//! results itself; the test reads the others from the recording.

#![allow(clippy::print_stderr)] // prints its results

mod control;
mod labels;
mod limits;
mod monitors;
mod scopes;
mod spans;
mod tasks;
mod windows;

use std::hint::black_box;

fn main() {
    let ability = std::env::args().nth(1).unwrap_or_default();
    match ability.as_str() {
        "scopes" => scopes::run(),
        "contexts" => scopes::contexts(),
        "tasks" => tasks::run(),
        "labels" => labels::run(),
        "limits" => limits::run(),
        "pools" => labels::pools(),
        "windows" => windows::run(),
        "control" => control::run(),
        "monitors" => monitors::run(),
        "deregistered" => monitors::deregistered_by_itself(),
        "spans" => spans::run(),
        "work" => work(),
        other => {
            eprintln!("guest: no ability `{other}`");
            std::process::exit(2);
        }
    }
    println!("{ability}: done");
}

/// Returns a block of this many bytes that the compiler cannot optimize away.
pub fn block(bytes: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(black_box(bytes)))
}

/// Returns a list of `count` blocks; the list is one more allocation.
pub fn blocks(count: usize, bytes: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::with_capacity(count);
    all.extend((0..count).map(|_| block(bytes)));
    black_box(all)
}

/// The workload for the shipped monitors: 100 requests of 1,000,000 bytes, of which two stay live.
fn work() {
    for _ in 0..98 {
        drop(block(1_000_000));
    }
    let kept = blocks(2, 1_000_000);
    std::mem::forget(kept);
}
