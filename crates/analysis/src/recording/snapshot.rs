//! Snapshots: copies of a profile at one time, `PID-IMAGE.NUMBER.snapshot` in its directory.
//!
//! A snapshot is taken without participation of its process, which can be stopped, idle or busy.
//! Records that a busy process adds during the copy are excluded, because the `committed` of each
//! extent is from before. Events are excluded, too: a snapshot has no trace.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::offset_of;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use heaptide_format as format;
use heaptide_format::{
    BASELINE_SUFFIX, ExtentHeader, FileHeader, HELD_SUFFIX, Kind, MarkKind, Request,
    SNAPSHOT_SUFFIX, TraceStart,
};
use rustc_hash::FxHashMap;
use zerocopy::{FromBytes, IntoBytes};

use crate::error::Error;
use crate::files::directory::list;
use crate::files::draft::{self, Draft};
use crate::files::file_names::{self, Image};
use crate::files::input;
use crate::profile::header::{FILE_LIMIT, header};
use crate::profile::{pack, reader};
use crate::{text, trace};

/// Maximum number of snapshots of a process image.
const NUMBER_MAX: u32 = 1_000_000;

/// How a user refers to a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reference {
    /// Its number, from 1.
    Number(u32),
    /// Its name.
    Name(String),
}

impl FromStr for Reference {
    type Err = String;

    /// Parses digits as a number, anything else as a name.
    ///
    /// ```
    /// use heaptide_analysis::recording::snapshot::Reference;
    /// assert_eq!("2".parse(), Ok(Reference::Number(2)));
    /// assert_eq!("loaded 2".parse(), Ok(Reference::Name("loaded 2".to_owned())));
    /// assert!("0".parse::<Reference>().is_err() && "".parse::<Reference>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Reference, String> {
        if text.bytes().any(|byte| !byte.is_ascii_digit()) {
            return Ok(Reference::Name(text.to_owned()));
        }
        let number = text.parse().ok().filter(|&number| number > 0);
        let expected = "expected the number of a snapshot, from 1, or its name";
        number.map(Reference::Number).ok_or_else(|| expected.to_owned())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Number(number) => number.fmt(f),
            Reference::Name(name) => write!(f, "\"{}\"", text::printable(name)),
        }
    }
}

/// What caused a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A request of a user or the program: it is always kept.
    Requested,
    /// An interval or a trigger. A ring of snapshots keeps the newest of them.
    Automatic,
}

impl Origin {
    /// Returns the value for the header of a snapshot.
    fn request(self) -> Request {
        match self {
            Origin::Requested => Request::Snapshot,
            Origin::Automatic => Request::AutomaticSnapshot,
        }
    }
}

/// An existing snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Number of the recording from which it was merged, from 1; 0 if it was recorded here.
    pub run: u32,
    /// The process id.
    pub pid: u32,
    /// The number of its image.
    pub image: u32,
    /// The snapshot's number, from 1.
    pub number: u32,
    /// Its name; empty if it has none.
    pub name: String,
    /// When it was taken, nanoseconds from the start of the recording; if unknown, the last known
    /// activity.
    pub time_ns: u64,
    /// What caused it.
    pub origin: Origin,
    /// Highest live bytes of the process until then; 0 if unknown.
    pub peak_bytes: u64,
    /// The file.
    pub file: PathBuf,
    /// Why its header cannot be read; `None` if it can.
    pub damaged: Option<String>,
}

/// Returns the snapshots in a recording's directory, sorted by process, image and number. Names and
/// times are those in the headers of the snapshots; a snapshot that the program took has its name
/// in a mark of the profile.
///
/// Errors: the directory cannot be read.
///
/// ```
/// assert!(heaptide_analysis::recording::snapshot::all("src".as_ref()).unwrap().is_empty());
/// ```
pub fn all(directory: &Path) -> Result<Vec<Snapshot>, Error> {
    let mut snapshots: Vec<Snapshot> = list(directory)?.into_iter().filter_map(read).collect();
    snapshots.sort_by_key(|s| (s.run, s.pid, s.image, s.number));
    Ok(snapshots)
}

