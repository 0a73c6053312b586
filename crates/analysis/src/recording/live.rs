//! Reads the counters of a profile repeatedly while a process writes it. A read covers only what
//! was added to the file, and the counters of the sites, and these only if a thread has counted
//! anything since.
//!
//! Each site of an extent has a *slot*. Slots are numbered in the order in which extents were found
//! and never change, so counters of two times are compared by slot.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use heaptide_format as format;
use heaptide_format::{ExtentHeader, FileHeader, Kind};
use rustc_hash::FxHashSet;
use zerocopy::{FromBytes, IntoBytes};

pub use super::counts::Counts;
use super::estimated_counts;
use crate::error::Error;
use crate::files::input;
use crate::model::Sample;
use crate::profile::header::header;
use crate::profile::pack;
use crate::profile::parsed::SiteRecord;
use crate::tables::figures::sample;
use crate::tables::site_table;
use crate::tables::weighted::{MovedHere, Weighted};

/// Maximum number of pages without an extent header that are read again. If there are more, their
/// writer has died.
const GAPS_MAX: usize = 1024;
/// After this many reads in which no thread has counted anything, sites are read nevertheless:
/// blocks of pools and labels change the counters of sites alone.
const IDLE_LOOKS: u32 = 8;
const EXTENT_HEADER: u64 = format::EXTENT_HEADER;
const SITE: u64 = size_of::<format::Site>() as u64;
pub(super) const LABELLED: u32 = format::KEY_BIT | format::KEY_LABELLED;

/// The state of a profile at one time.
#[derive(Debug)]
pub struct Look {
    /// The header.
    pub header: Box<FileHeader>,
    /// Counters of each site, by slot.
    pub counts: Vec<Counts>,
    /// Number of sites.
    pub sites: u64,
    /// Samples added since the previous look.
    pub samples: Vec<Sample>,
}

/// An extent that is read repeatedly.
struct Extent {
    offset: u64,
    /// Bytes after its header.
    room: u64,
    committed: u64,
    /// In an extent of sites: whether their counters are weighted.
    is_weighted: bool,
    /// In an extent of sites: the slot of the first site.
    first_slot: usize,
    /// In an extent of samples: bytes already read.
    read: u64,
}

/// Reads the counters of a profile repeatedly.
pub struct Observer {
    path: PathBuf,
    file: File,
    /// End of the known extents.
    end: u64,
    /// Pages before `end` without an extent header.
    gaps: Vec<u64>,
    sites: Vec<Extent>,
    lanes: Vec<Extent>,
    keys: Vec<Extent>,
    samples: Vec<Extent>,
    slots: usize,
    /// The bytes of the lanes at the previous look.
    lanes_then: Vec<u8>,
    idle_looks: u32,
    scratch: Scratch,
}

impl Observer {
    /// Opens a profile.
    ///
    /// Errors: the file cannot be read, is not a profile, or is packed, so that no process writes
    /// to it.
    ///
    /// ```
    /// use heaptide_analysis::recording::live::Observer;
    /// assert!(Observer::open("missing.heaptide/12-0.profile".as_ref()).is_err());
    /// ```
    pub fn open(path: &Path) -> Result<Observer, Error> {
        let read = |source| Error::Io { path: path.to_owned(), doing: "read", source };
        let file = input::open(path).map_err(read)?;
        let observer = Observer {
            path: path.to_owned(),
            file,
            end: format::PAGE,
            gaps: Vec::new(),
            sites: Vec::new(),
            lanes: Vec::new(),
            keys: Vec::new(),
            samples: Vec::new(),
            slots: 0,
            lanes_then: Vec::new(),
            idle_looks: IDLE_LOOKS,
            scratch: Scratch::default(),
        };
        observer.header()?;
        Ok(observer)
    }

    /// Reads the current counters; `None` if they have not changed since the previous look.
    ///
    /// Errors: the file cannot be read, or contradicts the format.
    pub fn look(&mut self) -> Result<Option<Look>, Error> {
        let header = self.header()?;
        let look = self.look_at(header);
        look.map_err(|source| Error::Io { path: self.path.clone(), doing: "read", source })
    }

