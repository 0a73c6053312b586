//! libheaptide.so: an installed one, or the one that this binary carries, put where the loader can
//! read it.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::output;
use heaptide_format::settings::Setting;
use nix::unistd::Uid;

use crate::private_dir::PrivateDir;

/// The library itself.
pub static CARRIED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libheaptide.so"));
/// The variable that names another one.
const VARIABLE: &str = Setting::Library.variable();
/// Its file name.
pub const NAME: &str = "libheaptide.so";

/// `heaptide library`: prints its path.
pub fn print() -> Outcome {
    let path = path()?;
    output::print(|out| {
        out.write_all(path.as_os_str().as_bytes())?;
        out.write_all(b"\n")
    })?;
    Ok(())
}

/// Where the library is: named by `HEAPTIDE_LIBRARY`, installed next to this binary (or in
/// `../lib`), or written out for this user, checked byte for byte.
pub fn path() -> Result<PathBuf, Error> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
        let named = PathBuf::from(named);
        return fs::canonicalize(&named).map_err(|e| {
            format!("{VARIABLE}={}: {e}; unset it to use the built-in library", named.display())
                .into()
        });
    }
    match installed() {
        Some(path) => Ok(path),
        None => write_out(),
    }
}

fn installed() -> Option<PathBuf> {
    let binary = std::env::current_exe().ok()?;
    let directory = binary.parent()?;
    let beside = [directory.join(NAME), directory.join("../lib").join(NAME)];
    // A build directory has the library of some other profile beside the binary: only a carried one
    // is ours.
    let building = directory.join(".cargo-lock").exists();
    beside.into_iter().find(|path| !building && path.is_file())
}

/// Writes the library to the first directory that can be trusted with it.
fn write_out() -> Result<PathBuf, Error> {
    // Named by its content: versions do not get in each other's way, and a program that runs keeps
    // its own.
    let name = format!("libheaptide-{:016x}.so", fingerprint(CARRIED));
    let mut refused = String::new();
    for (directory, made) in directories() {
        let open = PrivateDir::open(&directory, made);
        match open.and_then(|open| open.provide(&name, CARRIED)) {
            Ok(path) => return Ok(path),
            Err(e) => refused += &format!(" {}: {e};", directory.display()),
        }
    }
    Err(format!(
        "cannot store {NAME}:{refused} set XDG_CACHE_HOME to a directory that only you can write \
         to, or {VARIABLE} to an installed library"
    )
    .into())
}

/// The user's cache, else a directory of the user's own among the temporary ones; and how many
/// parts at the end of each may be made.
fn directories() -> Vec<(PathBuf, usize)> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let temporary = std::env::temp_dir().join(format!("heaptide-{}", Uid::effective()));
    let caches = cache.into_iter().chain(home).map(|cache| (cache.join("heaptide"), 2));
    caches.chain([(temporary, 1)]).filter(|(path, _)| path.is_absolute()).collect()
}

/// FNV-1a, 64 bits: a name, not a proof; the proof is the comparison.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}
