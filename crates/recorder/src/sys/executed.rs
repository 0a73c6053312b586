//! The file of the program, its program headers, and the path by which it was executed: the path of
//! a link, if the file was reached through one.

use crate::sys::kernel::{self, Fd, Path};
use crate::sys::maps::kept_path;
use crate::sys::text::file_of;

/// Maximum number of bytes of `/proc/self/auxv` that are read: it has some 25 entries of 16 bytes.
const AUXILIARY_MAX: usize = 1024;
/// The entries with address and number of the program headers, and with the address of the path.
const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const AT_EXECFN: u64 = 31;

/// Returns the path of the program's file, also if the file was replaced or removed meanwhile.
/// `buffer` has room for a path.
pub fn program(buffer: &mut [u8]) -> Option<&[u8]> {
    let path = kernel::readlink(Path::new(b"/proc/self/exe\0")?, buffer).ok()?;
    Some(kept_path(path))
}

/// Returns the file name of the path by which it was executed, if that still leads to the
/// executable. `buffer` has room for a path.
pub fn name(buffer: &mut [u8]) -> Option<&[u8]> {
    let [at] = auxiliary([AT_EXECFN])?;
    let memory = open(b"/proc/self/mem\0")?;
    let read = kernel::read_at(memory, buffer, at);
    kernel::close(memory);
    let end = buffer[..read.ok()?].iter().position(|&byte| byte == 0)?;
    let path = &buffer[..=end];
    (identity(path)? == identity(b"/proc/self/exe\0")?).then(|| file_of(&path[..end]))
}

/// Returns the address and the number of the program headers of the program's file.
pub fn program_headers() -> Option<[u64; 2]> {
    auxiliary([AT_PHDR, AT_PHNUM])
}

/// Returns entries of the auxiliary vector.
fn auxiliary<const N: usize>(wanted: [u64; N]) -> Option<[u64; N]> {
    let mut buffer = [0u8; AUXILIARY_MAX];
    let entries = kernel::read_file(Path::new(b"/proc/self/auxv\0")?, &mut buffer).ok()?;
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_ne_bytes);
    let mut found = [0; N];
    for (entry, found) in wanted.into_iter().zip(&mut found) {
        let mut all = entries.chunks_exact(16);
        *found = word(&all.find(|known| word(&known[..8]) == Some(entry))?[8..])?;
    }
    Some(found)
}

fn open(path: &[u8]) -> Option<Fd> {
    kernel::open(Path::new(path)?, kernel::O_RDONLY | kernel::O_NONBLOCK).ok()
}

/// Returns device and inode of a file.
fn identity(path: &[u8]) -> Option<(u64, u64)> {
    let fd = open(path)?;
    let identity = kernel::identity(fd).ok();
    kernel::close(fd);
    identity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_this_process() {
        let mut buffer = [0; 4096];
        let own = std::env::current_exe().expect("an executable");
        let file = own.file_name().expect("its name").as_encoded_bytes();
        assert_eq!(name(&mut buffer), Some(file));
    }
}