/// Returns the readable snapshots in a recording's directory, with names, by profile and in order
/// of their numbers. If a snapshot has no name in its header, its profile is read for the name.
///
/// ```
/// use heaptide_analysis::recording::snapshot;
/// assert!(snapshot::by_profile("src".as_ref(), &["12-0.profile".into()]).is_empty());
/// ```
pub fn by_profile(directory: &Path, profiles: &[PathBuf]) -> FxHashMap<PathBuf, Vec<Snapshot>> {
    let mut all = copies(directory);
    let mut found = FxHashMap::default();
    for profile in profiles {
        let Some(copies) = all.remove(&file_names::image_name(profile)) else { continue };
        let mut own = named(profile, copies);
        own.retain(|snapshot| snapshot.damaged.is_none());
        own.sort_by_key(|snapshot| snapshot.number);
        if !own.is_empty() {
            found.insert(profile.clone(), own);
        }
    }
    found
}

/// Sets names and times of snapshots that the program took from their marks, given as kind, number,
/// name and time.
///
/// ```
/// use heaptide_analysis::model::MarkKind;
/// use heaptide_analysis::recording::snapshot::{Origin, Snapshot, name_by_marks};
/// let (name, file) = (String::new(), "12-0.1.snapshot".into());
/// let (run, pid, image, damaged) = (0, 12, 0, None);
/// let (number, time_ns, origin, peak_bytes) = (1, 0, Origin::Requested, 0);
/// let mut snapshots =
///     [Snapshot { run, pid, image, number, name, time_ns, origin, peak_bytes, file, damaged }];
/// name_by_marks(&mut snapshots, [(MarkKind::Snapshot, 1, "loaded", 7)].into_iter());
/// assert_eq!((snapshots[0].name.as_str(), snapshots[0].time_ns), ("loaded", 7));
/// ```
pub fn name_by_marks<'a>(
    snapshots: &mut [Snapshot],
    marks: impl Iterator<Item = (MarkKind, u32, &'a str, u64)> + Clone,
) {
    for snapshot in snapshots.iter_mut().filter(|s| s.name.is_empty()) {
        let is_its = |mark: &(MarkKind, u32, &str, u64)| {
            (mark.0, mark.1) == (MarkKind::Snapshot, snapshot.number)
        };
        if let Some((_, _, name, time_ns)) = marks.clone().find(is_its) {
            (snapshot.name, snapshot.time_ns) = (name.to_owned(), time_ns);
        }
    }
}

/// Reads the snapshot in a file, if its name has that form.
fn read(file: PathBuf) -> Option<Snapshot> {
    let (Image { run, pid, image }, number) = file_names::snapshot(&file)?;
    let header = reader::read_header(&file);
    if let Err(Error::Io { source, .. }) = &header
        && source.kind() == io::ErrorKind::NotFound
    {
        return None; // removed since the listing
    }
    let of = |header: &FileHeader| {
        let seen = || Noted {
            name: String::new(),
            time_ns: header.last_seen_ns,
            origin: Origin::Requested,
        };
        noted(header, number).unwrap_or_else(seen)
    };
    let Noted { name, time_ns, origin } = header.as_ref().map(of).unwrap_or_default();
    let peak_bytes = header.as_ref().map_or(0, |header| header.peak_bytes);
    let damaged = header.err().map(|e| e.to_string());
    Some(Snapshot { run, pid, image, number, name, time_ns, origin, peak_bytes, file, damaged })
}

/// Contents of the header of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Noted {
    pub(super) name: String,
    pub(super) time_ns: u64,
    pub(super) origin: Origin,
}

impl Default for Noted {
    fn default() -> Noted {
        Noted { name: String::new(), time_ns: 0, origin: Origin::Requested }
    }
}

/// Returns what the header of a snapshot with this number notes; `None` if the program took the
/// snapshot.
pub(super) fn noted(header: &FileHeader, number: u32) -> Option<Noted> {
    let kind = header.request_kind;
    let of_kind = |origin: &Origin| origin.request() as u32 == kind;
    let origin = [Origin::Requested, Origin::Automatic].into_iter().find(of_kind)?;
    if header.request_value != u64::from(number) {
        return None;
    }
    let length = header.request_text.len().min(header.request_length as usize);
    let name = text::from_bytes(&header.request_text[..length]);
    Some(Noted { name, time_ns: header.request_time_ns, origin })
}

/// When a snapshot was taken.
pub(crate) struct Taken {
    /// A description, for display.
    pub(crate) says: String,
    /// Nanoseconds from the start of the recording.
    pub(crate) time_ns: u64,
    /// Whether the time was noted; if not, it is that of the last known activity.
    pub(crate) is_noted: bool,
}

