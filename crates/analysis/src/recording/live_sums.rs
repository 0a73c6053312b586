//! Sums over the sites of a profile that a process writes: totals, and sums by scope path and by
//! label. They can be read repeatedly; each time, only the counters of the sites and new names are
//! read.
//!
//! Of a sampled profile, totals are those of lanes, which are exact; sums by scope path and by
//! label are estimates that are not adjusted to the totals, so that sums of allocations never
//! decrease.
//!
//! Names are looked up by their file offset, so a new stack costs only the reading of its key.
//! Neither symbols nor stacks are read.

use std::io;
use std::mem::size_of;
use std::path::Path;

use heaptide_format as format;
use heaptide_format::{FileHeader, Mode, StringHeader};
use rustc_hash::FxHashMap;
use zerocopy::{FromBytes, IntoBytes};

use super::live::{LABELLED, Observer, Scratch};
use crate::error::Error;
use crate::model::{
    LaneId, Measures, Moved, Sample, ScopeId, Site, SiteKind, Sum, scope_name, scope_path,
};
use crate::profile::parsed::SiteRecord;
use crate::tables::site_table;
use crate::tables::weighted::{MovedHere, Weighted, unweighted_measures};
use crate::text;

/// Maximum number of scope paths and labels with sums of their own; later ones are in the rest.
/// This number takes 20 MB.
const GROUPS_MAX: usize = 1 << 16;
/// Maximum number of scopes of a path that are read, the same as in names of paths.
const DEPTH_MAX: usize = 100;
/// Maximum length of the name of a scope path or label, in characters: they are labels of metrics,
/// which are compared and sent with each reading.
const NAME_MAX: usize = 400;
/// No group: a site without a scope or label.
const NONE: u32 = u32::MAX;
/// A slot whose groups are not known yet.
const UNKNOWN: [u32; 2] = [NONE - 1; 2];
/// Index of the groups for everything after [`GROUPS_MAX`].
const REST_OF_SCOPES: u32 = 0;
const REST_OF_LABELS: u32 = 1;

/// The scope path or label of a sum.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Group {
    /// Allocations in a scope path, excluding nested scopes: `load > parse`.
    Scope(String),
    /// Memory with a label, or of a pool.
    Label {
        /// The label.
        name: String,
        /// The kind of memory.
        kind: SiteKind,
    },
    /// Scope paths beyond the maximum number of groups.
    RestOfScopes,
    /// Labels beyond the maximum number of groups.
    RestOfLabels,
}

/// Reads sums of a profile repeatedly.
pub struct LiveSums {
    observer: Observer,
    header: Box<FileHeader>,
    totals: Measures,
    sample: Option<Sample>,
    groups: Vec<Group>,
    known: FxHashMap<Group, u32>,
    /// Sums of each group since the start of the program.
    sums: Vec<Measures>,
    /// The groups of the scope and of the label of each slot.
    of_slot: Vec<[u32; 2]>,
    /// Groups by id of a scope record.
    scopes: FxHashMap<u32, u32>,
    /// Attribute and value by id of a name.
    names: FxHashMap<u32, [String; 2]>,
}

/// Sums while sites are added.
struct Adding {
    totals: Sum,
    scopes: Vec<Sum>,
    labels: Vec<Measures>,
    epoch: u32,
    /// Average of bytes allocated per sampled block; 0 if every block has a site.
    sample_mean_bytes: u64,
}

impl LiveSums {
    /// Opens a profile.
    ///
    /// Errors: the same as those of [`Observer::open`].
    ///
    /// ```
    /// use heaptide_analysis::recording::live_sums::LiveSums;
    /// assert!(LiveSums::open("missing.heaptide/12-0.profile".as_ref()).is_err());
    /// ```
    pub fn open(path: &Path) -> Result<LiveSums, Error> {
        let observer = Observer::open(path)?;
        let header = Box::new(observer.header()?);
        Ok(LiveSums {
            observer,
            header,
            totals: Measures::default(),
            sample: None,
            groups: vec![Group::RestOfScopes, Group::RestOfLabels],
            known: FxHashMap::default(),
            sums: vec![Measures::default(); 2],
            of_slot: Vec::new(),
            scopes: FxHashMap::default(),
            names: FxHashMap::default(),
        })
    }

    /// Reads the counters; returns false if nothing has changed since the previous look.
    ///
    /// Errors: the file cannot be read, or contradicts the format.
    pub fn look(&mut self, scratch: &mut Scratch) -> Result<bool, Error> {
        *self.header = self.observer.header()?;
        self.look_at_sites(scratch).map_err(|source| Error::Io {
            path: self.observer.path().to_owned(),
            doing: "read",
            source,
        })
    }

