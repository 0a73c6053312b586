//! `heaptide histogram`: how many blocks of which sizes.

use heaptide_analysis::model::Measure;
use heaptide_command::outcome::Outcome;
use heaptide_command::{output, source};
use heaptide_render::histogram;

use crate::options::{Format, HistogramOptions};

/// Prints the sizes.
pub fn histogram(options: &HistogramOptions) -> Outcome {
    let selected = source::open(&options.source, &options.selection)?;
    let view = histogram::View { sort: options.sort, top: options.top };
    match options.format {
        Format::Json => {
            output::print(|out| histogram::json(out, &selected.recording, selected.pid, &view))?
        }
        Format::Text => {
            let process = selected.largest(Measure::Allocations)?;
            output::print_page(|out| histogram::write(out, process, &view))?;
        }
    }
    Ok(())
}
