//! Checks the extents of a profile, and iterates over their records. Extents of events are only
//! listed, because they can be larger than memory.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;

use heaptide_format as format;
use heaptide_format::{ExtentHeader, FileHeader, Kind, TraceStart};
use zerocopy::FromBytes;

use super::header::FILE_LIMIT;
use crate::error::Error;
use crate::model::EventExtent;

/// Maximum end of a profile: the address range that the recorder reserves.
const END_LIMIT: u64 = 64 << 30;
/// Bytes of the header of an extent.
const EXTENT_HEADER: usize = format::EXTENT_HEADER as usize;
const EVENTS_HEAD: usize = EXTENT_HEADER + size_of::<TraceStart>();
/// An extent of events can be reused by another lane while its header is read. Its lane and number
/// are consistent once two reads agree; this is the maximum number of reads.
const LOOKS: usize = 8;

/// The bytes of a profile that are read: all, or all except extents of events.
#[derive(Clone, Copy)]
pub(crate) struct Contents<'a> {
    pub(crate) bytes: &'a [u8],
    cuts: &'a [Cut],
}

/// An extent of events that was not read.
pub(crate) struct Cut {
    offset: u64,
    /// Its length within the file, in bytes.
    length: u64,
    header: ExtentHeader,
    start: TraceStart,
}

impl Cut {
    fn event_extent(&self) -> EventExtent {
        let ExtentHeader { committed, lane, .. } = self.header;
        EventExtent { offset: self.offset, committed, lane, start: self.start }
    }
}

impl<'a> Contents<'a> {
    /// Returns the contents of a whole file.
    pub(crate) fn whole(bytes: &'a [u8]) -> Contents<'a> {
        Contents { bytes, cuts: &[] }
    }

    /// Reads the rest of a file after its first page, without the extents of events.
    ///
    /// Errors: the file cannot be read, or is too large even without them.
    pub(crate) fn without_events(
        file: &File,
        header: &FileHeader,
        size: u64,
        path: &Path,
        kept: &'a mut (Vec<u8>, Vec<Cut>),
    ) -> Result<Contents<'a>, Error> {
        let too_large = |size, limit| Error::TooLarge { path: path.to_owned(), size, limit };
        let end = header.file_end.min(size);
        if end > END_LIMIT {
            return Err(too_large(end, END_LIMIT));
        }
        let (bytes, cuts) = kept;
        let mut at = bytes.len() as u64;
        while at < end {
            let (length, cut) = match next(file, at, end, header.file_end) {
                Ok(found) => found,
                Err(source) => {
                    return Err(Error::Io { path: path.to_owned(), doing: "read", source });
                }
            };
            match cut {
                Some(cut) => cuts.push(cut),
                None => {
                    let before = bytes.len();
                    let all = before as u64 + length;
                    if all > FILE_LIMIT {
                        return Err(too_large(all, FILE_LIMIT));
                    }
                    bytes.resize(all as usize, 0);
                    let read = file.read_exact_at(&mut bytes[before..], at);
                    read.map_err(|source| Error::Io {
                        path: path.to_owned(),
                        doing: "read",
                        source,
                    })?;
                }
            }
            at += length;
        }
        Ok(Contents { bytes, cuts })
    }
}

/// Returns the length of the extent or gap at `at`, and its headers if it is an extent of events.
fn next(file: &File, at: u64, end: u64, file_end: u64) -> io::Result<(u64, Option<Cut>)> {
    let mut head = [0; EVENTS_HEAD];
    let room = (end - at).min(EVENTS_HEAD as u64) as usize;
    file.read_exact_at(&mut head[..room], at)?;
    let header = ExtentHeader::read_from_prefix(&head).ok().map(|(header, _)| header);
    let possible = |h: &ExtentHeader| {
        let whole = h.length > 0 && h.length.is_multiple_of(format::PAGE);
        h.magic == format::EXTENT_MAGIC && whole && h.length <= file_end - at
    };
    let Some(header) = header.filter(possible) else {
        return Ok((format::PAGE.min(end - at), None));
    };
    if header.kind != Kind::Events as u16 {
        return Ok((header.length.min(end - at), None));
    }
    let length = header.length.min(end - at);
    let mut heads = event_heads(&head);
    for _ in 0..LOOKS {
        file.read_exact_at(&mut head[..room], at)?;
        let before = std::mem::replace(&mut heads, event_heads(&head));
        let contents = |(extent, start): &(ExtentHeader, TraceStart)| (extent.lane, start.number);
        if before.as_ref().map(contents) == heads.as_ref().map(contents) {
            break;
        }
    }
    Ok((length, heads.map(|(header, start)| Cut { offset: at, length, header, start })))
}

/// Returns the headers at the beginning of an extent of events.
fn event_heads(head: &[u8; EVENTS_HEAD]) -> Option<(ExtentHeader, TraceStart)> {
    let (extent, start) = ExtentHeader::read_from_prefix(head).ok()?;
    Some((extent, TraceStart::read_from_bytes(start).ok()?))
}

/// Returns the current extents of events of a profile that a process writes to.
///
/// Errors: the profile cannot be read.
pub(crate) fn events_now(profile: &File) -> io::Result<Vec<EventExtent>> {
    let mut word = [0; 8];
    profile.read_exact_at(&mut word, offset_of!(FileHeader, file_end) as u64)?;
    let file_end = u64::from_le_bytes(word);
    let end = file_end.min(profile.metadata()?.len());
    let (mut at, mut events) = (format::PAGE, Vec::new());
    while at < end {
        let (length, cut) = next(profile, at, end, file_end)?;
        events.extend(cut.as_ref().map(Cut::event_extent));
        at += length;
    }
    Ok(events)
}

