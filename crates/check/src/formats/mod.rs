//! What was found, for people and machines: a file for each format.

pub mod github;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod text;

use heaptide_render::shared::names::shorten;

use crate::limit::Quantity;
use crate::result::{Finding, Responsible};

/// Owners that a text names.
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

    /// `412 of at most 400`, with what percentages are.
    fn measured(&self) -> String {
        let quantity = self.quantity();
        let value = quantity.amount(self.value);
        let share = match self.whole {
            Some(whole) if whole > 0 => {
                format!(" ({:.1}%)", self.value as f64 * 100.0 / whole as f64)
            }
            _ => String::new(),
        };
        let most = match self.most() {
            Some(most) if quantity.amount(most) != self.limit.to_string() => {
                format!("{} = {}", self.limit, quantity.amount(most))
            }
            _ => self.limit.to_string(),
        };
        format!("{value}{share}, limit {most}")
    }

    /// One line about a limit that is exceeded, with the owners responsible.
    fn sentence(&self) -> String {
        let owners: Vec<String> = self.owners.iter().take(3).map(|o| self.shown(o)).collect();
        let by = if owners.is_empty() { String::new() } else { format!(": {}", owners.join("; ")) };
        format!("{} is {}{by}", self.name, self.measured())
    }

    /// `parse_row +12 KiB to 40 KiB`, or what it has.
    fn shown(&self, owner: &Responsible) -> String {
        let value = self.quantity().amount(owner.value);
        match owner.before {
            Some(_) => format!("{} {} to {value}", owner.short_name(), self.change(owner.growth())),
            None => format!("{} {value}", owner.short_name()),
        }
    }

    /// A change with its sign.
    fn change(&self, change: i128) -> String {
        let amount = u64::try_from(change.unsigned_abs()).unwrap_or(u64::MAX);
        let sign = if change < 0 { '-' } else { '+' };
        format!("{sign}{}", self.quantity().amount(amount))
    }

    /// By how much the value changed from the baseline: `+1.00 KiB (+5.0%)`.
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
