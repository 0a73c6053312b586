//! Output formats and metrics: values of options that several commands have.

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use heaptide_analysis::model::Measure;
use heaptide_command::error::Error;
use heaptide_command::source::Reader;

/// Output formats of views without a format of their own.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// For reading
    Text,
    /// All data, for scripts
    Json,
}

impl Format {
    /// For whom it is.
    pub fn reader(self) -> Reader {
        match self {
            Format::Text => Reader::Person,
            Format::Json => Reader::Program,
        }
    }
}

/// Parses a metric by its name.
pub fn metric_parser() -> impl TypedValueParser<Value = Measure> {
    let names = Measure::all().iter().map(|m| m.name());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Measure>())
}

/// Checks that rows have a metric, of which each is a part of a process.
///
/// Errors: only a whole process has it.
pub fn require_of_rows(metric: Measure) -> Result<(), Error> {
    let of_rows = metric.of_sites();
    if of_rows == metric {
        return Ok(());
    }
    Err(Error::new(format!(
        "--metric {metric}: only a whole process has its peak; use --metric {of_rows}, what each \
         row had at that moment"
    )))
}
