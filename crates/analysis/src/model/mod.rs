//! The tables that every view is made of, and sums over them. Plain data with typed ids: a view
//! reads the tables and never the profile file.

mod measure;
mod process;

pub use measure::{Combine, Measure, UnknownMeasure};
pub use process::*;