/// Returns when a snapshot was taken; `None` if the file is not a snapshot. If no time was noted,
/// uses the last known activity, `seen_ns`.
pub(crate) fn taken(file: &Path, header: &FileHeader, seen_ns: u64) -> Option<Taken> {
    let (_, number) = file_names::snapshot(file)?;
    let noted = noted(header, number);
    let is_noted = noted.is_some();
    let (name, time_ns) =
        noted.map_or((String::new(), seen_ns), |noted| (noted.name, noted.time_ns));
    let name = if name.is_empty() { name } else { format!(" \"{name}\"") };
    let seconds = time_ns as f64 / 1e9;
    let says = format!("snapshot {number}{name}, {seconds:.3} s after the start");
    Some(Taken { says, time_ns, is_noted })
}

/// Returns the snapshot with a number or name of each of these profiles that has one; the last one
/// if several snapshots of a profile have the name.
///
/// Errors: no profile has such a snapshot.
pub(crate) fn referred(
    path: &Path,
    directory: &Path,
    profiles: &[PathBuf],
    reference: &Reference,
) -> Result<Vec<PathBuf>, Error> {
    let mut all = copies(directory);
    let (mut found, mut there) = (Vec::new(), Vec::new());
    for profile in profiles {
        let copies = all.remove(&file_names::image_name(profile)).unwrap_or_default();
        let own = match reference {
            // Reading names would require opening all snapshots.
            Reference::Number(_) => copies.into_iter().filter_map(unnamed).collect(),
            Reference::Name(_) => named(profile, copies),
        };
        let is_it = |snapshot: &&Snapshot| match reference {
            Reference::Number(number) => snapshot.number == *number,
            Reference::Name(name) => snapshot.name == *name,
        };
        found.extend(own.iter().filter(is_it).max_by_key(|s| s.number).map(|s| s.file.clone()));
        there.extend(own.into_iter().map(|snapshot| (snapshot.number, snapshot.name)));
    }
    if !found.is_empty() {
        return Ok(found);
    }
    there.sort_unstable();
    there.dedup();
    let shown = |(number, name): (u32, String)| {
        if name.is_empty() {
            number.to_string()
        } else {
            format!("{number} {}", Reference::Name(name))
        }
    };
    let there = there.into_iter().map(shown).collect();
    Err(Error::NoSnapshot { path: path.to_owned(), wanted: reference.to_string(), there })
}

/// Returns a snapshot without the data in its header.
fn unnamed(file: PathBuf) -> Option<Snapshot> {
    let (Image { run, pid, image }, number) = file_names::snapshot(&file)?;
    let (name, time_ns, origin) = (String::new(), 0, Origin::Requested);
    let (peak_bytes, damaged) = (0, None);
    Some(Snapshot { run, pid, image, number, name, time_ns, origin, peak_bytes, file, damaged })
}

/// Returns the snapshots in these files, which belong to one profile, with names from their headers
/// or the profile's marks.
fn named(profile: &Path, copies: Vec<PathBuf>) -> Vec<Snapshot> {
    let mut own: Vec<Snapshot> = copies.into_iter().filter_map(read).collect();
    if own.iter().any(|snapshot| snapshot.name.is_empty())
        && let Ok(profile) = reader::read(profile)
    {
        let marks = profile.named.marks.iter();
        let marks = marks.filter(|mark| mark.record.kind == MarkKind::Snapshot as u32);
        let snapshots = marks
            .map(|mark| (MarkKind::Snapshot, mark.record.number, &*mark.name, mark.record.time_ns));
        name_by_marks(&mut own, snapshots);
    }
    own
}

/// Returns the snapshots, baselines and copies from before the end of Python in a directory, by the
/// `PID-IMAGE` of their process.
pub(crate) fn copies(directory: &Path) -> FxHashMap<String, Vec<PathBuf>> {
    let mut copies: FxHashMap<String, Vec<PathBuf>> = FxHashMap::default();
    for path in list(directory).unwrap_or_default() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let numbered = name.strip_suffix(SNAPSHOT_SUFFIX).and_then(|n| n.rsplit_once('.'));
        let other = || [BASELINE_SUFFIX, HELD_SUFFIX].iter().find_map(|end| name.strip_suffix(end));
        if let Some(process) = numbered.map(|(process, _)| process).or_else(other) {
            copies.entry(process.to_owned()).or_default().push(path);
        }
    }
    copies
}

