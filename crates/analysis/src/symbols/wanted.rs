//! The modules and addresses whose names are looked up.

use std::path::PathBuf;

use crate::text;

/// A module, independent of process and mapped address.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ModuleKey {
    /// Its path as bytes.
    pub path: PathBuf,
    /// Its GNU build-id; empty if it has none.
    pub build_id: Vec<u8>,
}

impl ModuleKey {
    /// Returns the path for display.
    pub(super) fn shown(&self) -> String {
        text::of_path(&self.path)
    }
}

/// The link-time addresses of a module to look up.
#[derive(Debug)]
pub struct Wanted {
    /// The module.
    pub module: ModuleKey,
    /// Earliest start of a process that loaded it, nanoseconds since 1970-01-01 UTC.
    pub since_ns: u64,
    /// Ascending and distinct.
    pub addresses: Vec<u64>,
}

/// Returns the hexadecimal digits of bytes.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
