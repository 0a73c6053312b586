//! A program with each ability of the crate and its known answers: `guest ABILITY`.
//!
//! `crates/cli/tests/guests/languages.rs` runs it with the recorder and without; some answers it
//! checks itself, the rest are read from the recording.

#![allow(clippy::print_stderr)] // its output

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

/// A block of so many bytes that the compiler cannot leave out.
pub fn block(bytes: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(black_box(bytes)))
}

/// So many blocks, with their list: one allocation more.
pub fn blocks(count: usize, bytes: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::with_capacity(count);
    all.extend((0..count).map(|_| block(bytes)));
    black_box(all)
}

/// What the shipped monitors are tried with: a hundred requests of a million bytes, two kept.
fn work() {
    for _ in 0..98 {
        drop(block(1_000_000));
    }
    let kept = blocks(2, 1_000_000);
    std::mem::forget(kept);
}
