//! `heaptide peak`: allocations live at peak usage.

use clap::Args;
use heaptide_analysis::model::Measure;
use heaptide_command::outcome::Outcome;
use heaptide_command::output;
use heaptide_command::selection::{Selection, Source};
use heaptide_command::source::{self, View};
use heaptide_render::{json, text};

use crate::options::Format;

/// `heaptide peak`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  heaptide peak app.heaptide --top 20")]
pub struct PeakOptions {
    #[command(flatten)]
    pub source: Source,
    /// Show at most N rows
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Output format: text for reading, json with all sites
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    #[command(flatten)]
    pub selection: Selection,
}

/// Prints the allocations live at peak.
pub fn peak(options: &PeakOptions) -> Outcome {
    let (reader, workers) = (options.format.reader(), options.format.workers());
    let view = View { reader, workers, ..View::default() };
    let selected = source::open_view(&options.source, &options.selection, view)?;
    match options.format {
        Format::Json => output::print(|out| {
            json::peak::write(out, &selected.recording, selected.pid, options.top)
        })?,
        Format::Text => {
            let process = selected.largest(Measure::AtPeakBytes)?;
            output::print_page(|out| text::peak::write(out, process, options.top))?;
        }
    }
    Ok(())
}
