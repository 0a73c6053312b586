//! The extents of events in a profile: finds them, reads them, and moves them to the trace file,
//! while the process writes or after its end.
//!
//! A full extent is unused until its `state` marks it as moved; then its lane writes to it again.
//! So a mover copies first and marks last: if it is killed in between, there are two copies with
//! the same number, and never none.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heaptide_format as format;
use heaptide_format::{
    EXTENT_HEADER, EXTENT_MAGIC, ExtentHeader, FileHeader, Kind, PAGE, TRACE_EXTENT_MAX,
    TRACE_FULL, TRACE_MOVED, TRACE_ON, TraceStart,
};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use zerocopy::FromBytes;

use super::cut::KeepTrace;
use super::file::Appender;
use crate::error::Error;
use crate::files::input;

/// Time after its start by which a process has noted whether it has a trace.
const YOUNG: Duration = Duration::from_secs(1);

/// The place of an extent of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Offset of its header in the profile.
    pub at: u64,
    /// Its length in bytes, including the header.
    pub length: u64,
}

/// The beginning of an extent.
struct Head {
    /// The lane that writes it, which can change after it was moved.
    lane: u32,
    start: TraceStart,
}

/// A profile whose events are moved out.
pub struct Events {
    profile: PathBuf,
    file: File,
    extents: Vec<Extent>,
    /// Offset of the next extent.
    walked: u64,
    /// Buffer for the contents of an extent.
    contents: Vec<u8>,
    /// Opened at the first append.
    out: Option<Appender>,
}

/// The state of a profile for moving events.
pub enum Opened {
    /// Its header has not been written yet.
    NotYet,
    /// It is packed, or its process has no trace.
    Untraced,
    /// It has extents of events, or will have some.
    Traced(Box<Events>),
}

/// An extent to be moved.
#[derive(Clone, Copy)]
struct Ready {
    number: u32,
    lane: u32,
    extent: Extent,
}

impl Events {
    /// Opens a profile for moving its events.
    ///
    /// Errors: it cannot be opened or read.
    ///
    /// ```
    /// use heaptide_analysis::trace::live::Events;
    /// assert!(Events::open("missing.heaptide/12-0.profile".as_ref()).is_err());
    /// ```
    pub fn open(profile: &Path) -> io::Result<Opened> {
        let file = input::open_to_change(profile)?;
        let (profile, walked) = (profile.to_owned(), PAGE);
        let (extents, contents, out) = (Vec::new(), Vec::new(), None);
        let events = Events { profile, file, extents, walked, contents, out };
        let header = events.header()?;
        Ok(match (header.magic, header.version) {
            (magic, _) if magic == [0; format::MAGIC.len()] => Opened::NotYet,
            (format::MAGIC, ..=format::VERSION) if header.trace & TRACE_ON != 0 => {
                Opened::Traced(Box::new(events))
            }
            (format::MAGIC, _) if is_young(&header) => Opened::NotYet,
            _ => Opened::Untraced,
        })
    }

    /// Returns the profile.
    pub fn profile(&self) -> &Path {
        &self.profile
    }

