//! Compares values with limits, and finds the owners responsible for exceeded ones.

use std::cmp::Reverse;

use heaptide_analysis::model::Interval;
use heaptide_analysis::views::diff::Change;
use heaptide_command::growth;
use heaptide_render::shared::answer::Answer;
use heaptide_render::shared::quantity::bytes;

use crate::baseline::Baseline;
use crate::limit::{Bound, Limit};
use crate::part::Part;
use crate::values::{Measured, OwnerValue, Place, Value};

/// A limit, and the part of the process that it applies to.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The part of the process.
    pub part: Part,
    /// The limit.
    pub limit: Limit,
}

impl Rule {
    /// Returns its name in baselines and output: `peak`, `scope parse: allocations`.
    pub fn name(&self) -> String {
        let quantity = self.limit.quantity.name();
        if self.part.is_all() { quantity.to_owned() } else { format!("{}: {quantity}", self.part) }
    }
}

/// The result of one rule.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The name of the rule.
    pub name: String,
    /// Its limit.
    pub limit: Limit,
    /// The measured value.
    pub value: u64,
    /// Its 95 % interval, if it is an estimate.
    pub interval: Option<Interval>,
    /// The total, if the limit is a percentage.
    pub whole: Option<u64>,
    /// The value in the baseline, if there is one.
    pub before: Option<u64>,
    /// Whether the value is more than the limit; of an estimate, whether its whole interval is.
    pub is_exceeded: bool,
    /// The owners responsible for an exceeded limit: with a baseline those that grew, largest
    /// growth first; otherwise those with the largest values.
    pub owners: Vec<Responsible>,
}

/// A responsible owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Responsible {
    /// The function.
    pub name: String,
    /// Its value.
    pub value: u64,
    /// Its value in the baseline, if there is one. Owners that the baseline omits had small values.
    pub before: Option<u64>,
    /// Its location in the source.
    pub place: Option<Place>,
}

impl Responsible {
    /// Returns its growth; without a baseline, its value.
    pub fn growth(&self) -> i128 {
        i128::from(self.value) - i128::from(self.before.unwrap_or(0))
    }
}

/// The results of all rules.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What holds the memory, and which process was checked.
    pub answer: Answer,
    /// What was checked: the recording and the process.
    pub subject: String,
    /// In the order of the rules.
    pub all: Vec<Finding>,
    /// Reasons why values may be too small.
    pub notes: Vec<String>,
}

impl Findings {
    /// Returns the number of exceeded limits.
    pub fn exceeded(&self) -> usize {
        self.all.iter().filter(|finding| finding.is_exceeded).count()
    }
}

/// Measures the values for rules, by the names of the rules.
///
/// # Errors
///
/// A quantity was not recorded.
pub fn measure(measured: &Measured, rules: &[Rule]) -> Result<Baseline, String> {
    let mut values = Baseline::default();
    for rule in rules {
        values.insert(rule.name(), measured.value(&rule.part, rule.limit.quantity)?);
    }
    Ok(values)
}

/// Compares values, which [`measure`] returned for these rules, with limits.
///
/// # Errors
///
/// The baseline lacks a value, growth is that of an estimate, or a lower bound keeps its limit.
pub fn check(
    rules: &[Rule],
    values: &Baseline,
    baseline: Option<&Baseline>,
) -> Result<Vec<Finding>, String> {
    let finding = |rule: &Rule| {
        let name = rule.name();
        let before = baseline.and_then(|baseline| baseline.get(&name));
        if matches!(rule.limit.bound, Bound::Growth(_)) && before.is_none() {
            return Err(format!("{name} is not in the baseline; add it with --update"));
        }
        let value = values.get(&name).ok_or_else(|| format!("{name} was not measured"))?;
        if matches!(rule.limit.bound, Bound::Growth(_)) && value.interval.is_some() {
            return Err(format!(
                "{name} of a sampled recording is an estimate, so its growth may be a sampling \
                 error; expected a number, or record with --mode stacks"
            ));
        }
        let finding = Finding::of(name, rule.limit, value, before);
        match &value.at_least {
            Some(why) if !finding.is_exceeded => {
                let (name, total) = (&finding.name, bytes(value.total));
                Err(format!("{name}: at least {total}, {why}, so the limit cannot be checked"))
            }
            _ => Ok(finding),
        }
    };
    rules.iter().map(finding).collect()
}

impl Finding {
    fn of(name: String, limit: Limit, now: &Value, before: Option<&Value>) -> Finding {
        let Value { total: value, interval, whole, .. } = *now;
        let certain = interval.map_or(value, |interval| interval.low);
        let is_exceeded = match limit.bound {
            Bound::Value(most) => certain > most,
            Bound::Share(percent) => certain as f64 * 100.0 > whole.unwrap_or(0) as f64 * percent,
            Bound::Growth(limit) => {
                let before = before.map_or(value, |before| before.total);
                limit.is_exceeded(Change { before, after: value })
            }
        };
        let owners = if is_exceeded { responsible(now, before) } else { Vec::new() };
        let before = before.map(|before| before.total);
        Finding { name, limit, value, interval, whole, before, is_exceeded, owners }
    }

