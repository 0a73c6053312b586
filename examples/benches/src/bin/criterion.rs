//! What an iteration allocates, reported by criterion: `heaptide run -- cargo bench` in a project
//! where this is a file of `benches` with `harness = false`.

use std::hint::black_box;

use criterion::Criterion;
use heaptide::Allocated;

/// Three words: three allocations of 5 bytes, and one for the list of 24 bytes each.
fn words() -> Vec<String> {
    ["alpha", "gamma", "omega"].map(|word| black_box(word).to_owned()).into()
}

fn main() {
    let criterion = || Criterion::default().configure_from_args();
    let mut blocks = criterion().with_measurement(Allocated::Blocks);
    blocks.bench_function("words, blocks", |bencher| bencher.iter(words));
    let mut bytes = criterion().with_measurement(Allocated::Bytes);
    bytes.bench_function("words, bytes", |bencher| bencher.iter(words));
}
