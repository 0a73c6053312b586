//! The names of an address, and the interface for looking them up.

use std::path::Path;
use std::sync::Arc;

/// Number of addresses to look up between two progress reports.
pub(super) const BATCH: usize = 1024;

/// One function at an address: the outermost one is in the symbol table, the others are inlined.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Name<'a> {
    /// Demangled full name.
    pub function: Option<&'a str>,
    /// Source file.
    pub file: Option<&'a str>,
    /// Line of the call.
    pub line: Option<u32>,
}

/// A stored name: equal texts of a module are shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known<'a> {
    /// Demangled full name.
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

/// Looks up names for addresses of one file.
pub trait Engine: Sync {
    /// Calls `each` exactly once for each of `addresses`, in order, with the functions there,
    /// outermost first; with no functions if they are unknown.
    ///
    /// Errors: the file cannot be read, or files that it refers to are missing; `each` may have
    /// been called.
    fn look_up(
        &self,
        file: &Path,
        addresses: &[u64],
        each: &mut dyn FnMut(u64, &[Name<'_>]),
    ) -> Result<(), String>;
}