    /// Returns the id of the site in each slot, in order of slots.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.sites.iter().flat_map(|extent| {
            let first = (extent.offset + EXTENT_HEADER) / format::SITE_GRANULE;
            let step = SITE / format::SITE_GRANULE;
            (0..extent.room / SITE).map(move |index| (first + index * step) as u32)
        })
    }

    /// Reads the current header.
    ///
    /// Errors: the same as those of [`Observer::open`].
    pub fn header(&self) -> Result<FileHeader, Error> {
        let read = |source| Error::Io { path: self.path.clone(), doing: "read", source };
        let mut page = vec![0; format::PAGE as usize];
        let mut length = 0;
        while length < page.len() {
            match self.file.read_at(&mut page[length..], length as u64).map_err(read)? {
                0 => break,
                more => length += more,
            }
        }
        if pack::is_packed(&page[..length]) {
            return Err(Error::Io {
                path: self.path.clone(),
                doing: "observe",
                source: io::Error::other("it is sealed, so no process writes to it"),
            });
        }
        header(&page[..length], &self.path)
    }

    fn look_at(&mut self, header: FileHeader) -> io::Result<Option<Look>> {
        let Some(samples) = self.advance(&header)? else { return Ok(None) };
        let mut weighted = Vec::new();
        let (mut counts, sites) = self.counts(&header, &mut weighted)?;
        estimated_counts::estimate(&mut counts, &weighted, &header, self.lanes());
        Ok(Some(Look { header: Box::new(header), counts, sites, samples }))
    }

    /// Finds the extents added to the file and returns their new samples; `None` if no thread has
    /// counted anything since the previous look.
    pub(super) fn advance(&mut self, header: &FileHeader) -> io::Result<Option<Vec<Sample>>> {
        self.find_extents(header.file_end.min(self.file.metadata()?.len()))?;
        let samples = self.new_samples()?;
        let lanes = self.bytes_of_lanes()?;
        let is_idle = lanes == self.lanes_then && samples.is_empty();
        self.idle_looks = if is_idle { self.idle_looks + 1 } else { 0 };
        if is_idle && self.idle_looks < IDLE_LOOKS {
            return Ok(None);
        }
        self.idle_looks = 0;
        self.lanes_then = lanes;
        Ok(Some(samples))
    }

    /// Returns the lanes as of the previous look.
    pub(super) fn lanes(&self) -> impl Iterator<Item = format::Lane> {
        let records = self.lanes_then.chunks_exact(size_of::<format::Lane>());
        records.filter_map(|record| format::Lane::read_from_bytes(record).ok())
    }

    /// Calls `each` with the slot and the record of every site.
    pub(super) fn each_site(
        &mut self,
        scratch: &mut Scratch,
        mut each: impl FnMut(usize, SiteRecord<'_>),
    ) -> io::Result<()> {
        let mut extents = std::mem::take(&mut self.sites);
        let done = self.commit(&mut extents, SITE);
        self.sites = extents;
        done?;
        for extent in &self.sites {
            let length = (extent.committed / SITE * SITE) as usize;
            let bytes = scratch.bytes(length);
            self.file.read_exact_at(bytes, extent.offset + EXTENT_HEADER)?;
            let Ok(records) = <[format::Site]>::ref_from_bytes(bytes) else { continue };
            let slots = extent.first_slot..;
            let is_weighted = extent.is_weighted;
            slots.zip(records).for_each(|(slot, counters)| {
                each(slot, SiteRecord { counters, is_weighted });
            });
        }
        Ok(())
    }

    /// Reads the extents that contain the keys with these ids.
    pub(super) fn keys(&self, wanted: impl Iterator<Item = u32>) -> io::Result<Keys<'_>> {
        let mut keys = Keys { extents: &self.keys, bytes: vec![Vec::new(); self.keys.len()] };
        let wanted: FxHashSet<usize> = wanted.filter_map(|key| keys.extent_of(key)).collect();
        for index in wanted {
            let extent = &self.keys[index];
            let bytes = &mut keys.bytes[index];
            bytes.resize(extent.room as usize, 0);
            self.file.read_exact_at(bytes, extent.offset + EXTENT_HEADER)?;
        }
        Ok(keys)
    }

    /// Returns the path of the profile.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of slots of the sites found so far.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Fills `bytes` from the file at an offset.
    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    /// Finds extents that were added before `end`.
    fn find_extents(&mut self, end: u64) -> io::Result<()> {
        let gaps = std::mem::take(&mut self.gaps);
        let mut known = 0;
        for gap in gaps {
            if gap < known {
                continue; // inside an extent whose header has been written since
            }
            match self.extent_at(gap, end)? {
                Some(length) => known = gap + length,
                None => self.gaps.push(gap),
            }
        }
        self.keys.sort_unstable_by_key(|extent| extent.offset);
        while self.end + EXTENT_HEADER <= end {
            match self.extent_at(self.end, end)? {
                Some(length) => self.end += length,
                None => {
                    if self.gaps.len() < GAPS_MAX {
                        self.gaps.push(self.end);
                    }
                    self.end += format::PAGE;
                }
            }
        }
        Ok(())
    }

    /// Adds the extent at an offset and returns its length; `None` if it has no valid header yet.
    fn extent_at(&mut self, offset: u64, end: u64) -> io::Result<Option<u64>> {
        let header = self.extent_header(offset)?;
        let ExtentHeader { length, .. } = header;
        let is_whole = length > 0 && length.is_multiple_of(format::PAGE) && length <= end - offset;
        if header.magic != format::EXTENT_MAGIC || !is_whole {
            return Ok(None);
        }
        let room = length - EXTENT_HEADER;
        let (committed, first_slot) = (header.committed.min(room), self.slots);
        let kind = Kind::from_number(header.kind);
        let is_weighted = kind == Some(Kind::SampledSites);
        let extent = Extent { offset, room, committed, is_weighted, first_slot, read: 0 };
        match kind {
            Some(Kind::Sites | Kind::SampledSites) => {
                self.slots += (room / SITE) as usize;
                self.sites.push(extent);
            }
            Some(Kind::Lanes) => self.lanes.push(extent),
            Some(Kind::Keys) => self.keys.push(extent),
            Some(Kind::Timeline) => self.samples.push(extent),
            _ => {}
        }
        Ok(Some(length))
    }

    fn extent_header(&self, offset: u64) -> io::Result<ExtentHeader> {
        let mut header = [0u64; size_of::<ExtentHeader>() / 8];
        self.file.read_exact_at(header.as_mut_bytes(), offset)?;
        ExtentHeader::read_from_bytes(header.as_bytes())
            .map_err(|_| io::Error::other("an extent without a header"))
    }

    /// Updates the committed length of each of these extents. An extent without room for another
    /// record cannot change.
    fn commit(&self, extents: &mut [Extent], record: u64) -> io::Result<()> {
        for extent in extents.iter_mut().filter(|extent| extent.committed + record <= extent.room) {
            let committed = self.extent_header(extent.offset)?.committed;
            extent.committed = committed.min(extent.room).max(extent.committed);
        }
        Ok(())
    }

    fn new_samples(&mut self) -> io::Result<Vec<Sample>> {
        const RECORD: u64 = size_of::<format::Sample>() as u64;
        let mut extents = std::mem::take(&mut self.samples);
        let done = self.commit(&mut extents, RECORD);
        let mut samples = Vec::new();
        for extent in &mut extents {
            let mut bytes = vec![0; (extent.committed - extent.read) as usize];
            self.file.read_exact_at(&mut bytes, extent.offset + EXTENT_HEADER + extent.read)?;
            let records = bytes.chunks_exact(RECORD as usize);
            let records = records.filter_map(|r| format::Sample::read_from_bytes(r).ok());
            samples.extend(records.map(|record| sample(&record)));
            extent.read = extent.committed;
        }
        self.samples = extents;
        done?;
        samples.sort_by_key(|sample| sample.time_ns);
        Ok(samples)
    }

    fn bytes_of_lanes(&mut self) -> io::Result<Vec<u8>> {
        let mut extents = std::mem::take(&mut self.lanes);
        let done = self.commit(&mut extents, size_of::<format::Lane>() as u64);
        self.lanes = extents;
        done?;
        let mut bytes = Vec::with_capacity(self.lanes_then.len());
        for extent in &self.lanes {
            let start = bytes.len();
            bytes.resize(start + extent.committed as usize, 0);
            self.file.read_exact_at(&mut bytes[start..], extent.offset + EXTENT_HEADER)?;
        }
        Ok(bytes)
    }

    /// Returns the counters of each slot, and the number of sites. Of a sampled profile, stores
    /// what the site of each slot represents.
    fn counts(
        &mut self,
        header: &FileHeader,
        weighted: &mut Vec<Weighted>,
    ) -> io::Result<(Vec<Counts>, u64)> {
        let (epoch, mean) = (header.epoch, header.sample_mean_bytes);
        if estimated_counts::is_sampled(header) {
            weighted.resize(self.slots, Weighted::default());
        }
        let mut counts = vec![Counts::default(); self.slots];
        let (mut labelled, mut sites) = (Vec::new(), 0);
        let mut scratch = std::mem::take(&mut self.scratch);
        let done = self.each_site(&mut scratch, |slot, record| {
            sites += 1;
            counts[slot] = Counts::of(record.counters, epoch);
            if let Some(weighted) = weighted.get_mut(slot) {
                *weighted = Weighted::of(record, mean, epoch);
            }
            let key = record.counters.key;
            if key & LABELLED == LABELLED {
                labelled.push((slot, key & !LABELLED, *record.counters, record.is_weighted));
            }
        });
        self.scratch = scratch;
        done?;
        self.add_labels(&labelled, &mut counts, (weighted, mean))?;
        Ok((counts, sites))
    }

    /// Adds kind and moved blocks from the keys of labelled sites, given as slot, key id and
    /// record.
    fn add_labels(
        &self,
        labelled: &[(usize, u32, format::Site, bool)],
        counts: &mut [Counts],
        (weighted, mean): (&mut [Weighted], u64),
    ) -> io::Result<()> {
        let keys = self.keys(labelled.iter().map(|&(_, key, ..)| key))?;
        for (slot, key, counters, is_weighted) in labelled {
            if let Some(key) = keys.get(*key) {
                let counts = &mut counts[*slot];
                counts.kind = site_table::kind(key.flags);
                counts.moved_blocks = key.moved_blocks.min(counts.allocations);
                counts.moved_bytes = key.moved_bytes.min(counts.allocated_bytes);
                if let Some(weighted) = weighted.get_mut(*slot) {
                    let record = SiteRecord { counters, is_weighted: *is_weighted };
                    *weighted = weighted.with_moved(MovedHere::of(&key, record), record, mean);
                }
            }
        }
        Ok(())
    }
}

