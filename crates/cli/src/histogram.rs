//! `heaptide histogram`: how many blocks of which sizes.

use std::process::ExitCode;

use heaptide_analysis::model::Measure;
use heaptide_command::error::Error;
use heaptide_command::{NEGATIVE, source};
use heaptide_render::histogram;

use crate::options::{Format, HistogramOptions};

/// Prints the sizes.
pub fn histogram(options: &HistogramOptions) -> Result<ExitCode, Error> {
    let recording = source::open(&options.source, &options.selection)?;
    let pid = options.selection.pid();
    if !source::has(&recording, pid) {
        return Ok(ExitCode::from(NEGATIVE));
    }
    let view = histogram::View { sort: options.sort, top: options.top };
    match options.format {
        Format::Json => source::print(|out| histogram::json(out, &recording, pid, &view))?,
        Format::Text => {
            let Some(process) = source::largest(&recording, pid, Measure::Allocations) else {
                return Ok(ExitCode::from(NEGATIVE));
            };
            source::print_page(|out| histogram::write(out, process, &view))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
