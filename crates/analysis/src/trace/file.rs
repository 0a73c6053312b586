//! `PID-IMAGE.trace`: the extents of events that were moved out of a profile, each as a compressed
//! chunk.
//!
//! The file only grows at its end. A process that appends can be killed at any time: readers ignore
//! an incomplete chunk, and the next writer removes it. The bytes are untrusted: no input causes a
//! panic, or uses memory beyond one chunk and a header for each.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use heaptide_format::{
    BASELINE_SUFFIX, EXTENT_HEADER, HELD_SUFFIX, PROFILE_SUFFIX, SNAPSHOT_SUFFIX,
    TRACE_CHUNK_MAGIC, TRACE_EXTENT_MAX, TRACE_MAGIC, TRACE_SUFFIX, TRACE_VERSION, TraceChunk,
    TraceCut, TraceHead, TraceStart,
};
use nix::fcntl::OFlag;
use rustc_hash::FxHashSet;
use zerocopy::{FromBytes, IntoBytes};
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{self, CParameter};

use crate::error::Error;
use crate::files::input;

/// Level 1 packs 256 KiB in about a millisecond, to 4.2 bytes per event of a compiler; level 3
/// takes two to three times as long and saves a tenth.
const LEVEL: i32 = 1;
/// Bytes of the file's header.
const HEAD: u64 = size_of::<TraceHead>() as u64;
/// Bytes of the header of a file whose oldest chunks were dropped.
pub(super) const CUT_HEAD: u64 = HEAD + size_of::<TraceCut>() as u64;
/// The version of a complete file.
const WHOLE_VERSION: u32 = 1;
/// Bytes of a chunk's header.
pub(super) const CHUNK: u64 = size_of::<TraceChunk>() as u64;
/// Maximum length of the contents of an extent.
const CONTENTS_MAX: usize = (TRACE_EXTENT_MAX - EXTENT_HEADER) as usize;

/// Returns the trace file of a profile, of a snapshot or of a baseline.
///
/// ```
/// use heaptide_analysis::trace::file::path_of;
/// assert_eq!(path_of("a/12-0.profile".as_ref()).to_str(), Some("a/12-0.trace"));
/// assert_eq!(path_of("a/r2-12-0.3.snapshot".as_ref()).to_str(), Some("a/r2-12-0.trace"));
/// ```
pub fn path_of(profile: &Path) -> PathBuf {
    let name = profile.file_name().unwrap_or_default().to_string_lossy();
    let numbered = name.strip_suffix(SNAPSHOT_SUFFIX).and_then(|name| name.rsplit_once('.'));
    let stem = numbered
        .map(|(stem, _)| stem)
        .or_else(|| name.strip_suffix(PROFILE_SUFFIX))
        .or_else(|| name.strip_suffix(BASELINE_SUFFIX))
        .or_else(|| name.strip_suffix(HELD_SUFFIX))
        .unwrap_or(&name);
    profile.with_file_name(format!("{stem}{TRACE_SUFFIX}"))
}

/// The place of a chunk in the file.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its header.
    pub chunk: TraceChunk,
    /// Offset of the first packed byte.
    pub at: u64,
}

/// A trace file, open for reading.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    file: File,
    places: Vec<Place>,
    /// Totals of dropped chunks; zeros if nothing was dropped.
    cut: TraceCut,
    /// Offset of the next chunk.
    end: u64,
    size: u64,
}

impl TraceFile {
    /// Opens the trace file of a profile and reads the headers of its chunks; `None` if there is no
    /// such file.
    ///
    /// Errors: the file cannot be read, is not a trace, or has a later version. Bytes after the
    /// last complete chunk are ignored.
    ///
    /// ```
    /// use heaptide_analysis::trace::file::TraceFile;
    /// assert!(TraceFile::of("missing.heaptide/12-0.profile".as_ref()).unwrap().is_none());
    /// ```
    pub fn of(profile: &Path) -> Result<Option<TraceFile>, Error> {
        let Some(mut trace) = TraceFile::open(profile)? else {
            return Ok(None);
        };
        trace.look_for_more().map_err(|source| {
            let path = trace.path.clone();
            Error::Io { path, doing: "read", source }
        })?;
        Ok(Some(trace))
    }

    /// Checks whether the trace file of a profile can be read, if there is one.
    ///
    /// Errors: the file cannot be opened, is not a trace, or has a later version.
    pub(crate) fn check(profile: &Path) -> Result<(), Error> {
        TraceFile::open(profile).map(drop)
    }

