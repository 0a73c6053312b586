//! One profile file into plain tables.
//!
//! The bytes are untrusted: whatever they are, no panic, and no memory beyond a small multiple of
//! the file's real size.
//!
//! A live profile grows while it is read: `file_end` and each `committed` are read before the
//! records they cover, so what is taken was finished; counters of one record may be of slightly
//! different moments.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use heaptide_format as format;
use heaptide_format::{FileHeader, Kind, StringHeader};
use rustc_hash::FxHashMap;
use zerocopy::FromBytes;

use crate::Error;
use crate::collections::sparse_array::SparseArray;
use crate::files::input;
use crate::profile::annotations::{self, Ids, Named};
use crate::profile::baseline::Before;
use crate::profile::extents::{Contents, EventExtent, Extent, Range, Walk};
use crate::profile::pack;
use crate::text;
use crate::threads;

/// The largest profile that is read, in bytes: some twenty million sites. It bounds the memory of a
/// reader that is handed a sparse file of any size.
pub const FILE_LIMIT: u64 = 4 << 30;
/// Longer paths of modules are cut, in bytes: the kernel's own limit.
const PATH_LIMIT: usize = 4096;

/// What one profile file holds, with ids turned into indices.
#[derive(Debug)]
pub struct Profile {
    /// The file's head.
    pub header: FileHeader,
    /// How much is recorded.
    pub mode: format::Mode,
    /// Path of the program.
    pub program: String,
    /// Its arguments.
    pub command: Vec<String>,
    /// Host name.
    pub host: String,
    /// The parallel job's name.
    pub job: String,
    /// Modules in order of the file.
    pub modules: Vec<Module>,
    /// Distinct places in code.
    pub places: Vec<Place>,
    /// Frames below their callers, callers first.
    pub nodes: Vec<Node>,
    /// Lanes in order of their index.
    pub lanes: Vec<format::Lane>,
    /// Counters of each stack, scope path, label and lane.
    pub sites: Vec<Site>,
    /// Names, scopes, windows and marks; empty in version 1.
    pub named: Named,
    /// Samples in order of time.
    pub timeline: Vec<format::Sample>,
    /// Indices of nodes plus one by their id, where frees have stacks.
    pub(crate) node_ids: Option<SparseArray>,
    /// Extents of events, which are not read with the rest.
    pub(crate) events: Vec<EventExtent>,
    /// What had been counted at the last reset; none if figures are from the start.
    pub before: Option<Box<Before>>,
    /// A part of the file is missing.
    pub(crate) is_cut: bool,
    /// What a person should know about how complete this is.
    pub notes: Vec<String>,
}

impl Profile {
    /// Whether it has counters of stacks or scopes, and not of lanes alone.
    pub(crate) fn has_sites(&self) -> bool {
        self.mode != format::Mode::Counters
    }

    /// Bytes that threads may have allocated without publishing them, and so without recording a
    /// peak: each publishes at least every [`format::PEAK_BATCH`] bytes.
    pub(crate) fn unpublished_bytes(&self) -> u64 {
        match u64::from(self.header.lanes_at_once) {
            0 | 1 => 0,
            lanes => lanes * format::PEAK_BATCH,
        }
    }

    /// Whether tables that disagree do so because of events that were being counted: the process
    /// may not have been at rest, and nothing of the file is missing. Version 1 had other tables.
    pub(crate) fn may_be_reconciled(&self) -> bool {
        let at_rest = self.header.end_kind == format::End::Exited as u32;
        let alone = self.header.lanes_at_once <= 1;
        self.header.version > 1 && !self.is_cut && !(at_rest && alone)
    }
}

/// A loaded file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Its path, byte for byte: it need not be UTF-8.
    pub path: PathBuf,
    /// Its record.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Address minus link-time address.
    pub bias: u64,
    /// GNU build-id, empty if none.
    pub build_id: Vec<u8>,
    /// Whether it was unloaded.
    pub unloaded: bool,
}

/// A place in code: what a name is looked up for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// Index into [`Profile::modules`], or [`NO_MODULE`].
    pub module: u32,
    /// Link-time address of the call in the module; without a module the address itself or a mark.
    pub offset: u64,
}

/// [`Place::module`] of code without a file and of marks.
pub const NO_MODULE: u32 = u32::MAX;

/// A frame below its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Index of the caller plus one, always at most this node's own index; 0 for an outermost
    /// frame.
    pub parent: u32,
    /// Index into [`Profile::places`].
    pub place: u32,
}

