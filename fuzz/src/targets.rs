//! The targets, one per file.

mod demangler;
mod eh_frame;
mod jit;
mod names;
mod profile_reader;
mod query;
mod rules;
mod suppressions;
mod symbols;
mod trace;

pub use demangler::demangler;
pub use eh_frame::eh_frame;
pub use jit::jit;
pub use names::names;
pub use profile_reader::profile_reader;
pub use query::query;
pub use rules::rules;
pub use suppressions::suppressions;
pub use symbols::symbols;
pub use trace::trace;
