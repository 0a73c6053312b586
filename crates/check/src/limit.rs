//! Limits and their syntax: `peak=200M`, `temporary=20%`, `allocations=+2%`.

use std::fmt;
use std::str::FromStr;

use heaptide_analysis::model::{Measure, Unit};
use heaptide_command::{growth, values};
use heaptide_render::shared::quantity;

/// The limited quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// The maximal live bytes; for a part of a process, its live bytes at that time.
    Peak,
    /// The maximal resident bytes.
    Resident,
    /// Bytes that are live at the end and not suppressed.
    Leaked,
    /// Bytes to which no pointer led when the process ended, and that are not suppressed.
    Lost,
    /// Any metric.
    Metric(Measure),
}

/// Names of quantities that are no metrics; a metric has its own name.
const NAMES: [(&str, Quantity); 4] = [
    ("peak", Quantity::Peak),
    ("resident", Quantity::Resident),
    ("leaked", Quantity::Leaked),
    ("lost", Quantity::Lost),
];

impl Quantity {
    /// Returns its name in limits, baselines and output.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::Metric(metric) => metric.name(),
            other => NAMES.iter().find(|(_, of)| *of == other).map_or("", |(name, _)| name),
        }
    }

    /// Returns its unit.
    pub fn unit(self) -> Unit {
        match self {
            Quantity::Peak | Quantity::Resident | Quantity::Leaked | Quantity::Lost => Unit::Bytes,
            Quantity::Metric(metric) => metric.unit(),
        }
    }

    /// Returns the metric that a percentage refers to, if there is one.
    pub fn whole(self) -> Option<Measure> {
        match self {
            Quantity::Metric(Measure::Temporary) => Some(Measure::Allocations),
            Quantity::Metric(Measure::CrossThreadFrees) => Some(Measure::Frees),
            _ => None,
        }
    }

    /// Formats a value: `1.50 KiB`, `1,536`.
    pub fn amount(self, value: u64) -> String {
        match self.unit() {
            Unit::Bytes => quantity::bytes(value),
            Unit::Blocks | Unit::Events => quantity::count(value),
        }
    }
}

impl FromStr for Quantity {
    type Err = String;

    fn from_str(name: &str) -> Result<Quantity, String> {
        if let Some((_, own)) = NAMES.iter().find(|(own, _)| *own == name) {
            return Ok(*own);
        }
        name.parse().map(Quantity::Metric).map_err(|_| {
            let names = NAMES.iter().map(|(name, _)| *name);
            let metrics = Measure::all().iter().map(|metric| metric.name());
            let all: Vec<&str> = names.chain(metrics).collect();
            format!("unknown metric `{name}`; expected one of {}", all.join(" "))
        })
    }
}

/// The maximal value of a quantity.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bound {
    /// An absolute value.
    Value(u64),
    /// A percentage of the quantity's [`Quantity::whole`].
    Share(f64),
    /// The value in the baseline plus this growth.
    Growth(growth::Limit),
}

/// A quantity and its maximal value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limit {
    /// The limited quantity.
    pub quantity: Quantity,
    /// Its maximal value.
    pub bound: Bound,
}

impl FromStr for Limit {
    type Err = String;

    /// Parses `METRIC=VALUE`. Bytes have the units of [`values::bytes`]; K, M and G of counts are
    /// powers of 1000.
    ///
    /// ```
    /// use heaptide_check::limit::{Bound, Limit};
    /// let limit: Limit = "peak=1.5K".parse().unwrap();
    /// assert_eq!(limit.bound, Bound::Value(1536));
    /// let limit: Limit = "allocations=1.5K".parse().unwrap();
    /// assert_eq!(limit.bound, Bound::Value(1500));
    /// ```
    fn from_str(text: &str) -> Result<Limit, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!(
                "`{text}`: expected METRIC=VALUE, such as peak=200M, allocations=1.5M, \
                 temporary=20% or peak=+2%"
            ));
        };
        let quantity: Quantity = name.parse()?;
        let bound = if let Some(growth) = value.strip_prefix('+') {
            growth_of(quantity, growth).map(Bound::Growth)
        } else if let Some(percent) = value.strip_suffix('%') {
            return share(quantity, percent)
                .map(|percent| Limit { quantity, bound: Bound::Share(percent) })
                .map_err(|what| format!("`{text}`: {what}"));
        } else {
            number(quantity, value).map(Bound::Value)
        };
        match bound {
            Some(bound) => Ok(Limit { quantity, bound }),
            None => Err(format!(
                "`{text}`: expected a number, such as 4096, 64K or 1.5M, or growth from the \
                 baseline, such as +2% or +64K"
            )),
        }
    }
}

