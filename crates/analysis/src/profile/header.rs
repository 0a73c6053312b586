//! The header of a profile, and the maximum size of profiles.

use std::path::Path;

use heaptide_format as format;
use heaptide_format::FileHeader;
use zerocopy::FromBytes;

use crate::error::Error;

/// Maximum size of a profile in bytes: some twenty million sites. It limits the memory of a reader,
/// even for a huge sparse file.
pub const FILE_LIMIT: u64 = 4 << 30;

/// Checks the first bytes of a profile that is not packed, and returns its header. `path` is for
/// messages.
///
/// Errors: the bytes are not a profile, have a later version, or contradict the format.
pub(crate) fn header(bytes: &[u8], path: &Path) -> Result<FileHeader, Error> {
    let foreign = |found: &str| Error::Foreign { path: path.to_owned(), found: found.to_owned() };
    match bytes.get(..format::MAGIC.len()) {
        None if bytes.is_empty() => {
            return Err(foreign(
                "the file is empty (process still starting, died during startup, or had no room on \
                 the disk)",
            ));
        }
        None => return Err(foreign("the file is shorter than the magic number")),
        Some([0, 0, 0, 0, 0, 0, 0, 0]) => {
            return Err(foreign(
                "the header has not been written yet (process still starting, or died during startup)",
            ));
        }
        Some(magic) if magic != format::MAGIC => return Err(foreign("not a profile")),
        Some(_) => {}
    }
    let Ok((header, _)) = FileHeader::read_from_prefix(bytes) else {
        let (is, expected) = (bytes.len(), size_of::<FileHeader>());
        return Err(damaged(
            path,
            format!("truncated to {is} bytes, shorter than the header of {expected}"),
        ));
    };
    match header.version {
        0 => Err(damaged(path, "invalid profile version 0, expected 1 or more".to_owned())),
        version if version > format::VERSION => {
            Err(Error::Newer { path: path.to_owned(), version, known: format::VERSION })
        }
        _ if header.file_end < format::PAGE => {
            let end = header.file_end;
            Err(damaged(path, format!("invalid end {end} in the header, expected at least 4096")))
        }
        _ => Ok(header),
    }
}

pub(super) fn damaged(path: &Path, what: String) -> Error {
    Error::Damaged { path: path.to_owned(), what }
}
