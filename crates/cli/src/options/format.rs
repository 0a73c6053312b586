//! Output formats and metrics: option values that several commands share.

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use heaptide_analysis::model::Measure;
use heaptide_command::error::Error;
use heaptide_command::source::{Reader, Workers};

/// Output formats of commands without other formats.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Human-readable text
    Text,
    /// All data, for scripts
    Json,
}

impl Format {
    /// Returns the reader that the format is for.
    pub fn reader(self) -> Reader {
        match self {
            Format::Text => Reader::Person,
            Format::Json => Reader::Program,
        }
    }

    /// Returns whether several images of the subject are joined: JSON contains each of them.
    pub fn workers(self) -> Workers {
        match self {
            Format::Text => Workers::Joined,
            Format::Json => Workers::Each,
        }
    }
}

/// Parses the name of a metric.
pub fn metric_parser() -> impl TypedValueParser<Value = Measure> {
    let names = Measure::all().iter().map(|m| m.name());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Measure>())
}

/// Checks that rows, which are parts of a process, have a metric.
///
/// Errors: only whole processes have it.
pub fn require_of_rows(metric: Measure) -> Result<(), Error> {
    let of_rows = metric.of_sites();
    if of_rows == metric {
        return Ok(());
    }
    Err(Error::new(format!(
        "--metric {metric}: only defined for whole processes; use --metric {of_rows}, the bytes of \
         each row at peak"
    )))
}
