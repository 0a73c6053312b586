//! Files that a module refers to, which the engine opens and maps by itself: its DWARF package, its
//! debug link, and the supplementary file of its debug information. Opening a named pipe would wait
//! for another process, so these must be regular files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::elf::ElfFile;
use crate::text;

/// Directories in which the engine searches for debug files.
const DEBUG_ROOTS: [&str; 2] = ["/usr/lib/debug", "/lib/debug"];
/// Maximum size of a section with a reference in bytes.
const REFERENCE_LIMIT: u64 = 1 << 16;
/// Position of the path in `.debug_sup`, after a version and a flag.
const SUP_PATH_AT: usize = 3;

/// Returns the path of the DWARF package of a file.
pub(super) fn package(file: &Path) -> Option<PathBuf> {
    let mut name = file.file_name()?.to_owned();
    name.push(".dwp");
    Some(file.with_file_name(name))
}

/// Returns a file that the engine would open, although it is not a regular file.
pub(super) fn blocking(elf: &ElfFile, file: &Path) -> Option<PathBuf> {
    let links = [(".gnu_debuglink", 0), (".gnu_debugaltlink", 0), (".debug_sup", SUP_PATH_AT)];
    let names = links.iter().filter_map(|&(section, at)| {
        let bytes = elf.section(section, REFERENCE_LIMIT)?;
        let name = bytes.get(at..)?.split(|&byte| byte == 0).next()?;
        Some(PathBuf::from(OsStr::from_bytes(name)))
    });
    let file = &fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let places = names.flat_map(|name| places(file, &name));
    let is_other = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| !found.is_file());
    package(file).into_iter().chain(places).find(is_other)
}

/// Returns the paths at which the engine searches for the file with this name or path.
fn places(file: &Path, name: &Path) -> Vec<PathBuf> {
    let directory = file.parent().unwrap_or(Path::new("/"));
    let mut places = vec![directory.join(name)];
    for root in DEBUG_ROOTS.map(Path::new) {
        places.push(root.join(name));
        let below = directory.strip_prefix("/").unwrap_or(directory);
        places.extend(below.ancestors().map(|directory| root.join(directory).join(name)));
    }
    places
}

/// Returns the message about a reference that is not followed.
pub(super) fn refusal(path: &Path) -> String {
    format!(
        "it refers to {}, which is not a regular file; functions have the names of its symbol \
         table",
        text::of_path(path)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_engine() {
        let found = places(Path::new("/opt/x/app"), Path::new("../a.dbg"));
        let expected = [
            "/opt/x/../a.dbg",
            "/usr/lib/debug/../a.dbg",
            "/usr/lib/debug/opt/x/../a.dbg",
            "/usr/lib/debug/opt/../a.dbg",
            "/usr/lib/debug/../a.dbg",
            "/lib/debug/../a.dbg",
            "/lib/debug/opt/x/../a.dbg",
            "/lib/debug/opt/../a.dbg",
            "/lib/debug/../a.dbg",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
        let absolute = places(Path::new("/opt/app"), Path::new("/x/pipe"));
        assert!(absolute.iter().all(|place| place == Path::new("/x/pipe")));
        assert_eq!(package(Path::new("/opt/app")), Some("/opt/app.dwp".into()));
    }
}
