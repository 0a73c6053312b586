//! What a rule found.

use heaptide_analysis::model::{FrameId, Measures, Process, StackId};

/// How certain a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Certainty {
    /// The numbers show it, but what the change saves depends on what they do not show.
    Possible,
    /// The numbers show it, and only unusual code would make the advice wrong.
    Likely,
    /// The numbers can have no other reason.
    Certain,
}

impl Certainty {
    /// Its name in texts and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Certainty::Possible => "possible",
            Certainty::Likely => "likely",
            Certainty::Certain => "certain",
        }
    }
}

/// What a change would save, at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Saves {
    /// Bytes of peak usage.
    pub peak_bytes: u64,
    /// Allocations, each with its free.
    pub allocations: u64,
    /// Bytes that are live at the end.
    pub live_bytes: u64,
    /// Resident bytes, which peak usage does not have.
    pub resident_bytes: u64,
}

impl Saves {
    /// The largest part of what a process has that is saved.
    pub fn part(&self, process: &Process) -> f64 {
        let totals = &process.totals;
        let of = |saved: u64, all: u64| saved as f64 / all.max(1) as f64;
        let bytes = self.peak_bytes.max(self.live_bytes).max(self.resident_bytes);
        let peak = totals.peak_bytes.max(totals.live_bytes);
        of(bytes, peak).max(of(self.allocations, totals.allocations))
    }
}

/// Where in the program a finding is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The frame of the owner, on the heaviest stack.
    pub frame: FrameId,
    /// The heaviest stack, whole.
    pub stack: StackId,
    /// The same from the owner outwards.
    pub owner: StackId,
    /// How many stacks the finding is of.
    pub stacks: usize,
    /// Sums over all of them.
    pub measures: Measures,
}

/// A fault, its evidence, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The name of the rule.
    pub rule: &'static str,
    /// Where it is; none if it is of the process.
    pub place: Option<Place>,
    /// What is wrong, in words that follow the name of the owner, or `the process`.
    pub what: String,
    /// Numbers that show it, a sentence each.
    pub evidence: Vec<String>,
    /// What to do, as an imperative sentence.
    pub advice: String,
    /// What that saves.
    pub saves: Saves,
    /// How certain it is.
    pub certainty: Certainty,
}
