//! `heaptide merge`: recordings of several processes, ranks or runs put together.

use std::process::ExitCode;

use crate::error::Error;
use crate::options::MergeOptions;

/// Does it.
pub fn merge(options: &MergeOptions) -> Result<ExitCode, Error> {
    Err(Error::new(format!("not built yet: {options:?}")))
}
