//! Static programs are recorded on x86-64 only.

use std::path::Path;

use nix::unistd::Pid;

use crate::error::Error;

/// A program that is about to be executed, and will get the recorder: none on this processor.
#[derive(Debug)]
pub enum Insertion {}

impl Insertion {
    /// Errors: always.
    pub fn begin(_: Pid, _: &Path) -> Result<Insertion, Error> {
        Err(Error::new("static programs are recorded on x86-64 only"))
    }

    /// Releases the process.
    pub fn cancel(self) {
        match self {}
    }

    /// Errors: none, since there is no such program.
    pub fn finish(self) -> Result<(), Error> {
        match self {}
    }
}