/// The counters of one stack, scope path, label and lane.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The record's id in the file.
    pub id: u32,
    /// Index of the innermost frame's node plus one; 0 without a stack.
    pub node: u32,
    /// Index into [`Named::scopes`] plus one; 0 for no scope.
    pub scope: u32,
    /// Index into [`Named::names`] plus one, of the label or pool; 0 for none.
    pub label: u32,
    /// Index of the lane that allocated, as the file says; it may be one without a record.
    pub lane: u32,
    /// Index of the lane that counts it: another one's thread may have given its blocks a label.
    pub owner: u32,
    /// Its key's `KEY_` flags.
    pub flags: u32,
    /// Bytes requested for each block; with [`format::KEY_SIZED`] only.
    pub size: u64,
    /// What came by labelling, in blocks, usable and requested bytes.
    pub moved: [u64; 3],
    /// Bytes lent to blocks of a pool.
    pub lent_bytes: i64,
    /// The record.
    pub counters: format::Site,
}

/// Reads a profile file.
///
/// Errors: the file cannot be read, is no profile, is of a later version, or contradicts the
/// format.
pub fn read(path: &Path) -> Result<Profile, Error> {
    let io = |source| Error::Io { path: path.to_owned(), doing: "read", source };
    let mut file = input::open(path).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    let mut bytes = Vec::new();
    file.by_ref().take(format::PAGE).read_to_end(&mut bytes).map_err(io)?;
    let too_large = |size| Error::TooLarge { path: path.to_owned(), size, limit: FILE_LIMIT };
    if pack::is_packed(&bytes) {
        return match size > FILE_LIMIT {
            true => Err(too_large(size)),
            false => parse_packed(bytes.chain(file), size, path),
        };
    }
    let header = header(&bytes, path)?;
    if header.trace != 0 {
        let mut kept = (bytes, Vec::new());
        return parse_plain(Contents::without_events(&file, &header, size, path, &mut kept)?, path);
    }
    let end = header.file_end.min(size);
    if end > FILE_LIMIT {
        return Err(too_large(end));
    }
    let rest = end.saturating_sub(bytes.len() as u64);
    file.take(rest).read_to_end(&mut bytes).map_err(io)?;
    parse_plain(Contents::whole(&bytes), path)
}

/// Reads a profile from its bytes, packed or not; `path` is for messages.
///
/// Errors: the bytes are no profile, of a later version, or contradict the format.
pub fn parse(bytes: &[u8], path: &Path) -> Result<Profile, Error> {
    match pack::is_packed(bytes) {
        true => parse_packed(bytes, bytes.len() as u64, path),
        false => parse_plain(Contents::whole(bytes), path),
    }
}

fn parse_packed(packed: impl Read, size: u64, path: &Path) -> Result<Profile, Error> {
    let (bytes, fault) = pack::unpack(packed, size, path)?;
    let mut profile = parse_plain(Contents::whole(&bytes), path)?;
    profile.is_cut |= fault.is_some();
    profile.notes.extend(fault);
    Ok(profile)
}

fn parse_plain(contents: Contents, path: &Path) -> Result<Profile, Error> {
    let header = header(contents.bytes, path)?;
    let mode = match header.mode {
        m if m == format::Mode::Counters as u32 => format::Mode::Counters,
        m if m == format::Mode::Stacks as u32 => format::Mode::Stacks,
        m if m == format::Mode::Scopes as u32 => format::Mode::Scopes,
        m => {
            return Err(damaged(path, format!("invalid mode {m} in the header, expected 1 to 3")));
        }
    };
    let walk = Walk::over(contents, &header).map_err(|what| damaged(path, what))?;
    let strings = Strings { bytes: contents.bytes, ranges: walk.ranges(Kind::Strings) };
    let (modules, by_index) = modules(&walk, &strings);
    let nodes = || Nodes::read(&walk, &modules, &by_index);
    let (tree, (named, mut sites)) = threads::both(nodes, || {
        let (named, ids) = annotations::read(&walk, &strings, &header);
        let keyed = header.version > 1;
        let sites = sites(&walk, keyed.then_some(&ids));
        (named, sites)
    });
    sites.iter_mut().for_each(|site| site.node = tree.by_id.get(site.node));
    let mut timeline: Vec<_> =
        walk.records::<format::Sample>(Kind::Timeline).map(|r| r.1).collect();
    timeline.sort_by_key(|s| s.time_ns);
    let mut lanes: Vec<_> = walk.records::<format::Lane>(Kind::Lanes).map(|r| r.1).collect();
    lanes.sort_by_key(|lane| lane.index);
    let Walk { events, mut notes, is_cut, .. } = walk;
    notes.extend(mismatch(&named, &header));
    Ok(Profile {
        mode,
        program: strings.get(header.program).unwrap_or_default(),
        command: arguments(strings.raw(header.command)),
        host: strings.get(header.host).unwrap_or_default(),
        job: strings.get(header.job).unwrap_or_default(),
        modules,
        places: tree.places,
        nodes: tree.nodes,
        lanes,
        sites,
        named,
        timeline,
        node_ids: (header.trace & format::TRACE_FREE_STACKS != 0).then_some(tree.by_id),
        events,
        before: None,
        is_cut,
        notes,
        header,
    })
}