    /// Returns the header as of the last reading.
    pub fn header(&self) -> &FileHeader {
        &self.header
    }

    /// Returns sums over all blocks since the start of the program; `peak_bytes` is that of the
    /// header, also before a reset, and at least the live bytes.
    pub fn totals(&self) -> &Measures {
        &self.totals
    }

    /// Returns the last sample of the timeline; `None` if there is none yet.
    pub fn sample(&self) -> Option<&Sample> {
        self.sample.as_ref()
    }

    /// Returns scope paths and labels with their sums. Sums of labels include blocks moved by
    /// labelling, and memory that is excluded from totals. The index of a group never changes.
    pub fn groups(&self) -> impl Iterator<Item = (&Group, &Measures)> {
        self.groups.iter().zip(&self.sums)
    }

    fn look_at_sites(&mut self, scratch: &mut Scratch) -> io::Result<bool> {
        let Some(samples) = self.observer.advance(&self.header)? else { return Ok(false) };
        self.sample = samples.last().copied().or(self.sample);
        let mode = self.header.mode;
        if mode != Mode::Counters as u32 {
            self.totals = self.of_sites(scratch)?;
        }
        if [Mode::Counters as u32, Mode::Sampled as u32].contains(&mode) {
            self.totals = self.of_lanes();
        }
        let FileHeader { peak_bytes, earlier_peak_bytes, .. } = *self.header;
        self.totals.peak_bytes = peak_bytes.max(earlier_peak_bytes).max(self.totals.live_bytes);
        Ok(true)
    }

    /// Frees are known by freeing lane, not by allocating lane, so live memory is computed for all
    /// lanes together.
    fn of_lanes(&self) -> Measures {
        let mut sum = Measures::default();
        for lane in self.observer.lanes() {
            sum.add(&site_table::lane_measures(&lane, self.header.version));
        }
        sum.live_blocks = sum.allocations.saturating_sub(sum.frees);
        sum.live_bytes = sum.usable_bytes.saturating_sub(sum.freed_bytes);
        sum
    }

    fn of_sites(&mut self, scratch: &mut Scratch) -> io::Result<Measures> {
        self.of_slot.resize(self.observer.slots(), UNKNOWN);
        let mut adding = Adding {
            totals: Sum::default(),
            scopes: vec![Sum::default(); self.groups.len()],
            labels: vec![Measures::default(); self.groups.len()],
            epoch: self.header.epoch,
            sample_mean_bytes: self.header.sample_mean_bytes,
        };
        // These need the key, for its names and, if labelled, the moved blocks.
        let mut later = Vec::new();
        let of_slot = &self.of_slot;
        self.observer.each_site(scratch, |slot, record| {
            let key = record.counters.key;
            if key & format::KEY_BIT == 0 {
                adding.add(record, None, [NONE; 2]);
            } else if key & LABELLED == LABELLED || of_slot[slot] == UNKNOWN {
                later.push((slot, *record.counters, record.is_weighted));
            } else {
                adding.add(record, None, of_slot[slot]);
            }
        })?;
        let id = |record: &format::Site| record.key & !LABELLED;
        let keys: Vec<Option<format::Key>> = {
            let keys = self.observer.keys(later.iter().map(|(_, record, _)| id(record)))?;
            later.iter().map(|(_, record, _)| keys.get(id(record))).collect()
        };
        for ((slot, counters, is_weighted), key) in later.iter().zip(&keys) {
            if self.of_slot[*slot] == UNKNOWN {
                self.of_slot[*slot] = self.groups_of(key.as_ref());
            }
            let record = SiteRecord { counters, is_weighted: *is_weighted };
            adding.add(record, key.as_ref(), self.of_slot[*slot]);
        }
        adding.scopes.resize(self.groups.len(), Sum::default());
        adding.labels.resize(self.groups.len(), Measures::default());
        let sums = adding.scopes.iter().zip(&adding.labels).zip(&self.groups);
        let sum = |((scope, label), group): ((&Sum, &Measures), &Group)| match group {
            Group::Scope(_) | Group::RestOfScopes => scope.total(),
            Group::Label { .. } | Group::RestOfLabels => *label,
        };
        self.sums = sums.map(sum).collect();
        Ok(adding.totals.total())
    }

