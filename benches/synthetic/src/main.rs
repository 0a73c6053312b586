//! `heaptide-synthetic STACKS DIRECTORY [SEED]`: writes a sealed recording of this many stacks.

#![forbid(unsafe_code)]
#![allow(clippy::print_stderr)] // a tool for developers

use std::path::PathBuf;
use std::process::ExitCode;

use heaptide_synthetic::{Plan, write};

const USAGE: &str = "usage: heaptide-synthetic STACKS DIRECTORY [SEED]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((plan, directory)) = parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match write(&directory, &plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("heaptide-synthetic: {}: {e}", directory.display());
            ExitCode::from(2)
        }
    }
}

fn parse(arguments: &[String]) -> Option<(Plan, PathBuf)> {
    let (stacks, directory, seed) = match arguments {
        [stacks, directory] => (stacks, directory, "1"),
        [stacks, directory, seed] => (stacks, directory, seed.as_str()),
        _ => return None,
    };
    let plan = Plan { stacks: stacks.parse().ok()?, seed: seed.parse().ok()? };
    Some((plan, PathBuf::from(directory)))
}