/// What to say of scopes that were ended out of turn.
fn mismatch(named: &Named, header: &FileHeader) -> Option<String> {
    let (ended, open) = named.mismatch.as_ref()?;
    let times = header.losses[format::Loss::ScopeMismatch as usize];
    let (ends, were) = if times == 1 { ("end", "was") } else { ("ends", "were") };
    let while_open = match open.is_empty() {
        true => "no scope was open".to_owned(),
        false => format!("`{open}` was open"),
    };
    Some(format!(
        "scope `{ended}` was ended while {while_open}; {times} such {ends} {were} repaired"
    ))
}

fn damaged(path: &Path, what: String) -> Error {
    Error::Damaged { path: path.to_owned(), what }
}

pub(crate) fn header(bytes: &[u8], path: &Path) -> Result<FileHeader, Error> {
    let foreign = |found: &str| Error::Foreign { path: path.to_owned(), found: found.to_owned() };
    match bytes.get(..format::MAGIC.len()) {
        None if bytes.is_empty() => {
            return Err(foreign(
                "the file is empty (process still starting, or died during startup)",
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

/// The strings of a file; a reference is valid only into a committed part of a strings extent.
pub(crate) struct Strings<'a> {
    bytes: &'a [u8],
    /// Ascending.
    ranges: Vec<Range>,
}

impl<'a> Strings<'a> {
    pub(crate) fn raw(&self, reference: u32) -> &'a [u8] {
        self.find(reference).unwrap_or_default()
    }

    fn get(&self, reference: u32) -> Option<String> {
        Some(text::from_bytes(self.find(reference)?))
    }

    fn find(&self, reference: u32) -> Option<&'a [u8]> {
        let offset = u64::from(reference) * format::STRING_GRANULE;
        let next = self.ranges.partition_point(|range| range.offset <= offset);
        let range = self.ranges.get(next.checked_sub(1)?)?;
        let at = usize::try_from(offset - range.offset).ok()?.checked_add(range.start)?;
        let (head, rest) = StringHeader::read_from_prefix(self.bytes.get(at..range.end)?).ok()?;
        let length = usize::try_from(head.length).ok().filter(|&l| l <= format::STRING_MAX)?;
        rest.get(..length)
    }
}

/// Arguments, each ended by a zero byte.
fn arguments(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.split(|&b| b == 0).map(text::from_bytes).collect()
}

/// The modules, and their indices by the number that nodes know them by.
fn modules(walk: &Walk, strings: &Strings) -> (Vec<Module>, FxHashMap<u64, u32>) {
    let mut modules = Vec::new();
    let mut by_index = FxHashMap::default();
    for (_, module, _) in walk.records::<format::Module>(Kind::Modules) {
        let nodes_can_name_it = u64::from(module.index) < 1 << (64 - format::ADDRESS_BITS);
        if module.index == 0 || !nodes_can_name_it || by_index.contains_key(&module.index.into()) {
            continue;
        }
        by_index.insert(module.index.into(), modules.len() as u32);
        let path = strings.raw(module.path);
        let path = OsStr::from_bytes(&path[..path.len().min(PATH_LIMIT)]).into();
        let id = &module.build_id[..module.build_id.len().min(module.build_id_length as usize)];
        modules.push(Module {
            path,
            start: module.start,
            end: module.end,
            bias: module.bias,
            build_id: id.to_vec(),
            unloaded: module.unloaded != 0,
        });
    }
    (modules, by_index)
}

/// The stack tree with callers first, and the way from ids in the file to it.
struct Nodes {
    nodes: Vec<Node>,
    places: Vec<Place>,
    /// Index into `nodes` plus one.
    by_id: SparseArray,
}

impl Nodes {
    fn read(walk: &Walk, modules: &[Module], by_index: &FxHashMap<u64, u32>) -> Nodes {
        let mut keys = Vec::new();
        let mut parents = Vec::new();
        let mut by_id = SparseArray::default();
        for (_, node, offset) in walk.records::<format::Node>(Kind::Nodes) {
            keys.push((node.key, node.flags));
            parents.push(node.parent);
            by_id.set((offset / format::NODE_GRANULE) as u32, keys.len() as u32);
        }
        parents.iter_mut().for_each(|parent| *parent = by_id.get(*parent));
        let mut places = Places::default();
        let mut nodes = Vec::with_capacity(keys.len());
        if parents.iter().zip(0..).all(|(&parent, index)| parent <= index) {
            // As one thread alone writes them, and so the most.
            let place = |key: &(u64, u32)| places.id(place(*key, modules, by_index));
            let node = |(&parent, place)| Node { parent, place };
            nodes.extend(parents.iter().zip(keys.iter().map(place)).map(node));
            return Nodes { nodes, places: places.list, by_id };
        }
        // index in the file plus one → index in `nodes` plus one
        let mut position = vec![0u32; keys.len() + 1];
        for (index, parent) in callers_first(&parents) {
            let place = places.id(place(keys[index as usize], modules, by_index));
            nodes.push(Node { parent: position[parent as usize], place });
            position[index as usize + 1] = nodes.len() as u32;
        }
        by_id.change(|index| position[index as usize]);
        Nodes { nodes, places: places.list, by_id }
    }
}

/// Orders nodes so that each comes after its parent: pairs of index and parent plus one. Where
/// parents form a circle, the circle is cut and its first node becomes an outermost one.
pub(crate) fn callers_first(parents: &[u32]) -> Vec<(u32, u32)> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        OnPath,
        Done,
    }
    let mut marks = vec![Mark::New; parents.len()];
    let mut order = Vec::with_capacity(parents.len());
    let mut path = Vec::new();
    for start in 0..parents.len() {
        let mut at = start;
        while marks[at] == Mark::New {
            marks[at] = Mark::OnPath;
            path.push(at);
            match parents[at].checked_sub(1) {
                Some(parent) => at = parent as usize,
                None => break,
            }
        }
        while let Some(index) = path.pop() {
            let parent = parents[index];
            let known = parent != 0 && marks[parent as usize - 1] == Mark::Done;
            order.push((index as u32, if known { parent } else { 0 }));
            marks[index] = Mark::Done;
        }
    }
    order
}

