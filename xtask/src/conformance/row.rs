//! The result of one test or example of another tool.

/// The result of a step of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Yes,
    No,
    /// The test has no such step, or the step could not be tried.
    NotApplicable,
}

/// A test or an example of another tool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The name of the test, usually its path in the checkout.
    pub test: String,
    /// It was compiled and linked with the SDK, unchanged.
    pub compiled: Outcome,
    /// It ran to its end and its own checks passed.
    pub ran: Outcome,
    /// Its results equal those that it has with the other tool, or that its source states.
    pub same: Outcome,
    /// The reason for each `No` and `NotApplicable`, or what was compared.
    pub why: String,
}

impl From<bool> for Outcome {
    fn from(is_so: bool) -> Outcome {
        if is_so { Outcome::Yes } else { Outcome::No }
    }
}

impl Row {
    /// Returns the row of a test that cannot be compiled.
    pub fn not_compiled(test: &str, why: impl Into<String>) -> Row {
        Row {
            test: test.to_owned(),
            compiled: Outcome::No,
            ran: Outcome::NotApplicable,
            same: Outcome::NotApplicable,
            why: why.into(),
        }
    }

    /// Returns the row of a test that was compiled but failed.
    pub fn failed(test: &str, why: impl Into<String>) -> Row {
        Row { compiled: Outcome::Yes, ran: Outcome::No, ..Row::not_compiled(test, why) }
    }

    /// Returns the row of a test that ran, with the result of the comparison.
    pub fn compared(test: &str, same: Outcome, why: impl Into<String>) -> Row {
        Row { ran: Outcome::Yes, same, ..Row::failed(test, why) }
    }
}
