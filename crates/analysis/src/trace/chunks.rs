//! The contents of extents of events, each once, from the profile or, if they were moved, from the
//! trace file.
//!
//! The profile can be written to meanwhile: contents that were moved or overwritten are read from
//! the trace file, which has grown then.

use std::fs::File;
use std::io::{self, Read};
use std::iter;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use heaptide_format::{
    EXTENT_HEADER, ExtentHeader, TRACE_EXTENT_MAX, TRACE_MOVED, TRACE_NOBODY, TRACE_WRITING,
    TraceChunk, TraceCut, TraceStart,
};
use heaptide_trace::Decoder;
use rustc_hash::FxHashMap;
use zerocopy::FromBytes;

use super::file::{Place, TraceFile, Unpacker};
use crate::error::Error;
use crate::files::input;
use crate::model::{EventExtent, Trace};
use crate::profile::extents::events_now;
use crate::profile::pack;

/// Bytes of an extent before its records.
const HEAD: usize = EXTENT_HEADER as usize + size_of::<TraceStart>();
/// Maximum length of the contents of an extent.
const CONTENTS_MAX: u64 = TRACE_EXTENT_MAX - EXTENT_HEADER;

/// A reference to the contents of an extent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) lane: u32,
    pub(super) number: u32,
    /// Lower bound of the time of its first record.
    pub(super) first_ticks: u64,
    place: Where,
}

/// The contents of each lane, by its index.
pub(super) type ByLane = Vec<(u32, Vec<Chunk>)>;

#[derive(Clone, Copy, Debug)]
enum Where {
    /// In the trace file.
    Moved(Place),
    /// In the profile, at this offset.
    Profile(u64),
}

/// The files of a trace.
pub(super) struct Files {
    path: PathBuf,
    profile: Profile,
    moved: Option<TraceFile>,
    unpacker: Unpacker,
}

enum Profile {
    Plain(File),
    /// A packed profile with contents, unpacked.
    Unpacked(Vec<u8>),
    /// A profile without contents, not opened.
    Nothing,
}

impl Files {
    /// Opens the files, and returns the contents of each lane in order.
    ///
    /// For a running process these are the current contents: events that are in none of them
    /// happened after the profile was read.
    ///
    /// Errors: the profile cannot be read, or the trace file is invalid.
    pub(super) fn open(trace: &Trace) -> Result<(Files, ByLane), Error> {
        let io = |source| Error::Io { path: trace.file.clone(), doing: "read", source };
        let is_needed = trace.running || trace.extents.iter().any(is_here);
        let profile = if is_needed { Profile::open(trace).map_err(io)?? } else { Profile::Nothing };
        let now = match &profile {
            Profile::Plain(file) if trace.running => Some(events_now(file).map_err(io)?),
            _ => None,
        };
        // Opened after the extents were read, so that it has the contents moved before.
        let moved = TraceFile::of(&trace.file)?;
        let here = now.as_ref().unwrap_or(&trace.extents).iter().filter(|extent| is_here(extent));
        let mut by_number: FxHashMap<u32, Chunk> =
            here.map(|extent| (extent.start.number, Chunk::in_profile(extent))).collect();
        for &place in moved.iter().flat_map(TraceFile::places) {
            let TraceChunk { lane, number, first_ticks, .. } = place.chunk;
            let chunk = Chunk { lane, number, first_ticks, place: Where::Moved(place) };
            by_number.insert(number, chunk);
        }
        // Unknown lanes are newer than the tables, and so are their events.
        let is_known = |lane| lane == TRACE_NOBODY || trace.lane(lane).is_some();
        let mut chunks: Vec<Chunk> =
            by_number.into_values().filter(|chunk| is_known(chunk.lane)).collect();
        chunks.sort_unstable_by_key(|chunk| (chunk.lane, chunk.number));
        let lanes = chunks.chunk_by(|a, b| a.lane == b.lane);
        let lanes = lanes.map(|chunks| (chunks[0].lane, chunks.to_vec())).collect();
        let unpacker = Unpacker::new().map_err(io)?;
        Ok((Files { path: trace.file.clone(), profile, moved, unpacker }, lanes))
    }

    /// Returns totals of the dropped part of the trace; zeros if nothing was dropped.
    pub(super) fn cut(&self) -> TraceCut {
        self.moved.as_ref().map(TraceFile::cut).unwrap_or_default()
    }

    /// Returns the time of the last event that the extents had when the profile was read, in ticks.
    pub(super) fn last_ticks(&mut self, extents: &[EventExtent]) -> u64 {
        let (mut bytes, mut last) = (Vec::new(), 0);
        for extent in extents {
            let TraceStart { ticks, last_ticks, state, .. } = extent.start;
            last = last.max(ticks).max(last_ticks);
            let is_noted = state != TRACE_WRITING && last_ticks != 0;
            let chunk = Chunk::in_profile(extent);
            if !is_noted && is_here(extent) && self.read(&chunk, &mut bytes).is_ok() {
                last = last.max(last_ticks_in(&bytes, extent.committed));
            }
        }
        last
    }