fn share(quantity: Quantity, percent: &str) -> Result<f64, String> {
    if quantity.whole().is_none() {
        let name = quantity.name();
        let growth = if decimal(percent).is_some() { percent } else { "2" };
        return Err(format!(
            "{name} cannot be limited to a percentage; expected a number, or growth from the \
             baseline, such as +{growth}%"
        ));
    }
    let share = decimal(percent).filter(|percent| *percent <= 100.0);
    share.ok_or_else(|| "expected 0% to 100%".to_owned())
}

fn growth_of(quantity: Quantity, text: &str) -> Option<growth::Limit> {
    match text.strip_suffix('%') {
        Some(percent) => decimal(percent).map(growth::Limit::Percent),
        None => number(quantity, text).map(growth::Limit::Amount),
    }
}

fn number(quantity: Quantity, text: &str) -> Option<u64> {
    if quantity.unit() == Unit::Bytes {
        return values::bytes(text).ok();
    }
    let (digits, power) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1),
        b'm' | b'M' => (&text[..text.len() - 1], 2),
        b'g' | b'G' => (&text[..text.len() - 1], 3),
        _ => return text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?,
    };
    let value = decimal(digits)? * 1000_f64.powi(power);
    (value < u64::MAX as f64).then_some(value.round() as u64)
}

/// Parses a number without a sign or an exponent.
fn decimal(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse::<f64>().ok().filter(|value| is_plain && value.is_finite())
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound {
            Bound::Value(most) => f.write_str(&self.quantity.amount(most)),
            Bound::Share(percent) => {
                let whole = self.quantity.whole().map_or("", Measure::name);
                write!(f, "{percent}% of {whole}")
            }
            Bound::Growth(growth::Limit::Percent(percent)) => write!(f, "baseline + {percent}%"),
            Bound::Growth(growth::Limit::Amount(most)) => {
                write!(f, "baseline + {}", self.quantity.amount(most))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_absolute_shares_or_growth() {
        let bound = |text: &str| text.parse::<Limit>().map(|limit| limit.bound);
        assert_eq!(bound("peak=200M"), Ok(Bound::Value(200 << 20)));
        assert_eq!(bound("allocations=1.5M"), Ok(Bound::Value(1_500_000)));
        assert_eq!(bound("leaked=0"), Ok(Bound::Value(0)));
        assert_eq!(bound("temporary=20%"), Ok(Bound::Share(20.0)));
        assert_eq!(bound("peak=+2%"), Ok(Bound::Growth(growth::Limit::Percent(2.0))));
        assert_eq!(bound("resident=+64K"), Ok(Bound::Growth(growth::Limit::Amount(65_536))));
        assert_eq!(bound("frees=18446744073709551615"), Ok(Bound::Value(u64::MAX)));
        for bad in [
            "",
            "peak",
            "peak=",
            "peak=-1",
            "peak=1e3",
            "peak=1.5",
            "peak=5%",
            "temporary=101%",
            "peaks=1",
            "peak=+",
            "peak=+-1",
            "peak=++1",
            "peak= 1",
            "temporary=%",
            "peak=K",
            "peak=99999999999999999999",
            "peak=inf",
        ] {
            assert!(bad.parse::<Limit>().is_err(), "{bad}");
        }
    }

    #[test]
    fn limits_are_formatted_for_people() {
        let shown = |text: &str| text.parse::<Limit>().expect("a limit").to_string();
        assert_eq!(shown("peak=200M"), "200 MiB");
        assert_eq!(shown("allocations=1.5M"), "1,500,000");
        assert_eq!(shown("temporary=20%"), "20% of allocations");
        assert_eq!(shown("peak=+2%"), "baseline + 2%");
        assert_eq!(shown("frees=+3"), "baseline + 3");
    }
}
