//! `heaptide peak`: what was live when most was live.

use heaptide_analysis::model::Measure;
use heaptide_command::outcome::Outcome;
use heaptide_command::{output, source};
use heaptide_render::peak;

use crate::options::{Format, PeakOptions};

/// Prints the peak.
pub fn peak(options: &PeakOptions) -> Outcome {
    let selected = source::open(&options.source, &options.selection)?;
    match options.format {
        Format::Json => {
            output::print(|out| peak::json(out, &selected.recording, selected.pid, options.top))?
        }
        Format::Text => {
            let process = selected.largest(Measure::AtPeakBytes)?;
            output::print_page(|out| peak::write(out, process, options.top))?;
        }
    }
    Ok(())
}
