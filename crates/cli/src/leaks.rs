//! `heaptide leaks`: what was never freed.

use std::process::ExitCode;

use crate::error::Error;
use crate::options::LeaksOptions;

/// Does it.
pub fn leaks(options: &LeaksOptions) -> Result<ExitCode, Error> {
    Err(Error::new(format!("not built yet: {options:?}")))
}