    /// Returns the profile's header; zeros if it has not been written yet.
    ///
    /// Errors: the header cannot be read.
    pub fn header(&self) -> io::Result<FileHeader> {
        let mut bytes = [0; size_of::<FileHeader>()];
        match self.file.read_exact_at(&mut bytes, 0) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => bytes.fill(0),
            read => read?,
        }
        Ok(zerocopy::transmute!(bytes))
    }

    /// Returns the length of the trace file in bytes.
    pub fn moved_bytes(&self) -> u64 {
        self.out.as_ref().map_or(0, Appender::length)
    }

    /// Finds extents that were added since.
    ///
    /// Errors: the profile cannot be read.
    fn look_for_more(&mut self, file_end: u64) -> io::Result<()> {
        let end = file_end.min(self.file.metadata()?.len());
        while self.walked.checked_add(PAGE).is_some_and(|next| next <= end) {
            let mut bytes = [0; EXTENT_HEADER as usize];
            self.file.read_exact_at(&mut bytes, self.walked)?;
            let header = ExtentHeader::read_from_bytes(&bytes).ok();
            let whole = |e: &ExtentHeader| {
                let ends = self.walked.checked_add(e.length).is_some_and(|e| e <= end);
                e.magic == EXTENT_MAGIC && e.length > 0 && e.length.is_multiple_of(PAGE) && ends
            };
            let Some(header) = header.filter(whole) else {
                self.walked += PAGE;
                continue;
            };
            if header.kind == Kind::Events as u16 && header.length <= TRACE_EXTENT_MAX {
                self.extents.push(Extent { at: self.walked, length: header.length });
            }
            self.walked += header.length;
        }
        Ok(())
    }

    /// Moves full extents to the trace file and marks them as moved. `file_end` is that of the
    /// header read before. Returns their number. The file may grow by `room` bytes: the first
    /// extent that might not fit is kept, and so are those after it.
    ///
    /// Errors: the profile cannot be read or marked, or the file cannot be written. Extents that
    /// were not marked are still in the profile.
    pub fn move_full(&mut self, file_end: u64, room: u64) -> Result<usize, Error> {
        let until = self.moved_bytes().saturating_add(room);
        let mut moved = 0;
        for ready in self.ready(file_end, |state| state == TRACE_FULL)? {
            if self.moved_bytes().saturating_add(TRACE_EXTENT_MAX) > until {
                break;
            }
            self.move_one(ready)?;
            moved += 1;
        }
        Ok(moved)
    }

    /// Returns whether extents are full. `file_end` is that of the header read before.
    ///
    /// Errors: the profile cannot be read.
    pub fn has_full(&mut self, file_end: u64) -> Result<bool, Error> {
        Ok(!self.ready(file_end, |state| state == TRACE_FULL)?.is_empty())
    }

    /// Returns the extents whose state satisfies `is`, in the order of their numbers.
    fn ready(&mut self, file_end: u64, is: impl Fn(u32) -> bool) -> Result<Vec<Ready>, Error> {
        self.look_for_more(file_end).map_err(|e| self.error("read", e))?;
        let mut ready = Vec::new();
        for &extent in &self.extents {
            let Head { lane, start } =
                extent.head(&self.file).map_err(|e| self.error("read", e))?;
            if is(start.state) {
                ready.push(Ready { number: start.number, lane, extent });
            }
        }
        ready.sort_unstable_by_key(|ready| ready.number);
        Ok(ready)
    }

    fn move_one(&mut self, Ready { lane, extent, .. }: Ready) -> Result<(), Error> {
        extent.read(&self.file, &mut self.contents).map_err(|e| self.error("read", e))?;
        // An extent that was never begun has no contents.
        if self.contents.len() >= size_of::<TraceStart>() {
            if self.out.is_none() {
                self.out = Some(Appender::of(&self.profile)?);
            }
            self.out.iter_mut().try_for_each(|out| out.append(lane, &self.contents))?;
        }
        extent.mark_moved(&self.file).map_err(|e| self.error("write", e))
    }

    /// Drops the oldest part of the trace file that is beyond the limits at this time, in
    /// nanoseconds of the monotonic clock.
    ///
    /// Errors: the file cannot be read or written; then it is unchanged.
    pub fn drop_oldest(&mut self, keep: &KeepTrace, monotonic_ns: u64) -> Result<bool, Error> {
        let header = self.header().map_err(|e| self.error("read", e))?;
        let now_ns = monotonic_ns.saturating_sub(header.start_monotonic_ns);
        let out = self.out.as_mut();
        out.map_or(Ok(false), |out| out.drop_oldest(&self.profile, keep, now_ns))
    }

    /// Writes the number of trace bytes outside the profile to its header.
    ///
    /// Errors: the header cannot be written.
    pub fn tell_elsewhere(&self, bytes: u64) -> io::Result<()> {
        let at = offset_of!(FileHeader, trace_elsewhere) as u64;
        self.file.write_all_at(&bytes.to_le_bytes(), at)
    }

    /// Moves all remaining extents of an ended process, and frees the disk space of each extent
    /// before moving the next one: so a full disk has room for the packed chunks.
    ///
    /// Errors: the same as those of [`Events::move_full`].
    pub fn finish(&mut self) -> Result<(), Error> {
        let file_end = self.header().map_err(|e| self.error("read", e))?.file_end;
        for moved in self.ready(file_end, |state| state == TRACE_MOVED)? {
            self.release(moved)?;
        }
        for left in self.ready(file_end, |state| state != TRACE_MOVED)? {
            self.move_one(left)?;
            self.release(left)?;
        }
        Ok(())
    }

    fn release(&self, Ready { extent, .. }: Ready) -> Result<(), Error> {
        extent.release(&self.file).map_err(|e| self.error("write", e))
    }

    /// Finishes without room for the remaining extents: the trace ends before them.
    ///
    /// Errors: the profile cannot be read or written.
    pub fn finish_without_room(&mut self) -> Result<(), Error> {
        let header = self.header().map_err(|e| self.error("read", e))?;
        self.look_for_more(header.file_end).map_err(|e| self.error("read", e))?;
        self.cut(header.trace_stopped_ns).map_err(|e| self.error("write", e))?;
        self.finish()
    }

    /// Marks the remaining extents as moved and ends the trace at the beginning of the first of
    /// them, or at `stopped_ns` if that is earlier and not 0.
    fn cut(&mut self, stopped_ns: u64) -> io::Result<()> {
        let mut left = Vec::new();
        for extent in &self.extents {
            let start = extent.head(&self.file)?.start;
            if start.state != TRACE_MOVED && start.number > 0 {
                left.push((start.time_ns.max(1), extent));
            }
        }
        let before = Some(stopped_ns).filter(|&ns| ns > 0);
        let Some(end_ns) = left.iter().map(|&(ns, _)| ns).chain(before).min() else {
            return Ok(());
        };
        let at = offset_of!(FileHeader, trace_stopped_ns) as u64;
        self.file.write_all_at(&end_ns.to_le_bytes(), at)?;
        left.iter().try_for_each(|(_, extent)| extent.mark_moved(&self.file))
    }

    fn error(&self, doing: &'static str, source: io::Error) -> Error {
        Error::Io { path: self.profile.clone(), doing, source }
    }
}

