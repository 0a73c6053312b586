//! `heaptide peak`: what was live when most was live.

use std::process::ExitCode;

use crate::error::Error;
use crate::options::PeakOptions;

/// Does it.
pub fn peak(options: &PeakOptions) -> Result<ExitCode, Error> {
    Err(Error::new(format!("not built yet: {options:?}")))
}