/// A buffer for the sites of an extent, reused for all extents.
#[derive(Debug, Default)]
pub struct Scratch {
    words: Vec<u64>,
}

impl Scratch {
    fn bytes(&mut self, length: usize) -> &mut [u8] {
        let words = length.div_ceil(8);
        self.words.resize(self.words.len().max(words), 0);
        &mut self.words.as_mut_bytes()[..length]
    }
}

/// Keys of sites, as read from the file.
pub(super) struct Keys<'a> {
    /// In order of their offsets.
    extents: &'a [Extent],
    /// Contents by extent; empty for extents that were not read.
    bytes: Vec<Vec<u8>>,
}

impl Keys<'_> {
    /// Returns the key with this id (without flag bits); `None` if it was not read.
    pub(super) fn get(&self, id: u32) -> Option<format::Key> {
        let index = self.extent_of(id)?;
        let at = offset_of_key(id).checked_sub(self.extents[index].offset + EXTENT_HEADER)?;
        let bytes = self.bytes[index].get(at as usize..)?;
        Some(format::Key::read_from_prefix(bytes).ok()?.0)
    }

    fn extent_of(&self, id: u32) -> Option<usize> {
        let next = self.extents.partition_point(|extent| extent.offset <= offset_of_key(id));
        next.checked_sub(1)
    }
}