    /// Returns the groups of a site with this key.
    fn groups_of(&mut self, key: Option<&format::Key>) -> [u32; 2] {
        let Some(key) = key else { return [NONE; 2] };
        let scope = match self.scopes.get(&key.scope) {
            Some(&known) => known,
            None => {
                let path = self.path(key.scope);
                let group = path.map(|path| self.group(Group::Scope(path), REST_OF_SCOPES));
                let group = group.unwrap_or(NONE);
                self.scopes.insert(key.scope, group);
                group
            }
        };
        let label = match key.label {
            0 => NONE,
            id => {
                let [_, name] = self.name(id);
                let (name, kind) = (elided(&name), site_table::kind(key.flags));
                self.group(Group::Label { name, kind }, REST_OF_LABELS)
            }
        };
        [scope, label]
    }

    /// Returns the index of a group; `rest` if there is no room for it.
    fn group(&mut self, group: Group, rest: u32) -> u32 {
        if let Some(&known) = self.known.get(&group) {
            return known;
        }
        if self.groups.len() >= GROUPS_MAX {
            return rest;
        }
        let index = self.groups.len() as u32;
        self.groups.push(group.clone());
        self.known.insert(group, index);
        index
    }

    /// Returns the name of a scope path; `None` for a thread's root.
    fn path(&mut self, scope: u32) -> Option<String> {
        let mut names = Vec::new();
        let mut at = scope;
        while at != 0 && names.len() <= DEPTH_MAX {
            let offset = u64::from(at) * format::KEY_GRANULE;
            let Some(record) = self.record::<format::Scope>(offset) else { break };
            if record.name == 0 {
                break; // the root of a thread
            }
            let [attribute, value] = self.name(record.name);
            names.push(scope_name(&attribute, &value));
            at = record.parent;
        }
        (!names.is_empty()).then(|| elided(&scope_path(names)))
    }

    /// Returns attribute and value of a name; empty if they cannot be read.
    fn name(&mut self, id: u32) -> [String; 2] {
        if let Some(known) = self.names.get(&id) {
            return known.clone();
        }
        let record = self.record::<format::Name>(u64::from(id) * format::NAME_GRANULE);
        let name = record.map_or_else(Default::default, |name| {
            let value = match name.kind {
                1 => (name.value as i64).to_string(),
                _ => self.string(u32::try_from(name.value).unwrap_or(0)),
            };
            [self.string(name.attribute), value]
        });
        if self.names.len() < GROUPS_MAX {
            self.names.insert(id, name.clone()); // others are read again when needed
        }
        name
    }

    fn string(&self, id: u32) -> String {
        let offset = u64::from(id) * format::STRING_GRANULE;
        let Some(head) = self.record::<StringHeader>(offset).filter(|_| id != 0) else {
            return String::new();
        };
        // A longer string would be shortened anyway.
        let length = (head.length as usize).min(NAME_MAX * 4);
        let mut bytes = vec![0; length];
        let read = self.observer.read_at(&mut bytes, offset + size_of::<StringHeader>() as u64);
        read.map_or_else(|_| String::new(), |()| text::from_bytes(&bytes))
    }

    /// Returns the record at an offset; `None` if the file ends before it.
    fn record<T: FromBytes + IntoBytes>(&self, offset: u64) -> Option<T> {
        let mut record = T::new_zeroed();
        self.observer.read_at(record.as_mut_bytes(), offset).ok()?;
        Some(record)
    }
}

impl Adding {
    /// Adds a site with its groups; `key` is the key of a labelled site.
    fn add(&mut self, record: SiteRecord<'_>, key: Option<&format::Key>, groups: [u32; 2]) {
        let kind = key.map_or(SiteKind::Heap, |key| site_table::kind(key.flags));
        let (measures, moved) = match self.sample_mean_bytes {
            0 => self.counted(record.counters, key),
            mean => self.estimated(record, key, mean),
        };
        let site = Site {
            stack: (),
            scope: ScopeId(0),
            label: None,
            lane: LaneId(0),
            size: None,
            call: None,
            kind,
            measures,
            moved,
            lent_bytes: 0,
        };
        let [scope, label] = groups;
        self.totals.add(&site);
        grown(&mut self.scopes, scope, |sum: &mut Sum| sum.add(&site));
        grown(&mut self.labels, label, |sum: &mut Measures| sum.add(&measures));
    }