    /// Opens the trace file of a profile, if there is one, and reads its header.
    fn open(profile: &Path) -> Result<Option<TraceFile>, Error> {
        let path = path_of(profile);
        let io = |source| Error::Io { path: path.clone(), doing: "read", source };
        let file = match input::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io(e)),
        };
        let size = file.metadata().map_err(io)?.len();
        let mut trace =
            TraceFile { path, file, places: Vec::new(), cut: TraceCut::default(), end: 0, size };
        trace.head()?;
        Ok(Some(trace))
    }

    /// Checks the header. A file that ends within it has no chunks yet.
    fn head(&mut self) -> Result<(), Error> {
        let path = || self.path.clone();
        let mut bytes = [0; HEAD as usize];
        let have = self.size.min(HEAD) as usize;
        let read = self.file.read_exact_at(&mut bytes[..have], 0);
        read.map_err(|source| Error::Io { path: path(), doing: "read", source })?;
        let magic = TRACE_MAGIC.len().min(have);
        if bytes[..magic] != TRACE_MAGIC[..magic] {
            let what = "not a trace, expected a file that starts with HEAPTRCE".to_owned();
            return Err(Error::Damaged { path: path(), what });
        }
        let Some(head) = (self.size >= HEAD).then(|| TraceHead::read_from_bytes(&bytes)) else {
            return Ok(());
        };
        let version = head.map_or(0, |head| head.version);
        if version > TRACE_VERSION {
            return Err(Error::Newer { path: path(), version, known: TRACE_VERSION });
        }
        if version <= WHOLE_VERSION {
            self.end = HEAD;
        } else if self.size >= CUT_HEAD {
            let mut bytes = [0; size_of::<TraceCut>()];
            let read = self.file.read_exact_at(&mut bytes, HEAD);
            read.map_err(|source| Error::Io { path: path(), doing: "read", source })?;
            (self.cut, self.end) = (zerocopy::transmute!(bytes), CUT_HEAD);
        }
        Ok(())
    }

    /// Reads the headers of chunks that were appended since; returns their number.
    ///
    /// Errors: the file cannot be read.
    pub fn look_for_more(&mut self) -> io::Result<usize> {
        let before = self.places.len();
        self.size = self.file.metadata()?.len();
        while self.end >= HEAD && self.size.saturating_sub(self.end) > CHUNK {
            let mut bytes = [0; CHUNK as usize];
            self.file.read_exact_at(&mut bytes, self.end)?;
            let chunk = TraceChunk::read_from_bytes(&bytes).ok().filter(is_possible);
            let at = self.end + CHUNK;
            let whole = |c: &TraceChunk| u64::from(c.packed_length) <= self.size - at;
            let Some(chunk) = chunk.filter(whole) else {
                break;
            };
            self.end = at + u64::from(chunk.packed_length);
            self.places.push(Place { chunk, at });
        }
        Ok(self.places.len() - before)
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the chunks, in order of the file.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Returns totals of dropped chunks; zeros if nothing was dropped.
    pub fn cut(&self) -> TraceCut {
        self.cut
    }

    /// Returns the open file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the offset of the end of the last complete chunk.
    pub fn length(&self) -> u64 {
        self.end
    }

    /// Returns the number of bytes after the last complete chunk.
    pub fn torn(&self) -> u64 {
        self.size.saturating_sub(self.end)
    }

    /// Replaces `contents` by a chunk's unpacked contents: a [`TraceStart`] and records. `unpacker`
    /// is reused between chunks.
    ///
    /// Errors: the chunk cannot be read, or is damaged.
    pub fn read(
        &self,
        place: &Place,
        unpacker: &mut Unpacker,
        contents: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let path = || self.path.clone();
        let length = (place.chunk.packed_length as usize).min(longest_packed());
        unpacker.packed.resize(length, 0);
        let read = self.file.read_exact_at(&mut unpacker.packed, place.at);
        read.map_err(|source| Error::Io { path: path(), doing: "read", source })?;
        unpacker.unpack(&place.chunk, contents).map_err(|what| {
            let what = format!("chunk {} at byte {}: {what}", place.chunk.number, place.at - CHUNK);
            Error::Damaged { path: path(), what }
        })
    }
}

