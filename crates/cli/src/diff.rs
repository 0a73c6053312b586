//! `heaptide diff`: two recordings compared.

use std::process::ExitCode;

use crate::error::Error;
use crate::options::DiffOptions;

/// Does it.
pub fn diff(options: &DiffOptions) -> Result<ExitCode, Error> {
    Err(Error::new(format!("not built yet: {options:?}")))
}