/// Takes a snapshot of a live profile, packs it, and returns its number and file. The snapshot
/// notes `name`, `time_ns` (nanoseconds from the start of the recording) and `origin`. Its number
/// is above those of all existing snapshots of the process.
///
/// Errors: the profile cannot be read or is not a profile, or the copy cannot be written. The
/// profile is never changed.
///
/// ```
/// use heaptide_analysis::recording::snapshot::{Origin, take};
/// let profile = "missing.heaptide/12-0.profile".as_ref();
/// assert!(take(profile, "before", 0, Origin::Requested).is_err());
/// ```
pub fn take(
    profile: &Path,
    name: &str,
    time_ns: u64,
    origin: Origin,
) -> Result<(u32, PathBuf), Error> {
    let read = |source| Error::Io { path: profile.to_owned(), doing: "read", source };
    let live = input::open(profile).map_err(read)?;
    let (mut header, extents) = moment(&live, profile)?;
    let process = file_names::image_name(profile);
    let file = |number| profile.with_file_name(format!("{process}.{number}{SNAPSHOT_SUFFIX}"));
    // Try the next number if another command takes this one meanwhile.
    for number in last_number(profile) + 1..=NUMBER_MAX {
        note(&mut header, number, name, time_ns, origin);
        let file = file(number);
        let taken = copy_packed(&live, &file, &header, &extents).and_then(|copy| copy.take(&file));
        match taken {
            Ok(true) => return Ok((number, file)),
            Ok(false) => {}
            Err(source) => return Err(Error::Io { path: file, doing: "write", source }),
        }
    }
    let source = io::Error::other(format!("there are {NUMBER_MAX} snapshots already"));
    Err(Error::Io { path: profile.to_owned(), doing: "copy", source })
}

/// Returns the highest number of a snapshot of a profile; 0 if there is none. Lower numbers can be
/// unused because a ring of snapshots removed them.
fn last_number(profile: &Path) -> u32 {
    let directory = profile.parent().filter(|path| !path.as_os_str().is_empty());
    let entries = std::fs::read_dir(directory.unwrap_or(Path::new("."))).into_iter().flatten();
    let names = entries.flatten().map(|entry| entry.file_name());
    let process = file_names::image_name(profile);
    let number = |name: std::ffi::OsString| {
        let rest = name.to_str()?.strip_prefix(&*process)?.strip_prefix('.')?;
        rest.strip_suffix(SNAPSHOT_SUFFIX)?.parse::<u32>().ok()
    };
    names.filter_map(number).max().unwrap_or(0)
}

/// Returns a draft of the snapshot at this path. If packing fails, as on a full disk, it is not
/// packed.
fn copy_packed(
    live: &File,
    path: &Path,
    header: &FileHeader,
    extents: &[Extent],
) -> io::Result<Draft> {
    let draft = Draft::of(path, draft::PRIVATE)?;
    copy(live, draft.file(), header, extents, Events::Left)?;
    belongs_to_owner_of(live, draft.file())?;
    Ok(pack::packed(draft.file(), path, header.file_end).ok().flatten().unwrap_or(draft))
}

/// Copies the current state of a profile that may be written to, including its events, to a new
/// file, and returns the bytes in use.
///
/// Errors: the profile cannot be read or is not a profile, or the copy cannot be written.
pub(crate) fn copy_now(profile: &Path, to: &Path) -> Result<u64, Error> {
    let read = |source| Error::Io { path: profile.to_owned(), doing: "read", source };
    let live = input::open(profile).map_err(read)?;
    let (header, extents) = moment(&live, profile)?;
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    let copied = made.and_then(|to| copy(&live, &to, &header, &extents, Events::Kept));
    copied.map_err(|source| Error::Io { path: to.to_owned(), doing: "write", source })?;
    Ok(header.file_end)
}

/// An extent at the time at which a copy began.
struct Extent {
    offset: u64,
    header: ExtentHeader,
    /// For an extent of events, the number of its contents.
    number: u32,
}

impl Extent {
    fn has_events(&self) -> bool {
        self.header.kind == Kind::Events as u16
    }
}

/// Whether events are copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Events {
    Kept,
    Left,
}

/// Returns the current header of a profile, and its extents.
fn moment(live: &File, profile: &Path) -> Result<(FileHeader, Vec<Extent>), Error> {
    let read = |source| Error::Io { path: profile.to_owned(), doing: "read", source };
    let mut page = vec![0; format::PAGE as usize];
    live.read_exact_at(&mut page, 0).map_err(read)?;
    let mut header = header(&page, profile)?;
    let size = live.metadata().map_err(read)?.len();
    header.file_end = header.file_end.min(size);
    let extents = extents(live, header.file_end).map_err(read)?;
    let of_events = extents.iter().filter(|extent| extent.has_events());
    let of_events = of_events.fold(0u64, |sum, extent| sum.saturating_add(extent.header.length));
    let size = header.file_end.saturating_sub(of_events);
    if size > FILE_LIMIT {
        let path = profile.to_owned();
        return Err(Error::TooLarge { path, size, limit: FILE_LIMIT });
    }
    Ok((header, extents))
}

