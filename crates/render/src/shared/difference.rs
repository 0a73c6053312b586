//! Common parts of differences as text, JSON and flame graph.

use heaptide_analysis::model::{Measure, Mode, Process, Spread};
use heaptide_analysis::views::diff::{By, Change, Difference, Side};

/// What a row represents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rows {
    /// A function.
    Functions,
    /// A source line of a function.
    Lines,
    /// A whole stack.
    Stacks,
    /// A scope path.
    Scopes,
}

impl Rows {
    /// Returns how processes have to be compared for these rows.
    pub const fn by(self) -> By {
        match self {
            Rows::Functions | Rows::Stacks => By::Stacks,
            Rows::Lines => By::Lines,
            Rows::Scopes => By::Scopes,
        }
    }

    /// Returns the name in options.
    pub const fn name(self) -> &'static str {
        match self {
            Rows::Functions => "function",
            Rows::Lines => "line",
            Rows::Stacks => "stack",
            Rows::Scopes => "scope",
        }
    }
}

/// Options of a view of differences.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Name of the first recording.
    pub before: &'a str,
    /// Name of the second recording.
    pub after: &'a str,
    /// What a row represents; the difference is by [`Rows::by`].
    pub rows: Rows,
    /// Maximum number of rows.
    pub top: Option<usize>,
    /// Why this metric is compared, if the user did not choose it.
    pub chosen: Option<&'static str>,
}

impl View<'_> {
    /// Returns why there cannot be rows: how one of the two was recorded.
    ///
    /// A difference without rows still has totals.
    pub fn without_rows(&self, difference: &Difference) -> Option<String> {
        let why = |side| match (process(difference, side).mode, self.rows) {
            (Mode::Counters, Rows::Scopes) => Some("--mode counters, so there are no scopes"),
            (Mode::Counters, _) => Some("--mode counters, so there are no stacks"),
            (Mode::Scopes, Rows::Functions | Rows::Lines | Rows::Stacks) => {
                Some("--mode scopes, so there are no stacks; --by scope compares scopes")
            }
            (Mode::Stacks | Mode::Scopes, _) => {
                let is_sampled = process(difference, side).sampling.is_some();
                let has_limits = Spread::default().of(difference.measure.of_sites()).is_some();
                (is_sampled && !has_limits).then_some(
                    "--mode sampled, so changes of this metric have an unknown error; use a metric \
                     of bytes, whose error is known",
                )
            }
        };
        let said = |side, name| Some(format!("{name}: recorded with {}", why(side)?));
        said(Side::Before, self.before).or_else(|| said(Side::After, self.after))
    }
}

pub(crate) fn process(difference: &Difference, side: Side) -> &Process {
    match side {
        Side::Before => &difference.before,
        Side::After => &difference.after,
    }
}

/// Returns the totals to show: the common metrics, the compared one, and failures if there are any.
pub(crate) fn totals(difference: &Difference) -> impl Iterator<Item = (Measure, Change)> {
    const USUAL: [Measure; 9] = [
        Measure::Allocations,
        Measure::Temporary,
        Measure::Reallocations,
        Measure::Frees,
        Measure::RequestedBytes,
        Measure::UsableBytes,
        Measure::PeakBytes,
        Measure::LiveBlocks,
        Measure::LiveBytes,
    ];
    let totals = Measure::all().iter().map(|&m| (m, difference.total_of(m)));
    totals.filter(|&(measure, change)| {
        let compared = measure == difference.measure;
        let failures = measure == Measure::Failed && change != Change::default();
        USUAL.contains(&measure) || compared || failures
    })
}
