//! `heaptide timeline`: live bytes and allocations over time.

use std::process::ExitCode;

use crate::error::Error;
use crate::options::TimelineOptions;

/// Does it.
pub fn timeline(options: &TimelineOptions) -> Result<ExitCode, Error> {
    Err(Error::new(format!("not built yet: {options:?}")))
}
