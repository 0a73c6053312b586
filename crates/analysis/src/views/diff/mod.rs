//! Two processes compared by names, so that they may be of different builds.

mod change;
mod comparison;
mod name;
mod names;
mod paths;
mod stable_names;
#[cfg(test)]
mod tests;

pub use change::{Change, Side};
pub use comparison::{By, Comparison, Difference, FunctionChange, HalfCompared, PathChange};
pub use name::Name;
pub use paths::{Node, PathId, Paths};
pub use stable_names::name_in_every_build;