/// Returns whether a chunk's header is plausible.
fn is_possible(chunk: &TraceChunk) -> bool {
    let raw = chunk.raw_length as usize;
    chunk.magic == TRACE_CHUNK_MAGIC
        && (size_of::<TraceStart>()..=CONTENTS_MAX).contains(&raw)
        && (1..=longest_packed()).contains(&(chunk.packed_length as usize))
}

/// Returns the maximum packed length of contents.
fn longest_packed() -> usize {
    zstd_safe::compress_bound(CONTENTS_MAX)
}

/// The buffers for unpacking, reused for many chunks.
pub struct Unpacker {
    decompressor: Decompressor<'static>,
    packed: Vec<u8>,
}

impl Unpacker {
    /// Returns a new unpacker.
    ///
    /// Errors: out of memory.
    pub fn new() -> io::Result<Unpacker> {
        Ok(Unpacker { decompressor: Decompressor::new()?, packed: Vec::new() })
    }

    fn unpack(&mut self, chunk: &TraceChunk, contents: &mut Vec<u8>) -> Result<(), String> {
        contents.clear();
        contents.reserve(CONTENTS_MAX); // the maximum, so that no chunk needs another allocation
        let unpacked = self.decompressor.decompress_to_buffer(&self.packed[..], contents);
        let length = unpacked.map_err(|e| format!("cannot decompress: {e}"))?;
        if length != chunk.raw_length as usize {
            let expected = chunk.raw_length;
            return Err(format!("it decompresses to {length} bytes, expected {expected}"));
        }
        let Some(start) = start(contents) else {
            return Err("it has no start record".to_owned());
        };
        let head = (chunk.number, chunk.first_ticks, chunk.last_ticks);
        if head != (start.number, start.ticks, start.last_ticks) {
            let (number, ticks, last) = (start.number, start.ticks, start.last_ticks);
            return Err(format!(
                "it contains number {number} with ticks {ticks} to {last}, unlike its header"
            ));
        }
        Ok(())
    }
}

/// Returns the first record of the contents of an extent; `None` if they are too short.
pub fn start(contents: &[u8]) -> Option<TraceStart> {
    TraceStart::read_from_prefix(contents).ok().map(|(start, _)| start)
}

/// A trace file to append chunks to.
pub struct Appender {
    path: PathBuf,
    file: File,
    /// Offset of the next chunk: everything before is complete.
    end: u64,
    numbers: FxHashSet<u32>,
    compressor: Compressor<'static>,
    /// A chunk with its header.
    buffer: Vec<u8>,
}

impl Appender {
    /// Opens the trace file of a profile to append to it, and creates it if it does not exist, with
    /// the profile's owner and mode. An incomplete chunk at its end is removed.
    ///
    /// Errors: the file cannot be read or written, is not a trace, or has a later version.
    ///
    /// ```
    /// use heaptide_analysis::trace::file::Appender;
    /// assert!(Appender::of("missing.heaptide/12-0.profile".as_ref()).is_err());
    /// ```
    pub fn of(profile: &Path) -> Result<Appender, Error> {
        let path = path_of(profile);
        let there = TraceFile::of(profile)?;
        let io = |source| Error::Io { path: path.clone(), doing: "write", source };
        let owner = fs::metadata(profile).map_err(io)?;
        let mut options = OpenOptions::new();
        // The owner of the recording may have put a link there.
        options.write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(OFlag::O_NOFOLLOW.bits());
        let file = options.open(&path).map_err(io)?;
        belongs_to(&file, &owner).map_err(io)?;
        let numbers = there.iter().flat_map(|t| t.places()).map(|p| p.chunk.number).collect();
        let end = there.as_ref().map_or(0, TraceFile::length);
        file.set_len(end).map_err(io)?;
        let mut compressor = Compressor::new(LEVEL).map_err(io)?;
        compressor.set_parameter(CParameter::ChecksumFlag(true)).map_err(io)?;
        let buffer = Vec::with_capacity(CHUNK as usize + longest_packed());
        let mut appender = Appender { path, file, end, numbers, compressor, buffer };
        if appender.end == 0 {
            let head = TraceHead { magic: TRACE_MAGIC, version: WHOLE_VERSION, reserved: 0 };
            appender.put(head.as_bytes()).map_err(|e| appender.error(e))?;
        }
        Ok(appender)
    }

    /// Returns whether the file has contents with this number.
    pub fn has(&self, number: u32) -> bool {
        self.numbers.contains(&number)
    }

    /// Returns the length of the file in bytes.
    pub fn length(&self) -> u64 {
        self.end
    }

