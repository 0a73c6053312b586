//! Runs fuzz targets on random mutations of their corpora: `cargo xtask fuzz`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stderr)] // a tool for developers

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use heaptide_fixtures::Random;
use heaptide_fuzz::{TARGETS, Target, corpus, directory, mutated, write_seeds};

const HELP: &str = "\
usage: cargo xtask fuzz [--seconds N] [--seed N] [TARGET…]

  --seconds N  how long each target runs (default 20)
  --seed N     repeats the changes of an earlier run
  --seeds      writes the synthetic inputs of the corpora and ends
";
const SECONDS: u64 = 20;
/// An input that takes longer is a failure.
const SLOW: Duration = Duration::from_secs(10);

/// The running target, and its input.
static RUNNING: Mutex<(&str, Vec<u8>)> = Mutex::new(("", Vec::new()));

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("fuzz: {reason}");
            ExitCode::from(2)
        }
    }
}

fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut seconds, mut seed, mut names) = (SECONDS, Random::unseeded().next(), Vec::new());
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().unwrap_or_default();
            value.parse().map_err(|_| format!("{argument} needs a number, found `{value}`\n{HELP}"))
        };
        match argument.as_str() {
            "--seconds" => seconds = number()?,
            "--seed" => seed = number()?,
            "--seeds" => return write_seeds().map_err(|e| format!("cannot write seeds: {e}")),
            name if TARGETS.iter().any(|target| target.0 == name) => names.push(argument),
            other => return Err(format!("unknown target or option `{other}`\n{HELP}")),
        }
    }
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        hook(info);
        eprintln!("fuzz: the input is kept as {}", keep().display());
    }));
    let wanted = |target: &&Target| names.is_empty() || names.iter().any(|name| name == target.0);
    TARGETS.iter().filter(wanted).try_for_each(|target| fuzz(target, seconds, seed))
}

/// Runs a target for this many seconds.
fn fuzz(&(name, target): &Target, seconds: u64, seed: u64) -> Result<(), String> {
    let inputs: Vec<_> = corpus(name).into_iter().map(|(_, bytes)| bytes).collect();
    let mut random = Random::new(seed);
    let (mut count, mut read) = (0u64, 0u64);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(seconds) {
        let input = mutated(&mut random, &inputs);
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = (name, input.clone());
        let begun = Instant::now();
        read += u64::from(target(&input));
        count += 1;
        if begun.elapsed() > SLOW {
            return Err(format!("{name} took {:?} for {}", begun.elapsed(), keep().display()));
        }
    }
    println!("fuzz: {name}: {count} inputs, {read} of them read; --seed {seed}");
    Ok(())
}

/// Writes the current input to a file, like libFuzzer.
fn keep() -> PathBuf {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut hasher = DefaultHasher::new();
    running.1.hash(&mut hasher);
    let directory = directory("artifacts", running.0);
    let path = directory.join(format!("crash-{:016x}", hasher.finish()));
    let written = fs::create_dir_all(&directory).and_then(|()| fs::write(&path, &running.1));
    if let Err(error) = written {
        eprintln!("fuzz: cannot write {}: {error}", path.display());
    }
    path
}
