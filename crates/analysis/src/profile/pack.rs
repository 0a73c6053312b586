//! Packs profiles of finished processes as one zstd frame when a recording is sealed.
//!
//! A packed profile holds the bytes up to `file_end` under the same name; its first word identifies
//! it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use heaptide_format as format;

use super::header::FILE_LIMIT;
use crate::error::Error;
use crate::files::draft::{self, Draft};
use crate::files::input;

/// The first four bytes of a zstd frame.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Level 3 takes half as long again and saves 2 %.
const LEVEL: i32 = 1;
/// Size that any packed profile may unpack to, in bytes: every reader has this memory.
const FLOOR: u64 = 64 << 20;
/// Maximum compression ratio of larger profiles. Real ones reach 10, and more only if extents are
/// still empty; a malicious frame reaches 30,000.
const RATIO: u64 = 256;
/// Maximum window of a frame, as binary logarithm of bytes.
const WINDOW_LOG: u32 = 23;
/// Packed bytes that contain the beginning of a profile: a block of zstd is smaller.
const FIRST: u64 = 1 << 20;

/// Returns whether these are the first bytes of a packed profile.
pub(crate) fn is_packed(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Returns the maximum number of bytes that `packed` bytes may unpack to.
fn limit(packed: u64) -> u64 {
    packed.saturating_mul(RATIO).clamp(FLOOR, FILE_LIMIT)
}

/// Unpacks a profile of `size` bytes. Returns the bytes up to the first error, and that error.
/// `path` is for messages.
///
/// Errors: nothing can be unpacked, or more than the maximum for this size.
pub(crate) fn unpack(
    packed: impl Read,
    size: u64,
    path: &Path,
) -> Result<(Vec<u8>, Option<String>), Error> {
    let damaged = |what: String| Error::Damaged { path: path.to_owned(), what };
    let none_came = |error: io::Error| damaged(format!("cannot decompress: {error}"));
    let limit = limit(size);
    let mut bytes = Vec::new();
    let mut decoder = zstd::stream::read::Decoder::new(packed.take(size)).map_err(none_came)?;
    decoder.window_log_max(WINDOW_LOG).map_err(none_came)?;
    match decoder.take(limit + 1).read_to_end(&mut bytes) {
        _ if bytes.len() as u64 > limit => {
            Err(damaged(format!("its {size} bytes decompress to more than {limit}")))
        }
        Ok(_) => Ok((bytes, None)),
        Err(error) if bytes.is_empty() => Err(none_came(error)),
        Err(error) => {
            let have = bytes.len();
            Ok((bytes, Some(format!("only the first {have} bytes could be decompressed: {error}"))))
        }
    }
}

/// Returns at most `length` bytes from the beginning of a profile, packed or not.
///
/// Errors: the file cannot be read or unpacked.
pub(crate) fn first(mut file: impl Read, length: u64) -> io::Result<Vec<u8>> {
    let mut magic = Vec::new();
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut magic)?;
    let mut bytes = Vec::with_capacity(length as usize);
    if !is_packed(&magic) {
        magic.as_slice().chain(file).take(length).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    let mut decoder = zstd::stream::read::Decoder::new(magic.as_slice().chain(file).take(FIRST))?;
    decoder.window_log_max(WINDOW_LOG)?;
    decoder.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Packs the first `file_end` bytes of a profile that no process writes any more, and replaces it
/// atomically. Returns whether it was replaced: a file that is already packed, is not a regular
/// file, or would not become smaller is not changed.
///
/// Errors: the file cannot be read or written; then it is unchanged.
pub(crate) fn pack(path: &Path, file_end: u64) -> io::Result<bool> {
    let file = input::open(path)?;
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(false);
    }
    match packed(&file, path, file_end)? {
        Some(packed) => packed.replace().map(|()| true),
        None => Ok(false),
    }
}

/// Packs an open file; the result has not been renamed to a path yet.
pub(crate) fn packed(mut file: &File, path: &Path, file_end: u64) -> io::Result<Option<Draft>> {
    let was = file.metadata()?;
    let size = was.len().min(file_end);
    let mut magic = [0; format::MAGIC.len()];
    file.rewind()?;
    file.read_exact(&mut magic)?;
    file.rewind()?;
    if magic != format::MAGIC {
        return Ok(None);
    }
    let draft = Draft::of(path, draft::PRIVATE)?;
    let packed = write(&mut file.take(size), draft.file(), size, &was)?;
    Ok((packed < size && size <= limit(packed)).then_some(draft))
}

/// Writes the packed bytes to a new file, sets owner and mode to those of the old one, and returns
/// the number of bytes.
fn write(from: &mut impl Read, new: &File, size: u64, was: &fs::Metadata) -> io::Result<u64> {
    let is = new.metadata()?;
    if (is.uid(), is.gid()) != (was.uid(), was.gid()) {
        fchown(new, Some(was.uid()), Some(was.gid()))?;
    }
    let mut encoder = zstd::stream::write::Encoder::new(new, LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.set_pledged_src_size(Some(size))?; // fails if the file is truncated meanwhile
    io::copy(from, &mut encoder)?;
    encoder.finish()?.flush()?;
    new.set_permissions(was.permissions())?;
    Ok(new.metadata()?.len())
}
