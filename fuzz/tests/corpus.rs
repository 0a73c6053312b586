//! Runs every target on its whole corpus, and on mutations that are the same in each run.

use heaptide_fixtures::Random;
use heaptide_fuzz::{TARGETS, corpus, directory, mutated, seeds};

/// Mutations per target, and how many of them at least must be read: most mutations of JSON are
/// errors.
const CHANGED: usize = 100;
const CHANGED_READ: usize = 2;
/// The minimum number of inputs of a corpus, and of all corpora.
const INPUTS: usize = 2;
const INPUTS_OF_ALL: usize = 27;
/// The most bytes of a corpus.
const BYTES: usize = 100_000;

#[test]
fn every_corpus_runs() {
    let mut executed = 0;
    for (name, target) in TARGETS {
        let corpus = corpus(name);
        assert!(corpus.len() >= INPUTS, "{name}: {} inputs", corpus.len());
        let length: usize = corpus.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(length < BYTES, "{name}: {length} bytes");
        for (path, bytes) in &corpus {
            assert!(target(bytes), "{} is not read", path.display());
            executed += 1;
        }
        let inputs: Vec<_> = corpus.into_iter().map(|(_, bytes)| bytes).collect();
        let mut random = Random::new(1);
        let changed = (0..CHANGED).map(|_| target(&mutated(&mut random, &inputs)));
        let read = changed.filter(|&is_read| is_read).count();
        assert!(read >= CHANGED_READ, "{name}: {read} of {CHANGED} changed inputs are read");
    }
    assert!(executed >= INPUTS_OF_ALL, "{executed} inputs");
}

#[test]
fn synthetic_inputs_match_the_current_formats() {
    for (target, name, bytes) in seeds() {
        let path = directory("corpus", target).join(name);
        let is_current = std::fs::read(&path).is_ok_and(|found| found == bytes);
        assert!(is_current, "{path:?} is old; `cargo xtask fuzz --seeds` writes it");
    }
}