/// Returns whether the process began so recently that it may not have noted yet whether it has a
/// trace.
fn is_young(header: &FileHeader) -> bool {
    let began = UNIX_EPOCH + Duration::from_nanos(header.start_realtime_ns);
    SystemTime::now().duration_since(began).is_ok_and(|age| age < YOUNG)
}

impl Extent {
    /// Reads its current beginning.
    fn head(&self, file: &File) -> io::Result<Head> {
        let mut bytes = [0; EXTENT_HEADER as usize + size_of::<TraceStart>()];
        file.read_exact_at(&mut bytes, self.at)?;
        let (header, start): (ExtentHeader, TraceStart) = zerocopy::transmute!(bytes);
        Ok(Head { lane: header.lane, start })
    }

    /// Reads the committed contents: a [`TraceStart`] and records. They are empty if the length is
    /// damaged.
    fn read(&self, file: &File, contents: &mut Vec<u8>) -> io::Result<()> {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, self.at + offset_of!(ExtentHeader, committed) as u64)?;
        let committed = u64::from_le_bytes(bytes);
        let possible = committed <= self.length - EXTENT_HEADER;
        contents.resize(if possible { committed as usize } else { 0 }, 0);
        file.read_exact_at(contents, self.at + EXTENT_HEADER)
    }

    /// Marks the extent as moved; then its lane can write to it again.
    fn mark_moved(&self, file: &File) -> io::Result<()> {
        let at = self.at + EXTENT_HEADER + offset_of!(TraceStart, state) as u64;
        file.write_all_at(&TRACE_MOVED.to_le_bytes(), at)
    }

    /// Frees its disk space except for the first page, where only the headers stay. If the file
    /// system does not support that, writes zeros, which compress to nothing.
    fn release(&self, file: &File) -> io::Result<()> {
        let heads = EXTENT_HEADER + size_of::<TraceStart>() as u64;
        let zeros = |from, to| file.write_all_at(&vec![0; (to - from) as usize], self.at + from);
        zeros(heads, PAGE)?;
        if self.length == PAGE {
            return Ok(());
        }
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let (from, length) = (self.at + PAGE, self.length - PAGE);
        match fallocate(file.as_fd(), hole, from as i64, length as i64) {
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => zeros(PAGE, self.length),
            done => Ok(done?),
        }
    }
}

