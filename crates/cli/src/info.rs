//! `heaptide info`: what a recording is made of.

use std::process::ExitCode;

use heaptide_render::info;

use crate::error::Error;
use crate::options::InfoOptions;
use crate::source;

/// Prints the description.
pub fn info(options: &InfoOptions) -> Result<ExitCode, Error> {
    let recording = source::open(&options.source)?;
    source::print(|out| info::write(out, &recording))?;
    Ok(ExitCode::SUCCESS)
}
