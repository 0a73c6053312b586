//! Allocations per iteration, reported by criterion: `heaptide run -- cargo bench` in a project
//! that has this file in `benches` with `harness = false`.

use std::hint::black_box;

use criterion::Criterion;
use heaptide::Allocated;

/// Allocates three words of 5 bytes, and their list with 24 bytes per word: four blocks.
fn words() -> Vec<String> {
    ["alpha", "gamma", "omega"].map(|word| black_box(word).to_owned()).into()
}

fn main() {
    // criterion 0.8 panics when it plots the comparison of two runs with equal counts.
    let criterion = || Criterion::default().configure_from_args().without_plots();
    let mut blocks = criterion().with_measurement(Allocated::Blocks);
    blocks.bench_function("words, blocks", |bencher| bencher.iter(words));
    let mut bytes = criterion().with_measurement(Allocated::Bytes);
    bytes.bench_function("words, bytes", |bencher| bencher.iter(words));
}
