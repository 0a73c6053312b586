//! Output formats and metrics: option values that several commands share.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command, ValueEnum};
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

/// Short names of metrics, and their names in other tools (the last two are those of pprof).
const SHORT_NAMES: &[(Measure, &[&str])] = &[
    (Measure::AtPeakBytes, &["peak", "at_peak"]),
    (Measure::AtPeakBlocks, &["peak_blocks"]),
    (Measure::LiveBytes, &["leaked", "leaks", "live", "leaked_bytes", "inuse_space"]),
    (Measure::LiveBlocks, &["leaked_blocks", "inuse_objects"]),
    (Measure::UsableBytes, &["allocated", "allocated_bytes", "alloc_space"]),
    (Measure::Allocations, &["allocs", "calls", "alloc_objects"]),
    (Measure::Temporary, &["temporaries", "temporary_allocations"]),
    (Measure::RequestedBytes, &["requested"]),
    (Measure::FreedBytes, &["freed"]),
    (Measure::LargestBytes, &["largest"]),
];

/// Parses the name of a metric, also with `-` for `_`, or a short name.
pub fn metric_parser() -> impl TypedValueParser<Value = Measure> {
    MetricParser
}

#[derive(Clone)]
struct MetricParser;

impl TypedValueParser for MetricParser {
    type Value = Measure;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Measure, clap::Error> {
        let word = value.to_string_lossy().replace('-', "_");
        let short = SHORT_NAMES.iter().find(|(_, names)| names.contains(&&*word));
        if let Some(measure) = short.map(|(of, _)| *of).or_else(|| word.parse().ok()) {
            return Ok(measure);
        }
        let names = Measure::all().iter().map(|measure| measure.name());
        let parser = PossibleValuesParser::new(names).try_map(|name| name.parse::<Measure>());
        parser.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Measure::all().iter().map(|measure| PossibleValue::new(measure.name()))))
    }
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
