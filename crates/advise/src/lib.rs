//! Findings in words: what a recording shows that a change of the program would save, with
//! evidence, and how certain that is.
//!
//! ```text
//! Process ─material─▶ Material ─rules─▶ Finding ─suppression─▶ Advice
//! ```
//!
//! A rule is one file of `rules`: it reads the material and returns findings, or what a recording
//! has to have that it can judge. A finding must be right when a reader opens the code, so each
//! rule has limits, which are constants with their reason, and is silent below them.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // a failed write would end the command

mod advice;
mod finding;
mod material;
mod rule;
mod rules;
mod suppression;

pub use advice::{Advice, Unjudged};
pub use finding::{Certainty, Finding, Place, Saves};
pub use material::History;
pub use rule::Rule;
pub use rules::RULES;
pub use suppression::{Suppression, Suppressions};
