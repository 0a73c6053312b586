//! The modules and addresses that names are wanted for.

use std::path::PathBuf;

use crate::text;

/// A module, whichever process had it and wherever it was mapped.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ModuleKey {
    /// Its path, byte for byte.
    pub path: PathBuf,
    /// Its GNU build-id, empty if it has none.
    pub build_id: Vec<u8>,
}

impl ModuleKey {
    /// Returns the path for people.
    pub(super) fn shown(&self) -> String {
        text::of_path(&self.path)
    }
}

/// The link-time addresses of a module to look up.
#[derive(Debug)]
pub struct Wanted {
    /// The module.
    pub module: ModuleKey,
    /// Earliest start of a process that had it, nanoseconds since 1970-01-01 UTC.
    pub since_ns: u64,
    /// Ascending, distinct.
    pub addresses: Vec<u64>,
}

/// Hexadecimal digits of bytes.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
