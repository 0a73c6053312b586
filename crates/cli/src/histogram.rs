//! `heaptide histogram`: how many blocks of which sizes.

use std::process::ExitCode;

use crate::error::Error;
use crate::options::HistogramOptions;

/// Does it.
pub fn histogram(options: &HistogramOptions) -> Result<ExitCode, Error> {
    Err(Error::new(format!("not built yet: {options:?}")))
}
