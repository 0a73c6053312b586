//! Allocations per iteration, reported by divan through its own counting allocator. That can wrap
//! the recorder, which then has the stacks of the same allocations.

use std::alloc::System;
use std::hint::black_box;

use divan::AllocProfiler;
use heaptide::Recorder;

#[global_allocator]
static ALLOCATOR: AllocProfiler<Recorder<System>> = AllocProfiler::new(Recorder::new(System));

/// Allocates three words of 5 bytes, and their list with 24 bytes per word: four blocks.
#[divan::bench(sample_count = 10, sample_size = 10)]
fn words() -> Vec<String> {
    ["alpha", "gamma", "omega"].map(|word| black_box(word).to_owned()).into()
}

fn main() {
    divan::main();
}
