//! `heaptide peak`: what was live when most was live.

use std::process::ExitCode;

use heaptide_analysis::model::Measure;
use heaptide_command::error::Error;
use heaptide_command::{NEGATIVE, source};
use heaptide_render::peak;

use crate::options::{Format, PeakOptions};

/// Prints the peak.
pub fn peak(options: &PeakOptions) -> Result<ExitCode, Error> {
    let recording = source::open(&options.source, &options.selection)?;
    let pid = options.selection.pid();
    if !source::has(&recording, pid) {
        return Ok(ExitCode::from(NEGATIVE));
    }
    match options.format {
        Format::Json => source::print(|out| peak::json(out, &recording, pid, options.top))?,
        Format::Text => {
            let Some(process) = source::largest(&recording, pid, Measure::AtPeakBytes) else {
                return Ok(ExitCode::from(NEGATIVE));
            };
            source::print_page(|out| peak::write(out, process, options.top))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
