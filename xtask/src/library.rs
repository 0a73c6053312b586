//! Checks libheaptide.so: its exports, and that it has no dependencies.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::commands::output;
use crate::interface::{self, INTERFACE};
use crate::problem::Problem;

/// The table of hooks, which determines the exports.
pub const HOOKS: &str = "crates/preload/src/hooks.rs";

/// The functions that Kokkos looks up.
const KOKKOS: &str = "crates/preload/src/kokkos.rs";

/// Symbols that an attaching command looks up (`crates/format/src/attachment.rs`).
const ATTACHING: [&str; 4] =
    ["heaptide_attachment", "heaptide_attach", "heaptide_release", "heaptide_memory_functions"];

/// Returns problems of the library at `path`.
pub fn check(root: &Path, path: &Path) -> Result<Vec<Problem>, String> {
    let source = |file: &str| {
        std::fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))
    };
    let mut expected = hook_names(&source(HOOKS)?);
    expected.extend(interface::exports(&source(INTERFACE)?));
    expected.extend(ATTACHING.map(str::to_owned));
    expected.extend(kokkos_names(&source(KOKKOS)?));
    let dynamic = output(Command::new("readelf").arg("-dW").arg(path))?;
    let versions = output(Command::new("readelf").arg("-VW").arg(path))?;
    let defined = output(Command::new("nm").args(["-D", "--defined-only"]).arg(path))?;
    let undefined = output(Command::new("nm").args(["-D", "--undefined-only"]).arg(path))?;
    let says = [
        exports(&expected, &symbols(&defined)),
        needed(&dynamic),
        needed_versions(&versions),
        imports(&undefined),
    ];
    let shown = path.display().to_string();
    Ok(says.concat().into_iter().map(|says| Problem::new(&shown, 0, says)).collect())
}

/// Returns the symbols in the table of hooks: the second word of each line `KIND SYMBOL = BODY;`.
pub fn hook_names(source: &str) -> BTreeSet<String> {
    let table = source.split("\nhooks! {").nth(1).and_then(|rest| rest.split("\n}").next());
    let lines = table.unwrap_or("").lines().filter(|line| line.contains('='));
    lines.filter_map(|line| line.split_whitespace().nth(1)).map(str::to_string).collect()
}

/// Returns the words of a source that begin like functions of Kokkos' tool interface.
fn kokkos_names(source: &str) -> BTreeSet<String> {
    let words = source.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("kokkosp_")).map(str::to_string).collect()
}

/// Returns the names in the output of `nm`.
fn symbols(listing: &str) -> BTreeSet<String> {
    listing.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_string).collect()
}

/// Checks that exports and tables agree.
fn exports(expected: &BTreeSet<String>, exported: &BTreeSet<String>) -> Vec<String> {
    let missing = expected.difference(exported).map(|name| format!("`{name}` is not exported"));
    let extra = exported.difference(expected);
    let extra =
        extra.map(|name| format!("`{name}` is in none of {HOOKS}, {INTERFACE} and {KOKKOS}"));
    missing.chain(extra).collect()
}

/// Checks that it needs no other library, so that it loads with every libc.
fn needed(dynamic: &str) -> Vec<String> {
    let unwanted = ["(NEEDED)", "(TEXTREL)", "(RPATH)", "(RUNPATH)"];
    let found = dynamic.lines().filter(|line| unwanted.iter().any(|tag| line.contains(tag)));
    found.map(|line| format!("dynamic section: `{}`, expected none", line.trim())).collect()
}

/// Checks that it needs no symbol versions, so that it loads with every version of a libc.
fn needed_versions(versions: &str) -> Vec<String> {
    let found = versions.lines().filter(|line| line.contains("Version needs section"));
    found.map(|line| format!("`{}`, expected none", line.trim())).collect()
}

/// Functions that compilers call implicitly; every libc has them.
const ALWAYS_THERE: &[&str] = &["memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen"];

/// Checks imports: with any other strong import, a program without that symbol would not start.
fn imports(undefined: &str) -> Vec<String> {
    let strong = undefined.lines().filter_map(|line| line.trim().strip_prefix("U "));
    let rare = strong.filter(|name| !ALWAYS_THERE.contains(name));
    rare.map(|name| format!("imports `{name}`, expected it weak or not at all")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn the_table_is_read() {
        let source =
            "hooks!(x);\nhooks! {\n    allocate malloc = a;\n    plain free = f;\n}\na = b;";
        assert_eq!(hook_names(source), set(&["free", "malloc"]));
    }

    #[test]
    fn exports_differ_both_ways() {
        let listing = "00001000 T malloc\n00001010 T surprise\n";
        let said = exports(&set(&["malloc", "free"]), &symbols(listing));
        assert_eq!(said.len(), 2);
        assert!(said[0].contains("`free`") && said[1].contains("`surprise`"), "{said:?}");
    }

    #[test]
    fn a_needed_library_is_found() {
        let line = " 0x0000000000000001 (NEEDED)  Shared library: [libc.so.6]\n";
        assert_eq!(needed(line).len(), 1);
        assert_eq!(needed(" 0x000000000000000e (SONAME) [libheaptide.so]\n").len(), 0);
    }

    #[test]
    fn a_needed_version_is_found() {
        let line = "Version needs section '.gnu.version_r' contains 1 entry:\n";
        assert_eq!(needed_versions(line).len(), 1);
        assert_eq!(needed_versions("No version information found in this file.\n").len(), 0);
    }

    #[test]
    fn a_strong_import_is_found() {
        assert_eq!(imports("                 U abort\n                 w memcpy\n").len(), 1);
    }
}
