//! Locates `libheaptide.so`: an installed file, or the copy inside this binary, which is written to
//! a file for the loader.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use heaptide_command::error::Error;
use heaptide_command::outcome::Outcome;
use heaptide_command::output;
use heaptide_format::settings::Setting;
use nix::unistd::Uid;

use crate::private_dir::PrivateDir;

/// The content of the library.
pub static CARRIED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libheaptide.so"));
/// The variable that names another library.
const VARIABLE: &str = Setting::Library.variable();
/// The file name of the library.
pub const NAME: &str = "libheaptide.so";

/// `heaptide library`: prints the path of the library.
pub fn print() -> Outcome {
    let path = path()?;
    output::print(|out| {
        out.write_all(path.as_os_str().as_bytes())?;
        out.write_all(b"\n")
    })?;
    Ok(())
}

/// Returns the path of the library: that of `HEAPTIDE_LIBRARY`, the one installed next to this
/// binary (or in `../lib`), or a copy written for this user and compared byte for byte.
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
    // In a build directory, the library next to the binary can be of another profile, so the
    // built-in copy is used.
    let building = directory.join(".cargo-lock").exists();
    beside.into_iter().find(|path| !building && path.is_file())
}

/// Writes the library to the first directory that no other user can change.
fn write_out() -> Result<PathBuf, Error> {
    // The name depends on the content: versions do not overwrite each other, nor a library that is
    // loaded.
    let command = format!("heaptide-{:016x}", fingerprint(CARRIED));
    let name = format!("lib{command}.so");
    let mut refused = String::new();
    for (directory, made) in directories() {
        let open = PrivateDir::open(&directory, made);
        match open.and_then(|open| Ok((open.provide(&name, CARRIED)?, open))) {
            Ok((path, open)) => {
                link_to_command(&open, &command);
                return Ok(path);
            }
            Err(e) => refused += &format!(" {}: {e};", directory.display()),
        }
    }
    Err(format!(
        "cannot store {NAME}:{refused} set XDG_CACHE_HOME to a directory that only you can write \
         to, or {VARIABLE} to an installed library"
    )
    .into())
}

/// Links this command next to the library, which finds it there although the program has no `PATH`.
/// Without the link, it looks in `PATH`.
fn link_to_command(directory: &PrivateDir, name: &str) {
    if let Ok(own) = std::env::current_exe()
        && own.is_file()
    {
        let _ = directory.link(name, &own);
    }
}

/// Returns the candidates: the user's cache directories, then one for this user in the temporary
/// directory. Each with the number of its last components that may be created.
fn directories() -> Vec<(PathBuf, usize)> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    // `TMPDIR` may name a directory that does not exist.
    let temporary = Some(std::env::temp_dir()).filter(|place| place.exists());
    let temporary = temporary.unwrap_or_else(|| PathBuf::from("/tmp"));
    let temporary = temporary.join(format!("heaptide-{}", Uid::effective()));
    let caches = cache.into_iter().chain(home).map(|cache| (cache.join("heaptide"), 2));
    caches.chain([(temporary, 1)]).filter(|(path, _)| path.is_absolute()).collect()
}

/// Returns the 64-bit FNV-1a hash. It only serves as a name; contents are compared.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}
