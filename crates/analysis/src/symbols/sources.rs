//! Finds the files with the names of a module, in this order:
//!
//! 1. a separate debug file with its build-id: below `--symbols`, `--sysroot`, `/usr/lib/debug`, or
//!    at the path of its debug link
//! 2. a file from a server (debuginfod), if neither the module nor 1 has debug information
//! 3. the module: below `--sysroot`, at its path, below the root directory of a running process in
//!    a container, below `--symbols`
//!
//! A file with another build-id is never used.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use flate2::Crc;

use super::elf::{DebugLink, ElfFile};
use super::wanted::{ModuleKey, Wanted, hex};
use crate::files::input;
use crate::text;

/// Maximum number of bytes of a build-id in a profile.
const STORED_BUILD_ID: usize = 24;
/// Directory in which distributions install separate debug files.
const DEBUG_ROOT: &str = "usr/lib/debug";

/// A server of debug files.
pub trait DebugFiles {
    /// Returns the debug file with a build-id; `None` if there is no such file. `module` is for
    /// messages.
    ///
    /// Errors: the server could not be queried; a line for people.
    fn fetch(&self, build_id: &str, module: &Path) -> Result<Option<PathBuf>, String>;
}

/// Places to search for files, in addition to the default ones.
#[derive(Default)]
pub struct Sources {
    /// Directories with debug files or modules (`--symbols`).
    pub symbols: Vec<PathBuf>,
    /// A directory that replaces `/` (`--sysroot`).
    pub sysroot: Option<PathBuf>,
    /// Queried last.
    pub server: Option<Box<dyn DebugFiles>>,
}

/// The files found for a module.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// In order of priority; addresses without a name in a file are looked up in the next one.
    pub(super) files: Vec<PathBuf>,
    /// Problems that a user can solve: why there is no file, or one could not be used.
    pub(super) problems: Vec<String>,
}

impl Sources {
    /// Finds the files of a module. `roots` are the root directories of processes in containers.
    pub(super) fn find(&self, want: &Wanted, roots: &dyn Fn() -> Vec<PathBuf>) -> Found {
        let mut found = Found::default();
        if !want.module.path.is_absolute() {
            return found; // the vdso and the like, which have no file
        }
        let module = self.module(want, roots);
        let elf = module.as_ref().ok().and_then(|path| ElfFile::open(path).ok());
        let has_debug_info = elf.as_ref().is_some_and(|elf| elf.has(DEBUG_INFO));
        if !has_debug_info {
            let link = elf.as_ref().and_then(ElfFile::debug_link);
            let debug = self.debug_file(&want.module, link, &mut found.problems);
            found.files.extend(debug);
        }
        match module {
            Ok(path) => found.files.push(path),
            Err(why) if found.files.is_empty() => {
                let line = format!("{}: {why}; its frames have no names", want.module.shown());
                found.problems.insert(0, line);
            }
            Err(_) => {}
        }
        found
    }

    /// Errors: why the first existing candidate is not the recorded module.
    fn module(&self, want: &Wanted, roots: &dyn Fn() -> Vec<PathBuf>) -> Result<PathBuf, String> {
        let path = &want.module.path;
        let below_sysroot = self.sysroot.iter().map(|root| below(root, path));
        let mut why = None;
        for place in below_sysroot {
            match is_module(&place, want, Changed::Allowed) {
                Ok(()) => return Ok(place),
                Err(error) => why = why.or(Some(error)),
            }
        }
        match is_module(path, want, Changed::Refused) {
            Ok(()) => return Ok(path.clone()),
            Err(error) => why = why.or(Some(error)),
        }
        let name = path.file_name().unwrap_or_default();
        let named = self.symbols.iter().flat_map(|dir| [below(dir, path), dir.join(name)]);
        let in_containers = roots();
        let in_containers = in_containers.iter().map(|root| below(root, path));
        let mut others = in_containers.chain(named);
        let is = |place: &PathBuf| is_module(place, want, Changed::Allowed).is_ok();
        others.find(is).ok_or_else(|| why.unwrap_or_default())
    }

