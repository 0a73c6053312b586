//! The memory of a process, and its mappings.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use nix::unistd::Pid;

/// The memory of a process.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    /// Opens the memory of a process.
    ///
    /// Errors: the process has ended, or it may not be traced.
    pub fn open(pid: Pid) -> io::Result<Memory> {
        let path = format!("/proc/{pid}/mem");
        Ok(Memory(OpenOptions::new().read(true).write(true).open(path)?))
    }

    /// Reads bytes.
    ///
    /// Errors: the kernel's.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, address)
    }

    /// Reads as many bytes as there are. Returns their number.
    pub fn read_some(&self, address: u64, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            match self.0.read_at(&mut bytes[done..], address + done as u64) {
                Ok(read) if read > 0 => done += read,
                _ => break,
            }
        }
        done
    }

    /// Writes bytes with one call, even to memory that is read-only for the process.
    ///
    /// Errors: the kernel's.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }

    /// Reads a word.
    ///
    /// Errors: the kernel's.
    pub fn word(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Reads a zero-terminated string of at most a few hundred bytes.
    pub fn text(&self, address: u64) -> String {
        let mut bytes = [0u8; 512];
        let read = self.0.read_at(&mut bytes, address).unwrap_or(0);
        let text = bytes[..read].split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

/// A mapping.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Its first address.
    pub low: u64,
    /// Its end address.
    pub high: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// Whether it is executable.
    pub is_code: bool,
    /// Whether it is readable and writable.
    pub is_written: bool,
    /// Whether it is accessible at all.
    pub is_accessible: bool,
    /// Whether it is shared with other processes.
    pub is_shared: bool,
    /// The file; empty if it has none.
    pub path: String,
}

/// Returns the mappings of a process.
///
/// Errors: the process has ended, or it may not be traced.
pub fn mappings(pid: Pid) -> io::Result<Vec<Mapping>> {
    Ok(parse_all(&maps(pid)?))
}

/// Returns the mappings of a process as the kernel's text.
///
/// Errors: the process has ended, or it may not be traced.
pub fn maps(pid: Pid) -> io::Result<Vec<u8>> {
    fs::read(format!("/proc/{pid}/maps"))
}

/// Parses the kernel's text.
pub fn parse_all(text: &[u8]) -> Vec<Mapping> {
    String::from_utf8_lossy(text).lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (low, high) = fields.next()?.split_once('-')?;
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let rights = fields.next()?;
    let offset = number(fields.next()?)?;
    let path = fields.nth(2).unwrap_or("").trim_start();
    Some(Mapping {
        low: number(low)?,
        high: number(high)?,
        offset,
        is_code: rights.as_bytes().get(2) == Some(&b'x'),
        is_written: rights.starts_with("rw"),
        is_accessible: !rights.starts_with("---"),
        is_shared: rights.ends_with('s'),
        path: path.to_owned(),
    })
}

/// Returns paths to read the file of a mapping: through the mapping, which requires root, or by its
/// name in the root directory of the process.
pub fn file_of(pid: Pid, mapping: &Mapping) -> Vec<PathBuf> {
    let by_name = PathBuf::from(format!("/proc/{pid}/root{}", mapping.path));
    let by_mapping = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.low, mapping.high);
    if mapping.path.ends_with(" (deleted)") || mapping.path.starts_with("/memfd:") {
        vec![PathBuf::from(by_mapping)]
    } else {
        vec![PathBuf::from(by_mapping), by_name]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_maps_are_parsed() {
        let mapping = parse("7f00001000-7f00003000 r-xp 00002000 fe:01 1234   /lib/a file");
        let mapping = mapping.expect("a mapping");
        assert_eq!(
            (mapping.low, mapping.high, mapping.offset),
            (0x7f_0000_1000, 0x7f_0000_3000, 0x2000)
        );
        assert!(mapping.is_code && mapping.is_accessible);
        assert!(!mapping.is_written && !mapping.is_shared);
        assert_eq!(mapping.path, "/lib/a file");
        assert_eq!(parse("1000-2000 rw-p 00000000 00:00 0").expect("a mapping").path, "");
        assert!(parse("x-y r--p 0 0:0 0").is_none());
    }
}
