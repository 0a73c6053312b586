//! The finding of a rule.

use heaptide_analysis::model::{FrameId, Measures, Process, StackId};

/// The certainty of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Certainty {
    /// The numbers show it, but the savings depend on data that is not recorded.
    Possible,
    /// The numbers show it, and only unusual code would make the advice wrong.
    Likely,
    /// The numbers have no other explanation.
    Certain,
}

impl Certainty {
    /// Returns its name in texts and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Certainty::Possible => "possible",
            Certainty::Likely => "likely",
            Certainty::Certain => "certain",
        }
    }
}

/// Upper bounds of what a change would save.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Saves {
    /// Bytes of peak usage.
    pub peak_bytes: u64,
    /// Allocations, each with its free.
    pub allocations: u64,
    /// Bytes that are live at the end.
    pub live_bytes: u64,
    /// Resident bytes, which are not part of peak usage.
    pub resident_bytes: u64,
}

impl Saves {
    /// Returns the largest saving relative to the process's total.
    pub fn part(&self, process: &Process) -> f64 {
        let totals = &process.totals;
        let of = |saved: u64, all: u64| saved as f64 / all.max(1) as f64;
        let bytes = self.peak_bytes.max(self.live_bytes).max(self.resident_bytes);
        let peak = totals.peak_bytes.max(totals.live_bytes);
        of(bytes, peak).max(of(self.allocations, totals.allocations))
    }
}

/// The location of a finding in the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The frame of the owner, in the heaviest stack.
    pub frame: FrameId,
    /// The heaviest stack, complete.
    pub stack: StackId,
    /// The heaviest stack from the owner outwards.
    pub owner: StackId,
    /// The number of stacks of the finding.
    pub stacks: usize,
    /// Sums over all of these stacks.
    pub measures: Measures,
}

/// A fault, its evidence, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The name of the rule.
    pub rule: &'static str,
    /// Its location; `None` if it concerns the whole process.
    pub place: Option<Place>,
    /// The problem, as words that follow the name of the owner, or `the process`.
    pub what: String,
    /// The numbers that show it, one sentence each.
    pub evidence: Vec<String>,
    /// The remedy, as an imperative sentence.
    pub advice: String,
    /// The savings of the remedy.
    pub saves: Saves,
    /// How certain it is.
    pub certainty: Certainty,
}