    /// Returns the counters of a site that counts all blocks.
    fn counted(&self, record: &format::Site, key: Option<&format::Key>) -> (Measures, Moved) {
        let lent = key.map_or(0, |key| key.lent_bytes as i64);
        let moved = key.map_or(Moved::default(), |key| Moved {
            blocks: key.moved_blocks.min(record.allocations),
            usable_bytes: key.moved_bytes.min(record.usable_bytes),
            requested_bytes: key.moved_requested_bytes.min(record.requested_bytes),
        });
        (site_table::site_measures(record, lent, self.epoch), moved)
    }

    /// Returns estimates for a site of sampled blocks.
    fn estimated(
        &self,
        record: SiteRecord<'_>,
        key: Option<&format::Key>,
        mean: u64,
    ) -> (Measures, Moved) {
        let mut weighted = Weighted::of(record, mean, self.epoch);
        if let Some(key) = key {
            weighted = weighted.with_moved(MovedHere::of(key, record), record, mean);
        }
        let mut measures = unweighted_measures(record.counters);
        weighted.set(&mut measures);
        (measures, weighted.moved_rounded())
    }
}

/// Changes the sum of a group, which can be new.
fn grown<T: Clone + Default>(sums: &mut Vec<T>, group: u32, change: impl FnOnce(&mut T)) {
    if group < UNKNOWN[0] {
        let index = group as usize;
        if index >= sums.len() {
            sums.resize(index + 1, T::default());
        }
        change(&mut sums[index]);
    }
}