    /// Returns the maximal allowed value, if it is absolute.
    pub fn most(&self) -> Option<u64> {
        let before = self.before.unwrap_or(0);
        match self.limit.bound {
            Bound::Value(most) => Some(most),
            Bound::Share(percent) => {
                self.whole.map(|whole| (whole as f64 * percent / 100.0) as u64)
            }
            Bound::Growth(growth::Limit::Amount(most)) => Some(before.saturating_add(most)),
            Bound::Growth(growth::Limit::Percent(percent)) => {
                Some(before.saturating_add((before as f64 * percent / 100.0) as u64))
            }
        }
    }
}

fn responsible(now: &Value, before: Option<&Value>) -> Vec<Responsible> {
    let owner = |(name, owner): (&String, &OwnerValue)| Responsible {
        name: name.clone(),
        value: owner.value,
        before: before.map(|before| before.owners.get(name).map_or(0, |before| before.value)),
        place: owner.place.clone(),
    };
    let mut owners: Vec<Responsible> = now.owners.iter().map(owner).collect();
    owners.retain(|owner| owner.growth() > 0);
    owners.sort_by(|a, b| (Reverse(a.growth()), &a.name).cmp(&(Reverse(b.growth()), &b.name)));
    owners
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn value(total: u64, whole: Option<u64>, owners: &[(&str, u64)]) -> Value {
        let owner = |(name, value): &(&str, u64)| {
            ((*name).to_owned(), OwnerValue { value: *value, place: None })
        };
        let owners = owners.iter().map(owner).collect::<BTreeMap<_, _>>();
        Value { total, whole, owners, ..Value::default() }
    }

    fn finding(limit: &str, now: &Value, before: Option<&Value>) -> Finding {
        Finding::of("it".to_owned(), limit.parse().expect("a limit"), now, before)
    }

    #[test]
    fn a_value_that_equals_its_limit_keeps_it() {
        let now = value(100, None, &[("f", 60), ("g", 40)]);
        assert!(!finding("allocations=100", &now, None).is_exceeded);
        let exceeded = finding("allocations=99", &now, None);
        assert!(exceeded.is_exceeded);
        let names: Vec<&str> = exceeded.owners.iter().map(|owner| &*owner.name).collect();
        assert_eq!(names, ["f", "g"]);
    }

    #[test]
    fn an_estimate_exceeds_a_limit_below_its_interval() {
        let interval = Some(Interval { low: 90, high: 120 });
        let now = Value { interval, ..value(100, None, &[]) };
        assert!(finding("usable_bytes=89", &now, None).is_exceeded);
        assert!(!finding("usable_bytes=90", &now, None).is_exceeded);
        let rule =
            Rule { part: Part::default(), limit: "usable_bytes=+1%".parse().expect("a limit") };
        let mut values = Baseline::default();
        values.insert(rule.name(), now);
        let refused = check(std::slice::from_ref(&rule), &values, Some(&values));
        assert!(refused.expect_err("no growth").contains("may be a sampling error"));
    }

    #[test]
    fn a_lower_bound_can_only_exceed_a_limit() {
        let at_least = Some("known until 1 s of 3 s".to_owned());
        let now = Value { at_least, ..value(4 << 20, None, &[]) };
        let mut values = Baseline::default();
        values.insert("resident".to_owned(), now);
        let checked = |limit: &str| {
            let rule = Rule { part: Part::default(), limit: limit.parse().expect("a limit") };
            check(&[rule], &values, None)
        };
        assert!(checked("resident=3M").expect("a result")[0].is_exceeded);
        let refused = checked("resident=5M").expect_err("not known");
        assert_eq!(
            refused,
            "resident: at least 4.00 MiB, known until 1 s of 3 s, so the limit cannot be checked"
        );
    }

    #[test]
    fn shares_are_relative_to_the_total() {
        let now = value(20, Some(100), &[]);
        assert!(!finding("temporary=20%", &now, None).is_exceeded);
        assert!(finding("temporary=19.9%", &now, None).is_exceeded);
        assert!(!finding("temporary=0%", &value(0, Some(0), &[]), None).is_exceeded);
    }

    #[test]
    fn owners_that_grew_are_responsible_for_growth() {
        let before = value(100, None, &[("f", 60), ("g", 40)]);
        let now = value(103, None, &[("f", 55), ("g", 41), ("h", 7)]);
        assert!(!finding("allocations=+3", &now, Some(&before)).is_exceeded);
        assert!(!finding("allocations=+3%", &now, Some(&before)).is_exceeded);
        let exceeded = finding("allocations=+2%", &now, Some(&before));
        assert_eq!((exceeded.before, exceeded.most()), (Some(100), Some(102)));
        let growth: Vec<(&str, i128)> =
            exceeded.owners.iter().map(|owner| (&*owner.name, owner.growth())).collect();
        assert_eq!(growth, [("h", 7), ("g", 1)]);
    }
}
