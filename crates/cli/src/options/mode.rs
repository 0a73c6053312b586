//! How much is recorded: values of `--mode` and `HEAPTIDE_MODE`.

use std::ffi::OsStr;

use clap::builder::{EnumValueParser, PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command, ValueEnum};
use heaptide_command::values;
use heaptide_format::{SAMPLE_MEAN_BYTES, SAMPLE_MEAN_MAX_BYTES, SAMPLED, sample_mean};

/// How much `run` records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Totals only.
    Counters,
    /// Totals, and everything with a name, such as scopes.
    Scopes,
    /// Also stacks.
    Stacks,
    /// Also every event.
    Trace,
    /// Totals, and stacks of sampled blocks. Holds the mean number of allocated bytes per sample.
    Sampled(u64),
    /// Nothing.
    Off,
}

impl ValueEnum for Mode {
    fn value_variants<'a>() -> &'a [Mode] {
        use Mode::{Counters, Off, Sampled, Scopes, Stacks, Trace};
        &[Counters, Scopes, Stacks, Trace, Sampled(SAMPLE_MEAN_BYTES), Off]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            Mode::Counters => ("counters", "Totals, threads and size histograms"),
            Mode::Scopes => ("scopes", "Counters by scope, label and pool; no stacks"),
            Mode::Stacks => ("stacks", "Counters by scope, label, pool and exact call stack"),
            Mode::Trace => {
                ("trace", "As stacks, and every event in order: lifetimes, freeing threads")
            }
            Mode::Sampled(_) => (
                SAMPLED,
                "As counters, and stacks of blocks chosen at random, one for each 512 KiB allocated \
                 on average (sampled=64K: for each 64 KiB); for services",
            ),
            Mode::Off => ("off", "Nothing: run the program without the recorder"),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

impl Mode {
    /// Returns the value of `HEAPTIDE_MODE`.
    pub fn value(self) -> String {
        match (self, self.to_possible_value()) {
            (Mode::Sampled(mean), _) => format!("{SAMPLED}={mean}"),
            (_, value) => value.map(|value| value.get_name().to_owned()).unwrap_or_default(),
        }
    }

    /// Returns the mode of a value of `HEAPTIDE_MODE`, if it is known.
    pub fn from_value(value: &str) -> Option<Mode> {
        let sampled = sample_mean(value.as_bytes()).map(Mode::Sampled);
        sampled.or_else(|| Mode::from_str(value, false).ok())
    }

    /// Returns the names of the modes, separated by commas.
    pub fn names() -> String {
        let names = Mode::value_variants().iter().filter_map(Mode::to_possible_value);
        let names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
        names.join(", ")
    }

    /// Returns whether stacks are recorded, of all blocks or of samples.
    pub fn has_stacks(self) -> bool {
        matches!(self, Mode::Stacks | Mode::Trace | Mode::Sampled(_))
    }
}

/// Parses a mode: its name, or `sampled=BYTES`.
#[derive(Clone)]
pub struct ModeParser;

impl TypedValueParser for ModeParser {
    type Value = Mode;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Mode, clap::Error> {
        let is_sampled = value
            .to_str()
            .and_then(|value| value.strip_prefix(SAMPLED))
            .is_some_and(|rest| rest.starts_with('='));
        if is_sampled {
            let parser = StringValueParser::new().try_map(|value| mean(&value));
            return parser.parse_ref(command, argument, value).map(Mode::Sampled);
        }
        EnumValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values = Mode::value_variants().iter().filter_map(Mode::to_possible_value);
        Some(Box::new(values))
    }
}

/// Parses the mean of `sampled=BYTES`, with the units of other sizes.
fn mean(mode: &str) -> Result<u64, &'static str> {
    let (_, mean) = mode.split_once('=').unwrap_or_default();
    let mean = values::bytes(mean).ok().filter(|mean| (1..=SAMPLE_MEAN_MAX_BYTES).contains(mean));
    mean.ok_or("expected sampled=BYTES from 1 to 1024G, such as sampled=64K")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_the_units_of_other_sizes() {
        assert_eq!(mean("sampled=64K"), Ok(64 << 10));
        assert_eq!(mean("sampled=1.5MiB"), Ok(3 << 19));
        assert_eq!(mean("sampled=1024G"), Ok(1 << 40));
        for bad in ["sampled=", "sampled=0", "sampled=1025G", "sampled=x"] {
            assert!(mean(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_mode_has_the_value_that_it_is_parsed_from() {
        for &mode in Mode::value_variants() {
            assert_eq!(Mode::from_value(&mode.value()), Some(mode));
        }
        assert_eq!(Mode::from_value("sampled"), Some(Mode::Sampled(512 << 10)));
        assert_eq!(
            Mode::from_value("sampled=3M").map(Mode::value).as_deref(),
            Some("sampled=3145728")
        );
        assert!(["sampled=", "sampled=0", "stack", ""].map(Mode::from_value) == [None; 4]);
    }
}
