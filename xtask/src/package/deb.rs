//! Builds the package for Debian, Ubuntu and others with dpkg.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::tree::{DOCUMENTS, EPOCH, Tree, VERSION, files, finished, settle, write};
use crate::commands::{output, run};

/// Directories that differ on Debian: zsh's completions.
const RENAMED: [(&str, &str); 1] = [("share/zsh/site-functions", "share/zsh/vendor-completions")];
/// The file in which lintian expects intentional deviations, with reasons.
const OVERRIDES: &str = "usr/share/lintian/overrides/heaptide";
const EXPLAINED: &str = "\
# The programs run with any version of any libc.
heaptide: statically-linked-binary [usr/bin/heaptide]
heaptide: statically-linked-binary [usr/bin/heaptide-sql]
# The recorder is loaded into programs of any libc, and has its own allocator.
heaptide: library-not-linked-against-libc [usr/lib/libheaptide.so]
heaptide: shared-library-lacks-prerequisites [usr/lib/libheaptide.so]
";
const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: heaptide
Comment: The licences of the crates that the programs contain are in third-party.txt.gz here.

Files: *
Copyright: 2026 The Heaptide authors
License: Expat or Apache-2.0

License: Expat
";
const APACHE: &str = "
License: Apache-2.0
 The text is in /usr/share/common-licenses/Apache-2.0.
";

/// Builds the package. It has no dependencies, because the programs are static, and the recorder
/// needs no library.
///
/// # Errors
///
/// A file cannot be written, or dpkg-deb fails.
pub fn build(root: &Path, tree: &Tree) -> Result<PathBuf, String> {
    let place = tree.below_usr(root, "deb", &RENAMED)?;
    document(root, tree, &place)?;
    let listed = files(&place)?;
    let bytes =
        listed.iter().map(|path| std::fs::metadata(place.join(path)).map_or(0, |d| d.len()));
    let kib: u64 = bytes.map(|bytes| bytes.div_ceil(1024)).sum();
    let mut sums = Command::new("md5sum");
    let sums = output(sums.arg("--").args(&listed).current_dir(&place))?;
    write(&place.join("DEBIAN/md5sums"), sums.as_bytes())?;
    write(&place.join("DEBIAN/control"), control(kib).as_bytes())?;
    settle(&place, tree.epoch)?;
    let file = finished(root, &format!("heaptide_{VERSION}-1_amd64.deb"))?;
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.args(["--root-owner-group", "-Zxz", "--build"]).arg(&place).arg(&file);
    run(dpkg.env(EPOCH, tree.epoch.to_string()))?;
    Ok(file)
}

/// Writes documents in the form that Debian's policy requires.
fn document(root: &Path, tree: &Tree, place: &Path) -> Result<(), String> {
    let documents = place.join("usr").join(DOCUMENTS);
    let licence = std::fs::read_to_string(root.join("LICENSE-MIT")).map_err(|e| e.to_string())?;
    let lines = licence.lines().map(|line| if line.is_empty() { "." } else { line });
    let licence: String = lines.map(|line| format!(" {line}\n")).collect();
    let copyright = format!("{COPYRIGHT}{licence}{APACHE}");
    write(&documents.join("copyright"), copyright.as_bytes())?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        std::fs::remove_file(documents.join(licence)).map_err(|e| format!("{licence}: {e}"))?;
    }
    let mut date = Command::new("date");
    date.args(["--utc", "--rfc-email", "--date"]).arg(format!("@{}", tree.epoch));
    let entry = format!(
        "heaptide ({VERSION}-1) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- {MAINTAINER}  \
         {}",
        output(date.env("LC_ALL", "C"))?
    );
    write(&documents.join("changelog.Debian"), entry.as_bytes())?;
    let renamed = std::fs::rename(documents.join("CHANGELOG.md"), documents.join("changelog"));
    renamed.map_err(|e| format!("CHANGELOG.md: {e}"))?;
    let mut gzip = Command::new("gzip");
    gzip.arg("-9n").args(["changelog", "changelog.Debian", "third-party.txt"]);
    output(gzip.current_dir(&documents))?;
    write(&place.join(OVERRIDES), EXPLAINED.as_bytes())
}

const MAINTAINER: &str = "The Heaptide authors <heaptide@packages.invalid>";

fn control(kib: u64) -> String {
    format!(
        "Package: heaptide\n\
         Version: {VERSION}-1\n\
         Architecture: amd64\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {kib}\n\
         Section: devel\n\
         Priority: optional\n\
         Description: heap profiler for native programs\n \
         Heaptide records every allocation of a program with its exact call stack, and\n \
         reports which code holds memory at peak usage, what leaks, and what is freed\n \
         at once. The program is not rebuilt.\n"
    )
}