    /// Switches to another file that is complete up to `end`.
    pub(super) fn go_on_in(&mut self, file: File, end: u64, numbers: FxHashSet<u32>) {
        (self.file, self.end, self.numbers) = (file, end, numbers);
    }

    /// Appends the contents of an extent: a [`TraceStart`] and records. Does nothing if the file
    /// already has them.
    ///
    /// Errors: they are not contents of an extent, or cannot be written; then the file is
    /// unchanged.
    pub fn append(&mut self, lane: u32, contents: &[u8]) -> Result<(), Error> {
        let start = start(contents).filter(|_| contents.len() <= CONTENTS_MAX);
        let start = start.ok_or_else(|| {
            let what = format!("an extent of events has {} bytes in use", contents.len());
            Error::Damaged { path: self.path.clone(), what }
        })?;
        if self.has(start.number) {
            return Ok(());
        }
        let mut chunk = std::mem::take(&mut self.buffer);
        let written = self.pack(lane, &start, contents, &mut chunk).and_then(|()| self.put(&chunk));
        self.buffer = chunk;
        written.map_err(|e| self.error(e))?;
        self.numbers.insert(start.number);
        Ok(())
    }

    fn pack(
        &mut self,
        lane: u32,
        start: &TraceStart,
        contents: &[u8],
        chunk: &mut Vec<u8>,
    ) -> io::Result<()> {
        chunk.resize(CHUNK as usize + longest_packed(), 0);
        let packed = &mut chunk[CHUNK as usize..];
        let packed_length = self.compressor.compress_to_buffer(contents, packed)?;
        let head = TraceChunk {
            magic: TRACE_CHUNK_MAGIC,
            lane,
            number: start.number,
            raw_length: contents.len() as u32,
            packed_length: packed_length as u32,
            reserved: 0,
            first_ticks: start.ticks,
            last_ticks: start.last_ticks,
        };
        chunk[..CHUNK as usize].copy_from_slice(head.as_bytes());
        chunk.truncate(CHUNK as usize + packed_length);
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.end).inspect_err(|_| {
            let _ = self.file.set_len(self.end); // on failure the next chunk overwrites it
        })?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn error(&self, source: io::Error) -> Error {
        Error::Io { path: self.path.clone(), doing: "write", source }
    }
}

