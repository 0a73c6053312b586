//! What an iteration allocates, reported by divan: its own allocator counts. It can be around the
//! recorder, which then knows the stacks of the same allocations.

use std::alloc::System;
use std::hint::black_box;

use divan::AllocProfiler;
use heaptide::Recorder;

#[global_allocator]
static ALLOCATOR: AllocProfiler<Recorder<System>> = AllocProfiler::new(Recorder::new(System));

/// Three words: three allocations of 5 bytes, and one for the list of 24 bytes each.
#[divan::bench(sample_count = 10, sample_size = 10)]
fn words() -> Vec<String> {
    ["alpha", "gamma", "omega"].map(|word| black_box(word).to_owned()).into()
}

fn main() {
    divan::main();
}