/// The committed part of an extent.
pub(crate) struct Extent {
    kind: Kind,
    pub(crate) lane: u32,
    range: Range,
}

/// A range of bytes within the file.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    /// Its offset in the file.
    pub(crate) offset: u64,
    /// Its begin in the bytes that were read.
    pub(crate) start: usize,
    /// Its end in the bytes that were read.
    pub(crate) end: usize,
}

/// The extents of a file, after checking.
pub(crate) struct Walk<'a> {
    bytes: &'a [u8],
    extents: Vec<Extent>,
    pub(crate) events: Vec<EventExtent>,
    pub(crate) notes: Vec<String>,
    /// Whether the file is shorter than its header states.
    pub(crate) is_cut: bool,
}

impl<'a> Walk<'a> {
    /// Checks the extents; an error describes the damage.
    pub(crate) fn over(contents: Contents<'a>, header: &FileHeader) -> Result<Walk<'a>, String> {
        let in_use = usize::try_from(header.file_end).unwrap_or(usize::MAX);
        let bytes = &contents.bytes[..contents.bytes.len().min(in_use)];
        let (extents, events, notes) = (Vec::new(), Vec::new(), Vec::new());
        let mut walk = Walk { bytes, extents, events, notes, is_cut: false };
        // Bytes of the extents of events before `at`, and in total.
        let (mut gone, mut skipped) = (0, 0);
        let cut = contents.cuts.iter().fold(0, |sum: u64, cut| sum + cut.length);
        let have = bytes.len() as u64 + cut;
        if have < header.file_end {
            let end = header.file_end;
            walk.is_cut = true;
            walk.notes.push(format!("the file is truncated: {have} bytes of {end}"));
        }
        let mut cuts = contents.cuts.iter().peekable();
        let mut at = format::PAGE;
        loop {
            if let Some(cut) = cuts.next_if(|cut| cut.offset == at) {
                at = walk.admit(at, None, &cut.header, Some(cut.start), header.file_end)?;
                gone += cut.header.length;
                continue;
            }
            let start = (at - gone) as usize;
            let Some(rest) = bytes.get(start..).and_then(|b| b.get(..EXTENT_HEADER)) else {
                break;
            };
            let extent = ExtentHeader::read_from_bytes(rest).ok();
            let Some(extent) = extent.filter(|e| e.magic == format::EXTENT_MAGIC) else {
                skipped += format::PAGE;
                at += format::PAGE;
                continue;
            };
            let after = TraceStart::read_from_prefix(&bytes[start + EXTENT_HEADER..]).ok();
            let start_of_trace = after.map(|(start, _)| start);
            at = walk.admit(at, Some(start), &extent, start_of_trace, header.file_end)?;
        }
        if skipped > 0 {
            walk.notes.push(format!("{skipped} bytes were reserved but not in use yet"));
        }
        Ok(walk)
    }

    /// Checks the extent at `at`, whose bytes begin at `place` if they were read, and returns the
    /// offset of the next one.
    fn admit(
        &mut self,
        at: u64,
        place: Option<usize>,
        extent: &ExtentHeader,
        start: Option<TraceStart>,
        file_end: u64,
    ) -> Result<u64, String> {
        let ExtentHeader { length, committed, lane, .. } = *extent;
        if length == 0 || length % format::PAGE != 0 {
            return Err(format!(
                "extent at byte {at} has length {length}, expected a multiple of 4096"
            ));
        }
        let end = at.checked_add(length).filter(|&end| end <= file_end).ok_or_else(|| {
            format!(
                "extent at byte {at} has length {length}, expected an end at or before byte {file_end}"
            )
        })?;
        let room = length - format::EXTENT_HEADER;
        if committed > room {
            return Err(format!(
                "extent at byte {at} has {committed} bytes in use, expected at most {room}"
            ));
        }
        match (Kind::from_number(extent.kind), place) {
            (Some(Kind::Events), _) => {
                let event_extent = |start| EventExtent { offset: at, committed, lane, start };
                self.events.extend(start.map(event_extent));
            }
            (Some(kind), Some(place)) => {
                let start = place + EXTENT_HEADER;
                let end = (start as u64 + committed).min(self.bytes.len() as u64) as usize;
                let range = Range { offset: at + format::EXTENT_HEADER, start, end };
                self.extents.push(Extent { kind, lane, range });
            }
            _ => {}
        }
        Ok(end)
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Extent> {
        self.extents.iter().filter(move |extent| extent.kind == kind)
    }

    /// Returns the number of bytes that were read.
    pub(crate) fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the committed bytes of each extent of a kind.
    pub(crate) fn committed(&self, kind: Kind) -> impl Iterator<Item = &'a [u8]> {
        self.of(kind).map(|extent| &self.bytes[extent.range.start..extent.range.end])
    }

    pub(crate) fn ranges(&self, kind: Kind) -> Vec<Range> {
        self.of(kind).map(|extent| extent.range).collect()
    }

    /// Returns the complete records of a kind: extent, record, offset in the file. A record
    /// truncated at the end is skipped.
    pub(crate) fn records<T: FromBytes>(
        &self,
        kind: Kind,
    ) -> impl Iterator<Item = (&Extent, T, u64)> {
        self.of(kind).flat_map(move |extent| {
            let Range { offset, start, end } = extent.range;
            let records = self.bytes[start..end].chunks_exact(size_of::<T>());
            records.enumerate().filter_map(move |(i, record)| {
                let record = T::read_from_bytes(record).ok()?;
                Some((extent, record, offset + (i * size_of::<T>()) as u64))
            })
        })
    }
}