/// Writes number, name, time and origin to the header of a snapshot.
fn note(header: &mut FileHeader, number: u32, name: &str, time_ns: u64, origin: Origin) {
    let name = cut(name, format::REQUEST_TEXT);
    header.request_kind = origin.request() as u32;
    header.request_value = number.into();
    header.request_time_ns = time_ns;
    header.request_length = name.len() as u32;
    header.request_text = [0; format::REQUEST_TEXT];
    header.request_text[..name.len()].copy_from_slice(name.as_bytes());
}

/// Returns a prefix of a text of at most `bytes` bytes, ending at a character boundary.
///
/// ```
/// assert_eq!(heaptide_analysis::recording::snapshot::cut("flöte", 3), "fl");
/// ```
pub fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Returns the extents that lie completely within the file.
fn extents(live: &File, file_end: u64) -> io::Result<Vec<Extent>> {
    let mut found = Vec::new();
    let mut at = format::PAGE;
    while at + format::EXTENT_HEADER <= file_end {
        let mut bytes = [0; size_of::<(ExtentHeader, TraceStart)>()];
        let length = bytes.len().min((file_end - at) as usize);
        live.read_exact_at(&mut bytes[..length], at)?;
        let (head, start) = bytes.split_at(format::EXTENT_HEADER as usize);
        let extent = ExtentHeader::read_from_bytes(head).ok();
        let number = TraceStart::read_from_bytes(start).map_or(0, |start| start.number);
        let whole = |e: &ExtentHeader| {
            e.length > 0 && e.length.is_multiple_of(format::PAGE) && e.length <= file_end - at
        };
        at = match extent.filter(|e| e.magic == format::EXTENT_MAGIC).filter(whole) {
            Some(header) => {
                found.push(Extent { offset: at, header, number });
                at + header.length
            }
            None => at + format::PAGE,
        };
    }
    Ok(found)
}

/// Copies the profile up to its end, with the header and committed lengths read before. Extents of
/// events without contents remain holes.
fn copy(
    live: &File,
    copy: &File,
    header: &FileHeader,
    extents: &[Extent],
    events: Events,
) -> io::Result<()> {
    let mut at = 0;
    for extent in extents.iter().filter(|extent| extent.has_events()) {
        copy_part(live, copy, at..extent.offset)?;
        let contents = match events {
            Events::Kept => trace::contents_at(live, extent.offset, extent.number)?,
            Events::Left => None,
        };
        // Events that were moved meanwhile are in the trace file.
        let mut contents = contents.unwrap_or_default();
        contents.truncate(extent.header.committed as usize);
        let committed = contents.len() as u64;
        let head = ExtentHeader { committed, ..extent.header };
        copy.write_all_at(head.as_bytes(), extent.offset)?;
        copy.write_all_at(&contents, extent.offset + format::EXTENT_HEADER)?;
        at = extent.offset + extent.header.length;
    }
    copy_part(live, copy, at..header.file_end)?;
    copy.set_len(header.file_end)?;
    copy.write_all_at(header.as_bytes(), 0)?;
    for extent in extents.iter().filter(|extent| !extent.has_events()) {
        let word = extent.offset + offset_of!(ExtentHeader, committed) as u64;
        copy.write_all_at(&extent.header.committed.to_le_bytes(), word)?;
    }
    Ok(())
}

fn copy_part(mut live: &File, mut copy: &File, part: Range<u64>) -> io::Result<()> {
    live.seek(SeekFrom::Start(part.start))?;
    copy.seek(SeekFrom::Start(part.start))?;
    let length = part.end.saturating_sub(part.start);
    match io::copy(&mut live.take(length), &mut copy)? {
        copied if copied < length => {
            Err(io::Error::other("the profile was truncated during the copy"))
        }
        _ => Ok(()),
    }
}

/// Sets owner and mode of the copy to those of the profile, because another user may take the
/// snapshot.
fn belongs_to_owner_of(live: &File, copy: &File) -> io::Result<()> {
    let (was, is) = (live.metadata()?, copy.metadata()?);
    if (is.uid(), is.gid()) != (was.uid(), was.gid()) {
        fchown(copy, Some(was.uid()), Some(was.gid()))?;
    }
    copy.set_permissions(was.permissions())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_is_not_cut() {
        assert_eq!(cut("tide", 8), "tide");
    }
}
