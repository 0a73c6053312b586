//! libheaptide.so: an installed one, or the one that this binary carries, put where the loader can
//! read it.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::{Error, source};

/// The library itself.
pub static CARRIED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libheaptide.so"));
/// Its file name.
pub const NAME: &str = "libheaptide.so";

/// `heaptide library`: prints its path.
pub fn print() -> Result<ExitCode, Error> {
    let path = path()?;
    source::print(|out| {
        out.write_all(path.as_os_str().as_bytes())?;
        out.write_all(b"\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Where the library is: named by `HEAPTIDE_LIBRARY`, installed next to this binary (or in
/// `../lib`), or written out for this user, checked byte for byte.
pub fn path() -> Result<PathBuf, Error> {
    if let Some(named) = std::env::var_os("HEAPTIDE_LIBRARY").filter(|name| !name.is_empty()) {
        let named = PathBuf::from(named);
        return fs::canonicalize(&named).map_err(|e| {
            format!("HEAPTIDE_LIBRARY={}: {e}; unset it to use the built-in one", named.display())
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

fn write_out() -> Result<PathBuf, Error> {
    let mut refused = String::new();
    for directory in directories() {
        match write_into(&directory) {
            Ok(path) => return Ok(path),
            Err(e) => refused += &format!(" {}: {e};", directory.display()),
        }
    }
    Err(format!("no place for {NAME}:{refused} name one by HEAPTIDE_LIBRARY").into())
}

/// The user's cache, else a directory of the user's own among the temporary ones. A colon or a
/// space would end the name in LD_PRELOAD.
fn directories() -> Vec<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let user = fs::metadata("/proc/self").map_or(0, |m| m.uid());
    let shared = std::env::temp_dir().join(format!("heaptide-{user}"));
    [cache.map(|c| c.join("heaptide")), home.map(|h| h.join("heaptide")), Some(shared)]
        .into_iter()
        .flatten()
        .filter(|p| p.is_absolute() && !p.to_string_lossy().contains([':', ' ']))
        .collect()
}

/// Named by its content, so that versions do not get in each other's way and a running guest keeps
/// its own.
fn write_into(directory: &Path) -> std::io::Result<PathBuf> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let (owner, user) = (fs::metadata(directory)?.uid(), fs::metadata("/proc/self")?.uid());
    if owner != user {
        return Err(std::io::Error::other("belongs to another user"));
    }
    let path = directory.join(format!("libheaptide-{:016x}.so", fingerprint(CARRIED)));
    if fs::read(&path).is_ok_and(|bytes| bytes == CARRIED) {
        return Ok(path);
    }
    let draft = directory.join(format!(".libheaptide-{}.new", std::process::id()));
    let mut file = fs::File::create(&draft)?;
    file.write_all(CARRIED)?;
    file.set_permissions(fs::Permissions::from_mode(0o755))?;
    drop(file);
    fs::rename(&draft, &path)?;
    Ok(path)
}

/// FNV-1a, 64 bits: a name, not a proof; the proof is the comparison.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}