    /// Replaces `contents` by the contents of a chunk; an error is the reason why they are lost.
    pub(super) fn read(&mut self, chunk: &Chunk, contents: &mut Vec<u8>) -> Result<(), String> {
        contents.clear();
        match chunk.place {
            Where::Moved(place) => self.read_moved(&place, contents),
            Where::Profile(offset) => {
                let here = self.profile.read(offset, chunk.number, contents);
                if here.map_err(|e| e.to_string())? {
                    return Ok(());
                }
                contents.clear();
                let moved = self.moved_since(chunk.number).map_err(|e| e.to_string())?;
                let place = moved.ok_or("it was overwritten")?;
                self.read_moved(&place, contents)
            }
        }
    }

    fn read_moved(&mut self, place: &Place, contents: &mut Vec<u8>) -> Result<(), String> {
        let moved = self.moved.as_ref().ok_or("the file was removed")?;
        moved.read(place, &mut self.unpacker, contents).map_err(|e| e.to_string())
    }

    /// Returns the current place of contents that were in the profile.
    fn moved_since(&mut self, number: u32) -> io::Result<Option<Place>> {
        if self.moved.is_none() {
            self.moved = TraceFile::of(&self.path).map_err(io::Error::other)?;
        }
        let Some(moved) = &mut self.moved else {
            return Ok(None);
        };
        moved.look_for_more()?;
        Ok(moved.places().iter().rev().find(|place| place.chunk.number == number).copied())
    }
}

impl Chunk {
    fn in_profile(extent: &EventExtent) -> Chunk {
        let TraceStart { number, ticks, .. } = extent.start;
        let place = Where::Profile(extent.offset);
        Chunk { lane: extent.lane, number, first_ticks: ticks, place }
    }
}

/// Returns the ticks of the last record in the first `committed` bytes of contents.
fn last_ticks_in(contents: &[u8], committed: u64) -> u64 {
    let Ok((start, records)) = TraceStart::read_from_prefix(contents) else {
        return 0;
    };
    let length = (committed as usize).saturating_sub(size_of::<TraceStart>()).min(records.len());
    let mut decoder = Decoder::new(start.ticks, &records[..length]);
    let next = || decoder.next()?.ok();
    iter::from_fn(next).map(|(ticks, _)| ticks).fold(start.ticks, u64::max)
}

/// Returns whether an extent has contents that were not moved.
fn is_here(extent: &EventExtent) -> bool {
    extent.start.state != TRACE_MOVED && extent.committed >= size_of::<TraceStart>() as u64
}

impl Profile {
    fn open(trace: &Trace) -> io::Result<Result<Profile, Error>> {
        let file = input::open(&trace.file)?;
        let mut first = [0; 4];
        let have = file.read_at(&mut first, 0)?;
        if !pack::is_packed(&first[..have]) {
            return Ok(Ok(Profile::Plain(file)));
        }
        let size = file.metadata()?.len();
        let unpacked = pack::unpack(file.take(size), size, &trace.file);
        Ok(unpacked.map(|(bytes, _)| Profile::Unpacked(bytes)))
    }

    /// Reads the contents with this number; returns false if they were moved or overwritten.
    fn read(&self, offset: u64, number: u32, contents: &mut Vec<u8>) -> io::Result<bool> {
        let Some((header, start)) = self.head(offset)? else {
            return Ok(false);
        };
        let is_it = |start: &TraceStart| start.number == number && start.state != TRACE_MOVED;
        if !is_it(&start) || header.committed > CONTENTS_MAX {
            return Ok(false);
        }
        contents.resize(header.committed as usize, 0);
        let at = offset + EXTENT_HEADER;
        match self {
            Profile::Plain(file) => file.read_exact_at(contents, at)?,
            Profile::Unpacked(bytes) => {
                let there = bytes.get(at as usize..).unwrap_or_default();
                contents.clear();
                contents.extend_from_slice(&there[..there.len().min(header.committed as usize)]);
            }
            Profile::Nothing => return Ok(false),
        }
        Ok(self.head(offset)?.is_some_and(|(_, start)| is_it(&start)))
    }

    fn head(&self, offset: u64) -> io::Result<Option<(ExtentHeader, TraceStart)>> {
        let mut head = [0; HEAD];
        match self {
            Profile::Plain(file) => file.read_exact_at(&mut head, offset)?,
            Profile::Unpacked(bytes) => {
                let there = bytes.get(offset as usize..).and_then(|there| there.get(..HEAD));
                let Some(there) = there else {
                    return Ok(None);
                };
                head.copy_from_slice(there);
            }
            Profile::Nothing => return Ok(None),
        }
        let (header, start) = head.split_at(EXTENT_HEADER as usize);
        let header = ExtentHeader::read_from_bytes(header).ok();
        Ok(header.zip(TraceStart::read_from_bytes(start).ok()))
    }
}

/// Returns the current contents of an extent with a number in a profile; `None` if they were moved
/// or overwritten.
pub(crate) fn contents_at(profile: &File, offset: u64, number: u32) -> io::Result<Option<Vec<u8>>> {
    let mut contents = Vec::new();
    let there = Profile::Plain(profile.try_clone()?).read(offset, number, &mut contents)?;
    Ok(Some(contents).filter(|_| there))
}