fn offset_of_key(id: u32) -> u64 {
    u64::from(id) * format::KEY_GRANULE
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::{ProgramBuilder, Scratch, profile::site};

    use super::*;
    use crate::model::{Process, SiteRow, Sum};
    use crate::recording::live_tables::{LiveTables, counts_of};

    fn total(counts: &[Counts]) -> Counts {
        let mut sum = Counts::default();
        counts.iter().for_each(|counts| sum.add(counts));
        sum
    }

    /// Returns the sums of each row, computed from the counters by slot.
    fn by_row(observer: &Observer, look: &Look, process: &Process) -> Vec<Counts> {
        let mut rows = vec![Counts::default(); process.tables.sites.len()];
        let site_rows = process.time.site_rows.as_ref().expect("rows of sites");
        for (id, counts) in observer.ids().zip(&look.counts) {
            if let SiteRow::At(row) = site_rows.row(id) {
                rows[row as usize].add(counts);
            }
        }
        rows
    }

    #[test]
    fn what_was_added_is_found_and_nothing_new_is_no_look() {
        let scratch = Scratch::new("live-added");
        let mut program = ProgramBuilder::with_stacks(&["main", "main;read"]);
        let path = program.write(&scratch);
        let mut observer = Observer::open(&path).expect("a profile");
        let first = observer.look().expect("readable").expect("the first look");
        assert_eq!((first.sites, total(&first.counts).live_bytes), (2, 3));
        for _ in 1..IDLE_LOOKS {
            assert!(observer.look().expect("readable").is_none(), "nothing was counted");
        }
        let again = observer.look().expect("readable").expect("a look for pools and labels");
        assert_eq!(again.counts, first.counts);
        for bytes in 0..100 {
            program.block("main;parse", 1000 + bytes);
        }
        program.profile.lane(7, "late", |_| {});
        program.write(&scratch);
        let second = observer.look().expect("readable").expect("a thread was added");
        assert_eq!((second.sites, total(&second.counts).live_bytes), (102, 104_953));
        assert_eq!(second.counts[..2], first.counts[..2], "slots stay");
    }

    #[test]
    fn slots_lead_to_the_rows_of_tables_also_after_a_filter() {
        let scratch = Scratch::new("live-rows");
        let program = ProgramBuilder::with_stacks(&["", "main", "main;read", "main;read;parse"]);
        let path = program.write(&scratch);
        let mut observer = Observer::open(&path).expect("a profile");
        let look = observer.look().expect("readable").expect("the first look");
        let mut process = LiveTables::new(&path).read(&mut |_, _| {}).expect("tables");
        let rows = by_row(&observer, &look, &process);
        let live = |rows: &[Counts]| rows.iter().map(|row| row.live_bytes).collect::<Vec<_>>();
        let of_tables = |process: &Process| {
            process.tables.sites.iter().map(|site| site.measures.live_bytes).collect::<Vec<_>>()
        };
        assert_eq!(live(&rows), of_tables(&process));
        assert_eq!(total(&rows).live_bytes, Sum::over(&process.tables.sites).live_bytes);
        let focus = vec!["read".parse().expect("a pattern")];
        let filter = crate::selection::filter::Filter { focus, ..Default::default() };
        filter.apply(&mut process, "--focus read");
        process.cut_stacks(1); // both stacks become one, and one row
        assert_eq!(live(&by_row(&observer, &look, &process)), [4 + 8]);
        assert_eq!(live(&counts_of(&path, &process).expect("counts")), [4 + 8]);
    }

    #[test]
    fn labelled_blocks_count_once_and_memory_outside_not_at_all() {
        let scratch = Scratch::new("live-labels");
        let mut program = ProgramBuilder::new();
        let stack = program.stack("main");
        let p = &mut program.profile;
        let label = p.name("label", "cache");
        let key = |flags| {
            move |key: &mut format::Key| {
                (key.stack, key.label, key.flags) = (stack, label, flags);
                (key.moved_blocks, key.moved_bytes) = (if flags == 0 { 2 } else { 0 }, 64);
            }
        };
        let moved = p.key(0, key(0));
        let outside = p.key(0, key(format::KEY_OUTSIDE));
        let mut plain = site(stack, 3, 32);
        (plain.frees, plain.freed_bytes) = (2, 64);
        p.site(0, plain);
        p.site(0, site(LABELLED | moved, 2, 32));
        p.site(0, site(LABELLED | outside, 1, 4096));
        let path = program.write(&scratch);
        let look = Observer::open(&path).expect("a profile").look().expect("readable");
        let look = look.expect("the first look");
        let sum = total(&look.counts);
        assert_eq!((sum.live_blocks, sum.live_bytes, sum.allocations), (3, 96, 3));
        let process = LiveTables::new(&path).read(&mut |_, _| {}).expect("tables");
        let totals = &process.totals;
        assert_eq!((totals.live_blocks, totals.live_bytes, totals.allocations), (3, 96, 3));
    }
}