    fn debug_file(
        &self,
        module: &ModuleKey,
        link: Option<DebugLink>,
        problems: &mut Vec<String>,
    ) -> Option<PathBuf> {
        for place in self.places(module, link.as_ref()) {
            match is_debug_file(&place, module, link.as_ref()) {
                Ok(true) => return Some(place),
                Ok(false) => {}
                Err(why) => problems.push(format!("{}: {why}", text::of_path(&place))),
            }
        }
        let server = self.server.as_ref().filter(|_| !module.build_id.is_empty())?;
        match server.fetch(&hex(&module.build_id), &module.path) {
            Ok(file) => file.filter(|file| is_debug_file(file, module, None) == Ok(true)),
            Err(why) => {
                problems.push(why);
                None
            }
        }
    }

    /// Returns the paths at which the debug file of a module can be.
    fn places(&self, module: &ModuleKey, link: Option<&DebugLink>) -> Vec<PathBuf> {
        let by_id = by_build_id(&module.build_id);
        let name = module.path.file_name().unwrap_or_default();
        let mut with_suffix = name.to_owned();
        with_suffix.push(".debug");
        let mut places = Vec::new();
        for dir in &self.symbols {
            let ids = by_id.iter().flat_map(|id| [dir.join(".build-id").join(id), dir.join(id)]);
            places.extend(ids);
            places.extend(link.map(|link| dir.join(&link.name)));
            places.extend([dir.join(&with_suffix), dir.join(name), below(dir, &module.path)]);
        }
        for root in self.sysroot.iter().map(PathBuf::as_path).chain([Path::new("/")]) {
            let debug_root = root.join(DEBUG_ROOT);
            places.extend(by_id.iter().map(|id| debug_root.join(".build-id").join(id)));
            let Some(link) = link else { continue };
            for dir in directories(root, &module.path) {
                places.extend([dir.join(&link.name), dir.join(".debug").join(&link.name)]);
                let inside = dir.strip_prefix(root).unwrap_or(&dir);
                places.push(below(&debug_root, inside).join(&link.name));
            }
        }
        places
    }
}

const DEBUG_INFO: &str = ".debug_info";
const SYMBOL_TABLE: &str = ".symtab";

/// Returns the directory of a module below a root, with and without resolving symbolic links.
fn directories(root: &Path, module: &Path) -> Vec<PathBuf> {
    let file = below(root, module);
    let real = fs::canonicalize(&file).ok();
    let mut directories: Vec<PathBuf> =
        [Some(file), real].into_iter().flatten().filter_map(|f| Some(f.parent()?.into())).collect();
    directories.dedup();
    directories
}

/// Returns `ab/cdef….debug`; `None` for a module without a build-id.
fn by_build_id(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    Some(PathBuf::from(format!("{}/{}.debug", hex(&[*first]), hex(rest))))
}

/// Returns an absolute path below another root directory.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Whether a file without a build-id may be newer than the recording.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Changed {
    /// A copy has the time of copying.
    Allowed,
    Refused,
}

/// Checks that a file is the recorded module.
///
/// Errors: the file cannot be read, or is not the recorded one.
fn is_module(file: &Path, want: &Wanted, changed: Changed) -> Result<(), String> {
    let build_id = &want.module.build_id;
    let opened = input::open(file).and_then(|file| file.metadata());
    let metadata = opened.map_err(|error| format!("cannot read it: {error}"))?;
    let elf = ElfFile::open(file).map_err(|error| format!("cannot read it: {error}"))?;
    let found = elf.build_id();
    if build_id.is_empty() && found.is_empty() {
        let time = metadata.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        let time_ns = time.map_or(u128::MAX, |t| t.as_nanos());
        if changed == Changed::Refused && time_ns > u128::from(want.since_ns) {
            return Err("the file changed after the recording".to_owned());
        }
        return Ok(());
    }
    same_build_id(&found, build_id)
}

/// Returns whether a file has a build-id other than the recorded one; false if either is unknown.
pub fn is_another_build(file: &Path, recorded: &[u8]) -> bool {
    let found = ElfFile::open(file).map(|elf| elf.build_id()).unwrap_or_default();
    !recorded.is_empty() && !found.is_empty() && same_build_id(&found, recorded).is_err()
}

