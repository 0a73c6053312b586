//! Output formats, one file for each, and shared texts.

pub mod github;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod text;

use heaptide_analysis::model::Interval;
use heaptide_render::shared::names::shorten;
use heaptide_render::shared::quantity::counted;

use crate::limit::Quantity;
use crate::result::{Finding, Responsible};

/// The most owners in a text.
const OWNERS: usize = 5;
/// Characters of the name of an owner, as other views for people have it.
const OWNER_WIDTH: usize = 80;

impl Responsible {
    /// The name for people; JSON has the whole one.
    fn short_name(&self) -> String {
        shorten(&self.name, OWNER_WIDTH)
    }
}

impl Finding {
    fn quantity(&self) -> Quantity {
        self.limit.quantity
    }

    /// Returns `412, limit 400`, with the total for percentages. Different bytes that look equal
    /// are written in full.
    fn measured(&self) -> String {
        let quantity = self.quantity();
        let looks_equal = |most| quantity.amount(most) == quantity.amount(self.value);
        let is_close = self.most().is_some_and(|most| most != self.value && looks_equal(most));
        let amount = |n| if is_close { counted(n, "byte") } else { quantity.amount(n) };
        let value = amount(self.value);
        let share = match self.whole {
            Some(whole) if whole > 0 => {
                format!(" ({:.1}%)", self.value as f64 * 100.0 / whole as f64)
            }
            _ => String::new(),
        };
        let interval = self.interval_shown();
        let most = match self.most() {
            Some(most) if quantity.amount(most) != self.limit.to_string() => {
                format!("{} = {}", self.limit, amount(most))
            }
            Some(most) => amount(most),
            None => self.limit.to_string(),
        };
        format!("{value}{share}{interval}, limit {most}")
    }

    /// ` (estimate, 95% interval 1.00 MiB to 2.00 MiB)`; empty of an exact value.
    fn interval_shown(&self) -> String {
        let amount = |value| self.quantity().amount(value);
        match self.interval {
            Some(Interval { low, high }) => {
                format!(" (estimate, 95% interval {} to {})", amount(low), amount(high))
            }
            None => String::new(),
        }
    }

    /// Returns one line about an exceeded limit, with the responsible owners.
    fn sentence(&self) -> String {
        let owners: Vec<String> = self.owners.iter().take(3).map(|o| self.shown(o)).collect();
        let by = if owners.is_empty() { String::new() } else { format!(": {}", owners.join("; ")) };
        format!("{} is {}{by}", self.name, self.measured())
    }

    /// Returns `parse_row +12 KiB to 40 KiB`, or the owner's value.
    fn shown(&self, owner: &Responsible) -> String {
        let value = self.quantity().amount(owner.value);
        match owner.before {
            Some(_) => format!("{} {} to {value}", owner.short_name(), self.change(owner.growth())),
            None => format!("{} {value}", owner.short_name()),
        }
    }

    /// Formats a change with its sign.
    fn change(&self, change: i128) -> String {
        let amount = u64::try_from(change.unsigned_abs()).unwrap_or(u64::MAX);
        let sign = if change < 0 { '-' } else { '+' };
        format!("{sign}{}", self.quantity().amount(amount))
    }

    /// Formats the change from the baseline: `+1.00 KiB (+5.0%)`.
    fn change_from_baseline(&self) -> Option<String> {
        let before = self.before?;
        let change = i128::from(self.value) - i128::from(before);
        if change == 0 {
            return Some("unchanged".to_owned());
        }
        let shown = self.change(change);
        if before == 0 {
            return Some(shown);
        }
        let percent = change as f64 * 100.0 / before as f64;
        Some(format!("{shown} ({percent:+.1}%)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(limit: &str, value: u64, before: Option<u64>) -> String {
        let limit = limit.parse().expect("a limit");
        let (name, owners) = (String::new(), Vec::new());
        let (interval, whole, is_exceeded) = (None, None, true);
        Finding { name, limit, value, interval, whole, before, is_exceeded, owners }.measured()
    }

    #[test]
    fn a_value_close_to_its_limit_is_written_in_full() {
        assert_eq!(measured("peak=61087", 61_088, None), "61,088 bytes, limit 61,087 bytes");
        assert_eq!(measured("peak=61088", 61_088, None), "59.7 KiB, limit 59.7 KiB");
        assert_eq!(measured("peak=50K", 61_088, None), "59.7 KiB, limit 50.0 KiB");
        let grown = measured("peak=+100", 61_089, Some(60_988));
        assert_eq!(grown, "61,089 bytes, limit baseline + 100 B = 61,088 bytes");
        assert_eq!(measured("allocations=10", 11, None), "11, limit 10");
    }

    #[test]
    fn names_of_owners_are_as_in_other_views() {
        let name = "Index::make(std::vector<std::__cxx11::basic_string<char, std::char_traits<char>, \
                    std::allocator<char> >, std::allocator<int> > const&)";
        let owner = Responsible { name: name.to_owned(), value: 1, before: None, place: None };
        assert_eq!(owner.short_name(), "Index::make(std::vector<std::string> const&)");
    }
}
