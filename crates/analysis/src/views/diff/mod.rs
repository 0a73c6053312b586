//! Compares two processes by names, so that they can be different builds.

mod change;
mod changes;
mod comparison;
mod name;
mod names;
mod paths;
#[cfg(test)]
mod tests;

pub use change::{Change, Side};
pub use changes::{Changes, FunctionChange, Limits, PathChange};
pub use comparison::{Comparison, Difference, HalfCompared};
pub use name::{By, Name};
pub use paths::{Node, PathId, Paths};