/// Shortens a long name to both of its ends.
fn elided(name: &str) -> String {
    let count = name.chars().count();
    if count <= NAME_MAX {
        return name.to_owned();
    }
    let end = name.chars().skip(count - NAME_MAX / 2 + 1);
    name.chars().take(NAME_MAX / 2).chain(['…']).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::profile::site;
    use heaptide_fixtures::{ProgramBuilder, Random, Scratch as Directory};

    use super::*;
    use crate::recording::live_tables::LiveTables;

    fn row(sums: &LiveSums, group: &Group) -> [u64; 6] {
        let found = sums.groups().find(|(own, _)| *own == group);
        let (_, sum) = found.unwrap_or_else(|| panic!("no {group:?}"));
        let blocks = [sum.allocations, sum.frees, sum.live_blocks];
        let bytes = [sum.usable_bytes, sum.freed_bytes, sum.live_bytes];
        [blocks[0], blocks[1], blocks[2], bytes[0], bytes[1], bytes[2]]
    }

    fn scope(path: &str) -> Group {
        Group::Scope(path.to_owned())
    }

    /// Returns a program with two threads in `load`, one of them in `load > phase=2`, where some
    /// blocks have a label.
    fn annotated() -> ProgramBuilder {
        let mut program = ProgramBuilder::new();
        let stack = program.stack("main");
        let p = &mut program.profile;
        let (load, phase) = (p.name("region", "load"), p.name_int("phase", 2));
        let cache = p.name("label", "cache");
        let mut freed = site(stack, 5, 32);
        (freed.frees, freed.freed_bytes) = (3, 96);
        let mut scopes = Vec::new();
        for lane in [0, 1] {
            let root = program.profile.scope(lane, 0, 0, |_| {});
            let outer = program.profile.scope(lane, root, load, |_| {});
            scopes.push((outer, program.profile.scope(lane, outer, phase, |_| {})));
        }
        let p = &mut program.profile;
        let mut keyed = |lane, scope, label, moved: u64, record: format::Site| {
            let flags = if label == 0 { 0 } else { format::KEY_LABELLED };
            let id = p.key(lane, |key| {
                (key.stack, key.scope, key.label, key.lane) = (stack, scope, label, lane);
                (key.moved_blocks, key.moved_bytes) = (moved, moved * 32);
            });
            p.site(lane, format::Site { key: format::KEY_BIT | flags | id, ..record });
        };
        keyed(0, scopes[0].0, 0, 0, site(stack, 2, 32));
        keyed(1, scopes[1].0, 0, 0, freed);
        keyed(1, scopes[1].1, cache, 2, site(stack, 3, 32));
        keyed(1, 0, 0, 0, site(stack, 1, 32));
        program
    }

    #[test]
    fn sums_are_by_path_over_all_threads_and_by_label() {
        let directory = Directory::new("live-sums");
        let path = annotated().write(&directory);
        let mut sums = LiveSums::open(&path).expect("a profile");
        assert!(sums.look(&mut Scratch::default()).expect("readable"));
        assert_eq!(row(&sums, &scope("load")), [7, 3, 4, 224, 96, 128]);
        // Two blocks were moved here by a label and allocated elsewhere.
        assert_eq!(row(&sums, &scope("load > phase=2")), [1, 0, 3, 32, 0, 96]);
        let cache = Group::Label { name: "cache".to_owned(), kind: SiteKind::Heap };
        assert_eq!(row(&sums, &cache), [3, 0, 3, 96, 0, 96]);
        assert_eq!(row(&sums, &Group::RestOfScopes), [0; 6]);
        let process = LiveTables::new(&path).read(&mut |_, _| {}).expect("tables");
        let of_tables = Measures {
            frees_here: 0,
            freed_here_bytes: 0,
            at_peak_blocks: 0,
            at_peak_bytes: 0,
            ..process.totals
        };
        let own = Measures { at_peak_blocks: 0, at_peak_bytes: 0, ..*sums.totals() };
        assert_eq!(own, of_tables, "the numbers of a report");
    }

    #[test]
    fn a_look_finds_what_was_added_and_indices_stay() {
        let directory = Directory::new("live-sums-added");
        let mut program = annotated();
        let path = program.write(&directory);
        let mut sums = LiveSums::open(&path).expect("a profile");
        let mut scratch = Scratch::default();
        assert!(sums.look(&mut scratch).expect("readable"));
        assert!(!sums.look(&mut scratch).expect("readable"), "nothing was counted");
        let before: Vec<Group> = sums.groups().map(|(group, _)| group.clone()).collect();
        let stack = program.stack("main");
        let p = &mut program.profile;
        let name = p.name("region", "late");
        let root = p.scope(2, 0, 0, |_| {});
        let late = p.scope(2, root, name, |_| {});
        let key = p.key(2, |key| (key.stack, key.scope) = (stack, late));
        p.site(2, format::Site { key: format::KEY_BIT | key, ..site(stack, 4, 16) });
        p.lane(2, "late", |_| {});
        program.write(&directory);
        assert!(sums.look(&mut scratch).expect("readable"));
        assert_eq!(row(&sums, &scope("late")), [4, 0, 4, 64, 0, 64]);
        let after: Vec<Group> = sums.groups().map(|(group, _)| group.clone()).collect();
        assert_eq!((&after[..before.len()], after.len()), (&before[..], before.len() + 1));
    }

    #[test]
    fn names_are_cut_and_circles_end() {
        assert_eq!(elided(&"é".repeat(NAME_MAX)).chars().count(), NAME_MAX);
        let long = elided(&format!("{}é{}", "a".repeat(NAME_MAX), "b".repeat(NAME_MAX)));
        assert!(long.chars().count() == NAME_MAX && long.starts_with('a') && long.ends_with('b'));
        let directory = Directory::new("live-sums-circle");
        let mut program = ProgramBuilder::new();
        let p = &mut program.profile;
        let name = p.name("region", "x");
        // Its own parent: the next record of the extent has the position of the first one.
        let first = p.scope(0, 0, name, |_| {});
        let circle = p.scope(0, first + 1, name, |_| {});
        assert_eq!(circle, first + 1);
        let key = p.key(0, |key| key.scope = circle);
        p.site(0, format::Site { key: format::KEY_BIT | key, ..site(0, 1, 8) });
        let path = program.write(&directory);
        let mut sums = LiveSums::open(&path).expect("a profile");
        assert!(sums.look(&mut Scratch::default()).expect("readable"));
        let deepest = sums.groups().last().expect("a group").0.clone();
        let Group::Scope(path) = deepest else { panic!("{deepest:?}") };
        assert!(path.starts_with("… > x > x"), "{path}");
    }

    #[test]
    fn any_bytes_are_an_error_or_sums() {
        let directory = Directory::new("live-sums-damaged");
        let path = annotated().write(&directory);
        let whole = std::fs::read(&path).expect("a profile");
        let (mut random, mut scratch) = (Random::new(7), Scratch::default());
        let mut read = 0;
        for _ in 0..1000 {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len() as u64 / 8) as usize * 8;
                let values = [0, 1, u64::MAX, random.next(), random.below(1 << 16)];
                let value = values[random.below(values.len() as u64) as usize];
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            bytes.truncate(whole.len() - random.below(2) as usize * random.below(4096) as usize);
            std::fs::write(&path, bytes).expect("a file");
            let looked = LiveSums::open(&path).and_then(|mut sums| sums.look(&mut scratch));
            read += u32::from(looked.is_ok());
        }
        assert!(read > 500, "{read} of 1000 have sums");
    }
}
