//! The names of an address, and what gives names to addresses.

use std::path::Path;
use std::sync::Arc;

/// Addresses are looked up, and progress is told, so many at a time.
pub(super) const BATCH: usize = 1024;

/// One function at an address: the outermost is the one in the symbol table, the others are
/// inlined.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Name<'a> {
    /// Demangled, whole.
    pub function: Option<&'a str>,
    /// Source file.
    pub file: Option<&'a str>,
    /// Line of the call.
    pub line: Option<u32>,
}

/// The same as it is kept: equal texts of a module are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known<'a> {
    /// Demangled, whole.
    pub function: Option<&'a Arc<str>>,
    /// Source file.
    pub file: Option<&'a Arc<str>>,
    /// Line of the call.
    pub line: Option<u32>,
}

impl<'a> From<Known<'a>> for Name<'a> {
    fn from(known: Known<'a>) -> Name<'a> {
        let Known { function, file, line } = known;
        Name { function: function.map(AsRef::as_ref), file: file.map(AsRef::as_ref), line }
    }
}

/// Gives names to addresses of one file.
pub trait Engine: Sync {
    /// Calls `each` once for each of `addresses`, in order, with the functions there, outermost
    /// first; none if nothing is known.
    ///
    /// Errors: the file cannot be read; `each` was called for the addresses before.
    fn look_up(
        &self,
        file: &Path,
        addresses: &[u64],
        each: &mut dyn FnMut(u64, &[Name<'_>]),
    ) -> Result<(), String>;
}
