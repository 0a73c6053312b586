//! Static programs are recorded on x86-64 only.

mod executor;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::error::Error;
pub use executor::Executor;

fn unsupported() -> Error {
    Error::new("static programs are recorded on x86-64 only")
}

/// What is read of static programs: nothing.
#[derive(Debug, Default)]
pub struct Symbols;

impl Symbols {
    /// The directories are not read.
    pub fn with_directories(_: Vec<PathBuf>) -> Symbols {
        Symbols
    }

    /// Errors: always.
    pub fn of(&self, _: &File) -> Result<(), Error> {
        Err(unsupported())
    }
}

/// A program that is about to be executed, and will get the recorder: none on this processor.
#[derive(Debug)]
pub enum Insertion {}

impl Insertion {
    /// Errors: always.
    pub fn begin(_: Executor, _: &Path, _: &Arc<Symbols>) -> Result<Insertion, Error> {
        Err(unsupported())
    }

    /// Returns the place of the program's path.
    pub fn program(&self) -> Arc<OnceLock<PathBuf>> {
        match *self {}
    }

    /// Releases the thread.
    pub fn cancel(self) {
        match self {}
    }

    /// Errors: none, since there is no such program.
    pub fn end(self) -> Result<(), Error> {
        match self {}
    }

    /// Errors: none, since there is no such program.
    pub fn finish(self) -> Result<(), Error> {
        match self {}
    }
}
