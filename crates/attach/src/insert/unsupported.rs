//! Static programs are recorded on x86-64 only.

mod executor;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::error::Error;
pub use executor::Executor;

/// A program that is about to be executed, and will get the recorder: none on this processor.
#[derive(Debug)]
pub enum Insertion {}

impl Insertion {
    /// Errors: always.
    pub fn begin(_: Executor, _: &Path) -> Result<Insertion, Error> {
        Err(Error::new("static programs are recorded on x86-64 only"))
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
