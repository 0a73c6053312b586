//! `heaptide histogram`: how many blocks of which sizes.

use clap::Args;
use heaptide_analysis::model::Measure;
use heaptide_command::outcome::Outcome;
use heaptide_command::selection::{Selection, Source};
use heaptide_command::{output, source};
use heaptide_render::shared::views::HistogramView;
use heaptide_render::{json, text};

use crate::options::{Format, metric_parser, require_of_rows};

/// `heaptide histogram`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  heaptide histogram app.heaptide")]
pub struct HistogramOptions {
    #[command(flatten)]
    pub source: Source,
    /// Sort exact sizes by this metric
    #[arg(long, visible_alias = "sort", alias = "measure", value_name = "METRIC",
        value_parser = metric_parser(), hide_possible_values = true,
        default_value = "allocations")]
    pub metric: Measure,
    /// Show at most N exact sizes [default: 20 as text, all as json]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Output format: text with bars, json with the numbers
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    #[command(flatten)]
    pub selection: Selection,
}

/// Prints the sizes.
pub fn histogram(options: &HistogramOptions) -> Outcome {
    require_of_rows(options.metric)?;
    let selected = source::open(&options.source, &options.selection)?;
    let view = HistogramView { sort: options.metric, top: options.top };
    match options.format {
        Format::Json => output::print(|out| {
            json::histogram::write(out, &selected.recording, selected.pid, &view)
        })?,
        Format::Text => {
            let process = selected.largest(Measure::Allocations)?;
            output::print_page(|out| text::histogram::write(out, process, &view))?;
        }
    }
    Ok(())
}