/// Gives a file the owner and mode of another file: the supervising command can run as another
/// user.
pub(super) fn belongs_to(file: &File, other: &fs::Metadata) -> io::Result<()> {
    let is = file.metadata()?;
    if (is.uid(), is.gid()) != (other.uid(), other.gid()) {
        fchown(file, Some(other.uid()), Some(other.gid()))?;
    }
    file.set_permissions(other.permissions())
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use heaptide_fixtures::Scratch;

    use super::*;

    /// Returns a profile's path in a directory of its own, with an empty file as profile.
    fn profile(name: &str) -> (Scratch, PathBuf) {
        let scratch = Scratch::new(&format!("trace-{name}"));
        let profile = scratch.write("12-0.profile", b"");
        (scratch, profile)
    }

    fn contents(number: u32, records: &[u8]) -> Vec<u8> {
        let start = TraceStart { number, ticks: u64::from(number) * 10, ..TraceStart::default() };
        [start.as_bytes(), records].concat()
    }

    fn read_all(profile: &Path) -> Vec<(u32, Vec<u8>)> {
        let trace = TraceFile::of(profile).unwrap().unwrap();
        let mut unpacker = Unpacker::new().unwrap();
        let one = |place: &Place| {
            let mut contents = Vec::new();
            trace.read(place, &mut unpacker, &mut contents).unwrap();
            (place.chunk.lane, contents)
        };
        trace.places().iter().map(one).collect()
    }

    #[test]
    fn what_was_appended_is_read() {
        let (_scratch, profile) = profile("appended");
        let long = contents(2, &vec![7; CONTENTS_MAX - size_of::<TraceStart>()]);
        let noise: Vec<u8> =
            (0..60_000u32).flat_map(|n| n.wrapping_mul(0x9e37).to_le_bytes()).collect();
        let noise = contents(3, &noise);
        let mut appender = Appender::of(&profile).unwrap();
        appender.append(0, &contents(1, b"")).unwrap();
        appender.append(5, &long).unwrap();
        drop(appender);
        let mut appender = Appender::of(&profile).unwrap();
        assert!(appender.has(2) && !appender.has(3));
        appender.append(5, &long).unwrap();
        appender.append(9, &noise).unwrap();
        let expected = [(0, contents(1, b"")), (5, long), (9, noise)];
        assert_eq!(read_all(&profile), expected);
        assert!(appender.append(0, &[0; 63]).is_err());
        assert!(appender.append(0, &vec![0; CONTENTS_MAX + 1]).is_err());
    }

    #[test]
    fn a_torn_end_is_ignored_and_taken_away() {
        let (_scratch, profile) = profile("torn");
        let mut appender = Appender::of(&profile).unwrap();
        appender.append(0, &contents(1, b"one")).unwrap();
        let whole = appender.length();
        appender.append(0, &contents(2, b"two")).unwrap();
        let all = fs::read(path_of(&profile)).unwrap();
        for length in 0..all.len() {
            fs::write(path_of(&profile), &all[..length]).unwrap();
            let trace = TraceFile::of(&profile).unwrap().unwrap();
            let chunks = usize::from(length as u64 >= whole);
            assert_eq!(trace.places().len(), chunks, "{length}");
            assert_eq!(trace.length() + trace.torn(), length as u64);
            let mut appender = Appender::of(&profile).unwrap();
            appender.append(3, &contents(7, b"seven")).unwrap();
            let read = read_all(&profile);
            assert_eq!(read.len(), chunks + 1, "{length}");
            assert_eq!(read[chunks], (3, contents(7, b"seven")));
        }
    }

    #[test]
    fn more_is_found_while_it_is_written() {
        let (_scratch, profile) = profile("more");
        let mut appender = Appender::of(&profile).unwrap();
        let mut trace = TraceFile::of(&profile).unwrap().unwrap();
        assert_eq!(trace.look_for_more().unwrap(), 0);
        appender.append(0, &contents(1, b"one")).unwrap();
        appender.append(0, &contents(2, b"two")).unwrap();
        assert_eq!(trace.look_for_more().unwrap(), 2);
        assert_eq!(trace.places()[1].chunk.number, 2);
    }

    /// Returns whether a flipped bit at this offset within a chunk's header cannot be detected: the
    /// lane is stored only there, and the reserved word is unused.
    fn is_unchecked(at: usize) -> bool {
        let lane = offset_of!(TraceChunk, lane);
        let reserved = offset_of!(TraceChunk, reserved);
        (lane..lane + 4).contains(&at) || (reserved..reserved + 4).contains(&at)
    }

    #[test]
    fn flipped_bits_are_reported_or_change_nothing() {
        let (_scratch, profile) = profile("damage");
        let written = [contents(1, b"some records, some records"), contents(2, b"some more")];
        let mut appender = Appender::of(&profile).unwrap();
        let heads = written.each_ref().map(|contents| {
            let head = appender.length() as usize;
            appender.append(0, contents).unwrap();
            head
        });
        let all = fs::read(path_of(&profile)).unwrap();
        let mut unpacker = Unpacker::new().unwrap();
        for (at, bit) in (0..all.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut bytes = all.clone();
            bytes[at] ^= 1 << bit;
            fs::write(path_of(&profile), &bytes).unwrap();
            let Ok(Some(trace)) = TraceFile::of(&profile) else {
                assert!(at < HEAD as usize, "{at}");
                continue;
            };
            let mut is_reported = trace.torn() > 0;
            assert!(is_reported || trace.places().len() == written.len(), "bit {bit} of {at}");
            for (place, expected) in trace.places().iter().zip(&written) {
                let mut read = Vec::new();
                match trace.read(place, &mut unpacker, &mut read) {
                    Ok(()) => assert_eq!(&read, expected, "bit {bit} of byte {at}"),
                    Err(_) => is_reported = true,
                }
            }
            let in_head = heads.iter().find(|&&head| (head..head + CHUNK as usize).contains(&at));
            if let Some(head) = in_head {
                assert_eq!(is_reported, !is_unchecked(at - head), "bit {bit} of byte {at}");
            }
        }
        fs::write(path_of(&profile), b"HEAPTIDE").unwrap();
        let error = TraceFile::of(&profile).unwrap_err().to_string();
        assert!(error.contains("not a trace, expected"), "{error}");
        assert!(Appender::of(&profile).is_err());
        let mut later = all.clone();
        later[8] = 9;
        fs::write(path_of(&profile), later).unwrap();
        let error = TraceFile::of(&profile).unwrap_err().to_string();
        assert!(error.contains("version 9 (this build reads up to 2)"), "{error}");
    }
}
