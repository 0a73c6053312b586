//! Limits on the growth of a metric between recordings: a percentage or an amount.

use std::fmt;
use std::str::FromStr;

use crate::values;
use heaptide_analysis::views::diff::Change;

/// The maximal growth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Limit {
    /// In percent of the earlier value.
    Percent(f64),
    /// In bytes, or in the metric's unit.
    Amount(u64),
}

impl Limit {
    /// Returns whether a value grew by more. Growth from zero exceeds every percentage.
    pub fn is_exceeded(self, change: Change) -> bool {
        let growth = change.amount();
        match self {
            Limit::Percent(percent) => growth as f64 * 100.0 > change.before as f64 * percent,
            Limit::Amount(most) => growth > i128::from(most),
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        let expected =
            || "expected a percentage or bytes, such as 5%, 0.5%, 4096, 64K or 1M".to_owned();
        let Some(percent) = text.strip_suffix('%') else {
            return values::bytes(text).map(Limit::Amount).map_err(|_| expected());
        };
        // No sign, exponent, or infinity.
        let plain = percent.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let percent = percent.parse::<f64>().ok().filter(|p| plain && p.is_finite());
        percent.map(Limit::Percent).ok_or_else(expected)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Percent(percent) => write!(f, "{percent}%"),
            Limit::Amount(most) => write!(f, "{most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shares_or_absolute() {
        assert_eq!("5%".parse(), Ok(Limit::Percent(5.0)));
        assert_eq!("0.5%".parse(), Ok(Limit::Percent(0.5)));
        assert_eq!("64K".parse(), Ok(Limit::Amount(65_536)));
        assert_eq!("0".parse(), Ok(Limit::Amount(0)));
        for bad in ["", "%", "-5%", "1e3%", "inf%", "NaN%", "5 %", "5%%", "5p", "1.5", "-1", "."] {
            assert!(bad.parse::<Limit>().is_err(), "{bad}");
        }
    }

    #[test]
    fn reaching_a_limit_is_allowed_and_growth_from_zero_is_not() {
        let exceeded = |limit: &str, before, after| {
            let limit: Limit = limit.parse().expect("a limit");
            limit.is_exceeded(Change { before, after })
        };
        assert!(!exceeded("5%", 100, 105) && exceeded("5%", 100, 106));
        assert!(!exceeded("10", 100, 110) && exceeded("10", 100, 111));
        assert!(exceeded("500%", 0, 1) && !exceeded("1", 0, 1) && !exceeded("0%", 0, 0));
        assert!(exceeded("0%", 1_000_000_000, 1_000_000_001) && !exceeded("0%", 9, 3));
        assert!(exceeded("5%", 1, u64::MAX) && !exceeded("0", u64::MAX, 0));
    }
}