/// Moves the remaining events in the profile of an ended process to its trace file, and frees their
/// disk space. A profile that is packed, or has no trace, is not changed.
///
/// Errors: a file cannot be read or written; then no event is lost.
///
/// ```
/// assert!(heaptide_analysis::trace::live::finish("missing/12-0.profile".as_ref()).is_err());
/// ```
pub fn finish(profile: &Path) -> Result<(), Error> {
    let opened = Events::open(profile).map_err(|source| {
        let path = profile.to_owned();
        Error::Io { path, doing: "open", source }
    })?;
    match opened {
        Opened::Traced(mut events) => events.finish(),
        Opened::NotYet | Opened::Untraced => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use heaptide_fixtures::{ProfileBuilder, Scratch};
    use heaptide_format::TRACE_WRITING;
    use zerocopy::IntoBytes;

    use super::super::file::{TraceFile, Unpacker};
    use super::*;

    /// Pages in each extent.
    const PAGES: u64 = 8;

    /// Returns a profile with an extent of strings and extents of events with these states and
    /// numbers.
    fn built(events: &[(u32, u32)]) -> ProfileBuilder {
        let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
        p.header.trace = TRACE_ON;
        p.extent_pages = PAGES;
        p.record(Kind::Strings, 0, &[0xaa; 100]);
        for (&(state, number), lane) in events.iter().zip(0..) {
            p.events(lane, start(state, number), &records(number));
        }
        p
    }

    fn profile(name: &str, events: &[(u32, u32)]) -> (Scratch, PathBuf) {
        let scratch = Scratch::new(&format!("live-{name}"));
        let profile = scratch.write("12-0.profile", &built(events).finish());
        (scratch, profile)
    }

    fn start(state: u32, number: u32) -> TraceStart {
        let time_ns = u64::from(number) * 1000;
        TraceStart { state, number, time_ns, ..TraceStart::default() }
    }

    fn records(number: u32) -> Vec<u8> {
        vec![number as u8; 20_000]
    }

    fn traced(profile: &Path) -> Box<Events> {
        match Events::open(profile).unwrap() {
            Opened::Traced(events) => events,
            _ => panic!("it has a trace"),
        }
    }

    /// Returns lanes and numbers in the trace file.
    fn moved(profile: &Path) -> Vec<(u32, u32)> {
        let Some(trace) = TraceFile::of(profile).unwrap() else {
            return Vec::new();
        };
        let mut unpacker = Unpacker::new().unwrap();
        let mut bytes = Vec::new();
        for place in trace.places() {
            trace.read(place, &mut unpacker, &mut bytes).unwrap();
            assert_eq!(bytes[64..], records(place.chunk.number));
        }
        trace.places().iter().map(|p| (p.chunk.lane, p.chunk.number)).collect()
    }

    fn states(profile: &Path) -> Vec<u32> {
        let mut events = traced(profile);
        events.look_for_more(u64::MAX).unwrap();
        let file = File::open(profile).unwrap();
        events.extents.iter().map(|e| e.head(&file).unwrap().start.state).collect()
    }

    #[test]
    fn full_extents_are_moved_and_the_rest_at_the_end() {
        let (_scratch, profile) =
            profile("moved", &[(TRACE_FULL, 1), (TRACE_WRITING, 3), (TRACE_MOVED, 2)]);
        let mut events = traced(&profile);
        let end = events.header().unwrap().file_end;
        assert_eq!(events.move_full(end, u64::MAX).unwrap(), 1);
        assert_eq!(events.move_full(end, u64::MAX).unwrap(), 0);
        assert_eq!(moved(&profile), [(0, 1)]);
        assert_eq!(states(&profile), [TRACE_MOVED, TRACE_WRITING, TRACE_MOVED]);
        // The mover was killed after appending and before marking.
        let at = PAGE * (1 + PAGES) + EXTENT_HEADER;
        let file = File::options().write(true).open(&profile).unwrap();
        let contents = [start(TRACE_FULL, 1).as_bytes(), &records(1)].concat();
        file.write_all_at(&contents, at).unwrap();
        let before = fs::metadata(&profile).unwrap();
        finish(&profile).unwrap();
        assert_eq!(moved(&profile), [(0, 1), (1, 3)]);
        assert_eq!(states(&profile), [TRACE_MOVED; 3]);
        let after = fs::metadata(&profile).unwrap();
        assert_eq!(after.len(), before.len());
        assert!(after.blocks() < before.blocks(), "{} of {}", after.blocks(), before.blocks());
        let strings = (PAGE + EXTENT_HEADER) as usize;
        assert_eq!(fs::read(&profile).unwrap()[strings..strings + 100], [0xaa; 100]);
    }

    #[test]
    fn extents_that_come_later_are_found() {
        let (_scratch, profile) = profile("later", &[(TRACE_FULL, 1)]);
        let mut events = traced(&profile);
        let end = events.header().unwrap().file_end;
        assert_eq!(events.move_full(end, u64::MAX).unwrap(), 1);
        let mut bytes = fs::read(&profile).unwrap();
        let mut later = built(&[(TRACE_FULL, 1)]);
        later.events(7, start(TRACE_FULL, 9), &records(9));
        bytes.extend(&later.finish()[bytes.len()..]);
        fs::write(&profile, &bytes).unwrap();
        assert_eq!(events.move_full(end, u64::MAX).unwrap(), 0);
        assert_eq!(events.move_full(end + PAGES * PAGE, u64::MAX).unwrap(), 1);
        assert_eq!(moved(&profile), [(0, 1), (7, 9)]);
        assert_eq!(
            events.moved_bytes(),
            fs::metadata(profile.with_extension("trace")).unwrap().len()
        );
    }

    #[test]
    fn without_room_the_trace_ends_where_the_first_that_is_left_begins() {
        let states = [(TRACE_MOVED, 2), (TRACE_FULL, 5), (TRACE_WRITING, 4)];
        let (_scratch, profile) = profile("room", &states);
        let mut events = traced(&profile);
        events.finish_without_room().unwrap();
        assert_eq!(events.header().unwrap().trace_stopped_ns, 4000);
        assert_eq!(moved(&profile), []);
        events.tell_elsewhere(77).unwrap();
        assert_eq!(events.header().unwrap().trace_elsewhere, 77);
    }

    #[test]
    fn damaged_lengths_are_no_trouble() {
        let (_scratch, profile) =
            profile("damaged", &[(TRACE_FULL, 1), (TRACE_FULL, 2), (TRACE_FULL, 3)]);
        let file = File::options().write(true).open(&profile).unwrap();
        let extent = |n: u64| PAGE * (1 + n * PAGES);
        let committed = offset_of!(ExtentHeader, committed) as u64;
        file.write_all_at(&[0xff; 8], extent(1) + committed).unwrap();
        file.write_all_at(&[3, 0, 0, 0, 0, 0, 0, 0], extent(2) + committed).unwrap();
        let length = offset_of!(ExtentHeader, length) as u64;
        file.write_all_at(&[0xff; 8], extent(3) + length).unwrap();
        finish(&profile).unwrap();
        assert_eq!(moved(&profile), []);
    }
}
