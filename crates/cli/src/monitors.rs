//! `--monitor LIB[:OPTIONS]`: libraries that are called on each allocation, checked and named for
//! the loader and for themselves.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use heaptide_analysis::input;

use crate::Error;

/// What the loader and the libraries are told.
#[derive(Default, Debug)]
pub struct Monitors {
    /// The libraries' absolute paths, each after a colon: the rest of an `LD_PRELOAD`.
    pub preload: OsString,
    /// `HEAPTIDE_MONITORS`: `NAME[:OPTIONS]`, separated by semicolons.
    pub names: OsString,
}

/// Characters that end a name, for the loader or in `HEAPTIDE_MONITORS`.
const SEPARATORS: [u8; 6] = *b" :;\t\n$";

/// Checks the libraries, in the order in which they are to be called.
pub fn check(given: &[OsString]) -> Result<Monitors, Error> {
    let mut monitors = Monitors::default();
    let mut seen: Vec<OsString> = Vec::new();
    for word in given {
        let (file, options) = split(word);
        let refuse = |why: &str| Error::new(format!("--monitor {}: {why}", word.display()));
        if options.is_some_and(|options| options.as_bytes().contains(&b';')) {
            return Err(refuse("its options have a semicolon, which would end them; take another"));
        }
        let path = std::path::absolute(&file)
            .map_err(|_| refuse("expected the path of a library, LIB or LIB:OPTIONS"))?;
        is_library(&path).map_err(|why| refuse(&why))?;
        if path.as_os_str().as_bytes().iter().any(|b| SEPARATORS.contains(b)) {
            let shown = path.display();
            return Err(refuse(&format!(
                "{shown} has a space, colon, semicolon or dollar in it, which the loader takes \
                 for its own; copy the library elsewhere"
            )));
        }
        let name = path.file_name().unwrap_or_default().to_owned();
        if seen.contains(&name) {
            return Err(refuse("a monitor of this file name is there already; rename one"));
        }
        monitors.preload.push(":");
        monitors.preload.push(&path);
        if !seen.is_empty() {
            monitors.names.push(";");
        }
        monitors.names.push(&name);
        if let Some(options) = options {
            monitors.names.push(":");
            monitors.names.push(options);
        }
        seen.push(name);
    }
    Ok(monitors)
}

/// File and options. A file may have a colon in its name, to be refused by that name.
fn split(word: &OsString) -> (PathBuf, Option<&std::ffi::OsStr>) {
    let bytes = word.as_bytes();
    match bytes.iter().position(|&b| b == b':') {
        Some(colon) if !PathBuf::from(word).exists() => {
            let of = std::ffi::OsStr::from_bytes;
            (PathBuf::from(of(&bytes[..colon])), Some(of(&bytes[colon + 1..])))
        }
        _ => (PathBuf::from(word), None),
    }
}

/// An ELF file's head: class and byte order, then type and machine.
const ELF_HEAD: usize = 64;
/// `e_type` of shared objects, and of programs that may lie anywhere.
const ET_DYN: u16 = 3;
/// `e_machine` of this machine.
const EM_X86_64: u16 = 62;
/// `p_type` of the dynamic section.
const PT_DYNAMIC: u32 = 2;
/// The dynamic entry of flags, and its flag for programs.
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DF_1_PIE: u64 = 0x0800_0000;
/// The longest dynamic section that is looked through, in bytes; real ones have some 500.
const DYNAMIC_MAX: u64 = 1 << 16;

/// Whether the loader would take it: a 64-bit shared object for this machine; else why not.
fn is_library(path: &std::path::Path) -> Result<(), String> {
    let mut file = input::open(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => "no such file; expected the path of a library".to_owned(),
        _ => format!("cannot read it: {e}"),
    })?;
    let other = || "is no 64-bit ELF shared object; build it with -shared -fPIC".to_owned();
    let mut head = [0; ELF_HEAD];
    file.read_exact(&mut head).map_err(|_| other())?;
    let kind = u16::from_le_bytes([head[16], head[17]]);
    let machine = u16::from_le_bytes([head[18], head[19]]);
    if !head.starts_with(b"\x7fELF\x02\x01") || (kind, machine) != (ET_DYN, EM_X86_64) {
        return Err(other());
    }
    match is_program(&mut file, &head) {
        Some(true) => Err("is a program, expected a shared object; build it with -shared".into()),
        Some(false) => Ok(()),
        None => Err(other()),
    }
}

/// Whether the dynamic section says that the file is a program; none if it has no such section.
fn is_program(file: &mut File, head: &[u8; ELF_HEAD]) -> Option<bool> {
    let word = |bytes: &[u8], at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let headers = word(head, 32)?;
    let (size, count) = (u16::from_le_bytes([head[54], head[55]]), head[56] as usize);
    let count = count | (head[57] as usize) << 8;
    let table = read_at(file, headers, u64::from(size) * count as u64)?;
    let mut entries = table.chunks_exact(usize::from(size.max(56)));
    let dynamic = entries.find(|entry| entry[..4] == PT_DYNAMIC.to_le_bytes())?;
    let section = read_at(file, word(dynamic, 8)?, word(dynamic, 32)?.min(DYNAMIC_MAX))?;
    let flags = section.chunks_exact(16).find(|entry| word(entry, 0) == Some(DT_FLAGS_1));
    Some(flags.and_then(|entry| word(entry, 8)).is_some_and(|flags| flags & DF_1_PIE != 0))
}

fn read_at(file: &mut File, at: u64, length: u64) -> Option<Vec<u8>> {
    file.seek(SeekFrom::Start(at)).ok()?;
    let mut bytes = Vec::new();
    file.by_ref().take(length).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 == length).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(word: &str) -> String {
        check(&[word.into()]).expect_err("a bad library").to_string()
    }

    #[test]
    fn what_is_no_library_is_refused_in_one_line() {
        let me = std::env::current_exe().unwrap();
        let program = refused(&format!("{}:x", me.display()));
        assert!(program.ends_with("is a program, expected a shared object; build it with -shared"));
        let text = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(refused(text).contains("no 64-bit ELF shared object"));
        assert!(refused("/").contains("it is a directory, expected a regular file"));
        assert!(refused("none.so:a=1").contains("none.so:a=1: no such file"));
        assert!(refused("none.so:a;b").contains("semicolon"));
        assert!(refused("").contains("expected the path of a library"));
    }
}