/// Distinct places, numbered as they come.
#[derive(Default)]
struct Places {
    list: Vec<Place>,
    ids: FxHashMap<Place, u32>,
}

impl Places {
    fn id(&mut self, place: Place) -> u32 {
        *self.ids.entry(place).or_insert_with(|| {
            self.list.push(place);
            (self.list.len() - 1) as u32
        })
    }
}

/// The place of a node's key and flags.
fn place((key, flags): (u64, u32), modules: &[Module], by_index: &FxHashMap<u64, u32>) -> Place {
    let address = key & ((1 << format::ADDRESS_BITS) - 1);
    let number = key >> format::ADDRESS_BITS;
    let is_mark = number == 0 && address < format::PAGE;
    let exact = is_mark || flags & format::NODE_EXACT_PC != 0;
    let address = if exact { address } else { address.saturating_sub(1) };
    match by_index.get(&number) {
        Some(&module) => {
            let bias = modules[module as usize].bias;
            Place { module, offset: address.wrapping_sub(bias) }
        }
        None => Place { module: NO_MODULE, offset: address },
    }
}

/// The sites, each with its node's id in the file; without `ids` (version 1) each has a stack and
/// nothing else.
fn sites(walk: &Walk, ids: Option<&Ids>) -> Vec<Site> {
    let site = |(extent, counters, offset): (&Extent, format::Site, u64)| {
        let id = (offset / format::SITE_GRANULE) as u32;
        let (scope, label, flags) = (0, 0, 0);
        let node = counters.key;
        let lane = extent.lane;
        let (moved, lent_bytes) = ([0; 3], 0);
        let (owner, size) = (lane, 0);
        let plain =
            Site { id, node, scope, label, lane, owner, flags, size, moved, lent_bytes, counters };
        let Some(ids) = ids.filter(|_| counters.key & format::KEY_BIT != 0) else {
            return plain;
        };
        let Some(key) = ids.key(counters.key) else {
            return Site { node: 0, ..plain };
        };
        Site {
            node: key.stack,
            scope: ids.scope(key.scope),
            label: ids.name(key.label),
            lane: key.lane,
            flags: key.flags,
            size: key.size,
            moved: [key.moved_blocks, key.moved_bytes, key.moved_requested_bytes],
            lent_bytes: key.lent_bytes as i64,
            ..plain
        }
    };
    walk.records::<format::Site>(Kind::Sites).map(site).collect()
}
