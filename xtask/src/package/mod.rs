//! Packages: `cargo xtask package KIND…` builds them, `--check` tests them in clean roots.

mod check;
mod container;
mod deb;
mod licences;
mod programs;
mod roots;
mod rpm;
mod tarball;
mod tree;
mod unwind_tables;
mod wheel;

use std::path::Path;

use check::Kind;
use tree::Tree;

/// All kinds: name, function that builds it, function that installs it into a root.
const KINDS: [Kind; 5] = [
    Kind { name: "tarball", build: tarball::build, install: check::unpack },
    Kind { name: "deb", build: deb::build, install: check::install_deb },
    Kind { name: "rpm", build: rpm::build, install: check::install_rpm },
    Kind { name: "wheel", build: wheel::build, install: check::install_wheel },
    Kind { name: "container", build: container::build, install: check::copy_image },
];
const USAGE: &str =
    "package: expected `[--check] KIND…` with tarball, deb, rpm, wheel, container, all";

/// Builds packages of the named kinds, and with `--check` tests each in clean roots.
///
/// # Errors
///
/// A build fails, or a package does not work in a root.
pub fn package(root: &Path, arguments: &[String]) -> Result<(), String> {
    let with_check = arguments.first().is_some_and(|word| word == "--check");
    let names = &arguments[usize::from(with_check)..];
    let is_known = |name: &String| name == "all" || KINDS.iter().any(|kind| kind.name == name);
    if names.is_empty() || !names.iter().all(is_known) {
        return Err(USAGE.to_owned());
    }
    let is_named = |kind: &&Kind| names.iter().any(|name| name == "all" || name == kind.name);
    let tree = Tree::new(root, &programs::build(root)?)?;
    let mut built = Vec::new();
    for kind in KINDS.iter().filter(is_named) {
        built.push((kind, (kind.build)(root, &tree)?));
    }
    if with_check {
        check::all(root, &built)?;
    }
    built.iter().for_each(|(kind, path)| println!("{}: {}", kind.name, path.display()));
    Ok(())
}
