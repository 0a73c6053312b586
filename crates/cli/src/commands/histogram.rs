//! `heaptide histogram`: the distribution of block sizes.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use heaptide_analysis::model::Measure;
use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::output::Content;
use heaptide_command::selection::{Selection, Source};
use heaptide_command::{output, source};
use heaptide_render::shared::views::HistogramView;
use heaptide_render::{chart, json, text};

use crate::options::{metric_parser, require_of_rows};

/// `heaptide histogram`.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  heaptide histogram app.heaptide\n  heaptide histogram app.heaptide --format svg -o sizes.svg"
)]
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
    /// Output format: text with bars, json with the numbers, svg or png with a picture
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: HistogramFormat,
    /// File to write a picture to [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "output")]
    pub force: bool,
    /// Draw a picture N pixels wide, 400 to 10000 [default: 1200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(400..=10_000))]
    pub width: Option<u32>,
    #[command(flatten)]
    pub selection: Selection,
}

/// Output formats of `histogram`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum HistogramFormat {
    /// Bars
    Text,
    /// Classes and exact sizes
    Json,
    /// Bars as a vector image
    Svg,
    /// Bars as a raster image
    Png,
}

/// Prints the sizes.
pub fn histogram(options: &HistogramOptions) -> Outcome {
    require_of_rows(options.metric)?;
    let picture = match options.format {
        HistogramFormat::Svg => Some(chart::Format::Svg),
        HistogramFormat::Png => Some(chart::Format::Png),
        HistogramFormat::Text | HistogramFormat::Json => None,
    };
    if picture.is_none() && (options.output.is_some() || options.width.is_some()) {
        return Err(Error::new("--output and --width require --format svg or png").into());
    }
    if let Some(path) = &options.output {
        output::may_write(path, options.force)?;
    }
    let view = HistogramView { sort: options.metric, top: options.top };
    if options.format == HistogramFormat::Json {
        let selected = source::open_each(&options.source, &options.selection)?;
        let (recording, pid) = (&selected.recording, selected.pid);
        output::print(|out| json::histogram::write(out, recording, pid, &view))?;
        return Ok(());
    }
    let selected = source::open(&options.source, &options.selection)?;
    let process = selected.largest(Measure::Allocations)?;
    match picture {
        None => output::print_page(|out| text::histogram::write(out, process, &view))?,
        Some(format) => {
            let width = options.width.unwrap_or(chart::WIDTH);
            let draw = |out: &mut dyn Write| chart::histogram::write(out, process, format, width);
            output::write_or_print(options.output.as_deref(), options.force, Content::Data, draw)?;
        }
    }
    Ok(())
}
