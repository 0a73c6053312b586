//! Output formats, one file for each, and shared texts.

pub mod github;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod text;

use heaptide_analysis::model::Interval;
use heaptide_render::shared::names::shorten;

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

    /// Returns `412 of at most 400`, with the total for percentages.
    fn measured(&self) -> String {
        let quantity = self.quantity();
        let value = quantity.amount(self.value);
        let share = match self.whole {
            Some(whole) if whole > 0 => {
                format!(" ({:.1}%)", self.value as f64 * 100.0 / whole as f64)
            }
            _ => String::new(),
        };
        let interval = self.interval_shown();
        let most = match self.most() {
            Some(most) if quantity.amount(most) != self.limit.to_string() => {
                format!("{} = {}", self.limit, quantity.amount(most))
            }
            _ => self.limit.to_string(),
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

    #[test]
    fn names_of_owners_are_as_in_other_views() {
        let name = "Index::make(std::vector<std::__cxx11::basic_string<char, std::char_traits<char>, \
                    std::allocator<char> >, std::allocator<int> > const&)";
        let owner = Responsible { name: name.to_owned(), value: 1, before: None, place: None };
        assert_eq!(owner.short_name(), "Index::make(std::vector<std::string> const&)");
    }
}
