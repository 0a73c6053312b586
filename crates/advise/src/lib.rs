//! Findings in words: changes of the program that would save memory or allocations according to a
//! recording, with evidence and certainty.
//!
//! ```text
//! Process ─material─▶ Material ─rules─▶ Finding ─suppression─▶ Advice
//! ```
//!
//! A rule is one file of `rules`: it reads the material and returns findings, or the data that a
//! recording lacks. Findings must be correct when a reader looks at the code, so each rule has
//! thresholds, which are constants with a reason, and reports nothing below them.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // a failed write would panic

mod advice;
mod finding;
mod material;
mod rule;
mod rules;
mod steady_growth;
mod suppression;
mod timeline;

pub use advice::{Advice, Unjudged};
pub use finding::{Certainty, Finding, Place, Saves};
pub use material::History;
pub use rule::Rule;
pub use rules::RULES;
pub use steady_growth::SteadyGrowth;
pub use suppression::{Suppression, Suppressions};
