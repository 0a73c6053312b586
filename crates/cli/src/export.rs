//! `heaptide export`: a recording in the format of another tool.

use std::process::ExitCode;

use crate::error::Error;
use crate::options::ExportOptions;

/// Does it.
pub fn export(options: &ExportOptions) -> Result<ExitCode, Error> {
    Err(Error::new(format!("not built yet: {options:?}")))
}
