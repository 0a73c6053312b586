//! What tests need and a machine may lack: a test is skipped only where `HEAPTIDE_ALLOW_SKIP`, a
//! list with commas, names what is missing. `cargo xtask test` reports the skipped tests.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Root's rights over users and files.
pub const ROOT: &str = "root";
/// Rights over mounts and processes ids of its own, as root or in a user namespace.
pub const NAMESPACES: &str = "namespaces";

/// Ends the calling test as skipped: it lacks `need`, a name that `cargo xtask setup --check` lists
/// or one of the constants here.
///
/// # Panics
///
/// Nobody has allowed that.
pub fn skip(need: &str) {
    let allowed = std::env::var("HEAPTIDE_ALLOW_SKIP").unwrap_or_default();
    assert!(
        allowed.split(',').any(|name| name == "all" || name == need),
        "this test needs {need}, not found here; `cargo xtask setup` installs what it can, \
         HEAPTIDE_ALLOW_SKIP={need} skips it"
    );
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    eprintln!("skipped: {test} needs {need}");
    if let Some(path) = std::env::var_os("HEAPTIDE_SKIPPED") {
        let file = OpenOptions::new().append(true).create(true).open(path);
        writeln!(file.expect("the list of skipped tests"), "{test} needs {need}").expect("room");
    }
}

/// A directory that `cargo xtask setup` filled with programs that read exports.
pub fn reader(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("../readers").join(name)
}

/// Whether the tests run with root's rights, or in a namespace with such rights.
pub fn is_root() -> bool {
    let own = std::fs::metadata("/proc/self").expect("/proc");
    std::os::unix::fs::MetadataExt::uid(&own) == 0
}

/// Whether the calling test, of this name, may mount and make pid namespaces. If it may not, it is
/// run again in a user namespace where it may, and has passed there when this returns false.
pub fn may_make_namespaces(test: &str) -> bool {
    if is_root() {
        return true;
    }
    let unshare = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]).args(words);
        command
    };
    if !unshare(&["true"]).output().is_ok_and(|output| output.status.success()) {
        skip(NAMESPACES);
        return false;
    }
    let own = std::env::current_exe().expect("the test's own program");
    let own = own.to_str().expect("a path in UTF-8");
    let again = unshare(&[own, "--exact", test, "--nocapture"]).output().expect("unshare");
    let shown = String::from_utf8_lossy(&again.stdout);
    let errors = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.success() && shown.contains("1 passed"), "{shown}{errors}");
    false
}