/// Returns the file at the usual places with the symbols or the debug information of a module;
/// `None` if the module contains both, or there is no such file. `path` is the module's name in the
/// program, and `file` where it can be read.
pub fn separate_debug_file(file: &Path, path: &Path) -> Option<PathBuf> {
    let elf = ElfFile::open(file).ok()?;
    if elf.has(DEBUG_INFO) && elf.has(SYMBOL_TABLE) {
        return None;
    }
    let module = ModuleKey { path: path.to_owned(), build_id: elf.build_id() };
    Sources::default().debug_file(&module, elf.debug_link(), &mut Vec::new())
}

/// Returns whether a file is a debug file with a build-id, given in hexadecimal digits.
///
/// ```
/// use heaptide_analysis::symbols::is_debug_file_of;
/// assert!(!is_debug_file_of("Cargo.toml".as_ref(), "0123"));
/// ```
pub fn is_debug_file_of(file: &Path, build_id: &str) -> bool {
    ElfFile::open(file).is_ok_and(|elf| {
        let found = elf.build_id();
        let found = hex(&found[..found.len().min(STORED_BUILD_ID)]);
        found == build_id && (elf.has(DEBUG_INFO) || elf.has(SYMBOL_TABLE))
    })
}

/// Returns whether a file has the debug information or the symbols of a module; false if there is
/// no such file.
///
/// Errors: the file belongs to another build.
fn is_debug_file(
    file: &Path,
    module: &ModuleKey,
    link: Option<&DebugLink>,
) -> Result<bool, String> {
    let Ok(elf) = ElfFile::open(file) else { return Ok(false) };
    if !elf.has(DEBUG_INFO) && !elf.has(SYMBOL_TABLE) {
        return Ok(false);
    }
    let found = elf.build_id();
    if !module.build_id.is_empty() && !found.is_empty() {
        return same_build_id(&found, &module.build_id).map(|()| true);
    }
    let Some(link) = link else { return Ok(false) };
    match checksum(file) {
        Ok(checksum) if checksum == link.checksum => Ok(true),
        _ => Err("its checksum is not that in the debug link of the module".to_owned()),
    }
}

/// Returns the CRC-32 of a file, as used in debug links.
fn checksum(file: &Path) -> std::io::Result<u32> {
    let mut file = input::open(file)?;
    let (mut checksum, mut buffer) = (Crc::new(), vec![0; CHUNK]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(checksum.sum()),
            length => checksum.update(&buffer[..length]),
        }
    }
}

/// Buffer size for computing the checksum of a file.
const CHUNK: usize = 1 << 20;

fn same_build_id(found: &[u8], recorded: &[u8]) -> Result<(), String> {
    if recorded == &found[..found.len().min(STORED_BUILD_ID)] {
        return Ok(());
    }
    let or_none = |id: &[u8]| if id.is_empty() { "none".to_owned() } else { hex(id) };
    Err(format!("its build id is {}, recorded was {}", or_none(found), or_none(recorded)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_debug_files_are_in_order() {
        let sources =
            Sources { symbols: vec!["/syms".into()], sysroot: Some("/other".into()), server: None };
        let module = ModuleKey { path: "/opt/x/app".into(), build_id: vec![0xab, 0xcd, 0x01] };
        let link = DebugLink::new(b"app.dbg", 7).expect("a name");
        let places = sources.places(&module, Some(&link));
        let expected = [
            "/syms/.build-id/ab/cd01.debug",
            "/syms/ab/cd01.debug",
            "/syms/app.dbg",
            "/syms/app.debug",
            "/syms/app",
            "/syms/opt/x/app",
            "/other/usr/lib/debug/.build-id/ab/cd01.debug",
            "/other/opt/x/app.dbg",
            "/other/opt/x/.debug/app.dbg",
            "/other/usr/lib/debug/opt/x/app.dbg",
            "/usr/lib/debug/.build-id/ab/cd01.debug",
            "/opt/x/app.dbg",
            "/opt/x/.debug/app.dbg",
            "/usr/lib/debug/opt/x/app.dbg",
        ];
        assert_eq!(places, expected.map(PathBuf::from));
        assert_eq!(DebugLink::new(b"../../etc/x", 7), None);
        assert_eq!(by_build_id(&[1]), None);
    }
}
