//! Changes of a metric as text.

use heaptide_analysis::model::Measure;
use heaptide_analysis::views::diff::Change;

use crate::shared::quantity::{amount, short_count};

/// Returns a change with its sign, in the unit of its metric: `+1.50 KiB`; an empty text if there
/// is no change.
///
/// ```
/// use heaptide_analysis::views::diff::Change;
/// use heaptide_analysis::model::Measure;
/// use heaptide_render::shared::change::signed;
/// assert_eq!(signed(Measure::LiveBytes, Change { before: 0, after: 1536 }), "+1.50 KiB");
/// assert_eq!(signed(Measure::Frees, Change { before: 7, after: 5 }), "-2");
/// ```
pub fn signed(measure: Measure, change: Change) -> String {
    let value = change.before.abs_diff(change.after);
    match change.amount() {
        0 => String::new(),
        1.. => format!("+{}", amount(measure, value)),
        _ => format!("-{}", amount(measure, value)),
    }
}

/// Returns a change relative to the value before: `+12.3%`; an empty text if there is no change or
/// the value before was 0.
///
/// ```
/// use heaptide_analysis::views::diff::Change;
/// use heaptide_render::shared::change::growth;
/// assert_eq!(growth(Change { before: 8, after: 9 }), "+12.5%");
/// assert_eq!(growth(Change { before: 10_000, after: 9_999 }), "-<0.1%");
/// ```
pub fn growth(change: Change) -> String {
    let amount = change.amount();
    if amount == 0 || change.before == 0 {
        return String::new();
    }
    let sign = if amount > 0 { '+' } else { '-' };
    let share = amount.unsigned_abs() as f64 * 100.0 / change.before as f64;
    match share {
        _ if share < 0.05 => format!("{sign}<0.1%"),
        _ if share < 999.95 => format!("{sign}{share:.1}%"),
        _ => format!("{sign}{}%", short_count(share.round() as u64)),
    }
}
