//! Reads one profile file.
//!
//! The bytes are untrusted: no input causes a panic, or uses memory beyond a small multiple of the
//! file's real size.
//!
//! A live profile grows while it is read: `file_end` and each `committed` are read before the
//! records that they cover, so all records read are complete; counters of a record can be of
//! slightly different times.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use heaptide_format as format;
use heaptide_format::{FileHeader, Kind, MappingKey};
use rustc_hash::FxHashMap;

use super::accounts;
use super::annotations::{self, Ids, Named};
use super::extents::{Contents, Extent, Walk};
use super::header::{FILE_LIMIT, damaged, header};
use super::nodes::Nodes;
use super::pack;
use super::parsed::{MappedProfile, Module, Profile, Site};
use super::strings::Strings;
use super::texts::Texts;
use crate::collections::optional_index::OptionalIndex;
use crate::error::Error;
use crate::files::input;
use crate::{text, threads};

/// Maximum length of module paths in bytes, the same as that of the kernel; longer ones are cut.
const PATH_LIMIT: usize = 4096;

/// Which part of a profile is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// Everything.
    All,
    /// Everything except stacks and sites of the heap, which are the largest parts: sufficient for
    /// looking up the names of its addresses.
    Names,
    /// Only the header: sufficient for how its process ended.
    Header,
}

/// Reads a profile file.
///
/// Errors: the file cannot be read, is not a profile, has a later version, or contradicts the
/// format.
pub fn read(path: &Path) -> Result<Profile, Error> {
    read_wanted(path, Wanted::All)
}

/// Reads a part of a profile file.
///
/// Errors: the same as those of [`read`].
pub(crate) fn read_wanted(path: &Path, wanted: Wanted) -> Result<Profile, Error> {
    let io = |source| Error::Io { path: path.to_owned(), doing: "read", source };
    let mut file = input::open(path).map_err(io)?;
    if wanted == Wanted::Header {
        let page = pack::first(file, format::PAGE).map_err(io)?;
        return parse_plain(Contents::whole(&page), path, wanted);
    }
    let mut bytes = Vec::with_capacity(format::PAGE as usize); // else nine calls read it
    file.by_ref().take(format::PAGE).read_to_end(&mut bytes).map_err(io)?;
    // Read the size after the header: a growing file is then at least as long as its header states.
    let size = file.metadata().map_err(io)?.len();
    let too_large = |size| Error::TooLarge { path: path.to_owned(), size, limit: FILE_LIMIT };
    if pack::is_packed(&bytes) {
        return if size > FILE_LIMIT {
            Err(too_large(size))
        } else {
            parse_packed(bytes.chain(file), size, path, wanted)
        };
    }
    let header = header(&bytes, path)?;
    if header.trace != 0 {
        let mut kept = (bytes, Vec::new());
        let contents = Contents::without_events(&file, &header, size, path, &mut kept)?;
        return parse_plain(contents, path, wanted);
    }
    let end = header.file_end.min(size);
    if end > FILE_LIMIT {
        return Err(too_large(end));
    }
    let rest = end.saturating_sub(bytes.len() as u64);
    file.take(rest).read_to_end(&mut bytes).map_err(io)?;
    parse_plain(Contents::whole(&bytes), path, wanted)
}

/// Returns the header of a profile or snapshot, packed or not.
///
/// Errors: the same as those of [`read`].
pub(crate) fn read_header(file: &Path) -> Result<FileHeader, Error> {
    let io = |source| Error::Io { path: file.to_owned(), doing: "read", source };
    let bytes = pack::first(input::open(file).map_err(io)?, format::PAGE).map_err(io)?;
    header(&bytes, file)
}

/// Reads a profile from its bytes, packed or not; `path` is for messages.
///
/// Errors: the bytes are not a profile, have a later version, or contradict the format.
pub fn parse(bytes: &[u8], path: &Path) -> Result<Profile, Error> {
    if pack::is_packed(bytes) {
        parse_packed(bytes, bytes.len() as u64, path, Wanted::All)
    } else {
        parse_plain(Contents::whole(bytes), path, Wanted::All)
    }
}

fn parse_packed(
    packed: impl Read,
    size: u64,
    path: &Path,
    wanted: Wanted,
) -> Result<Profile, Error> {
    let (bytes, fault) = pack::unpack(packed, size, path)?;
    let mut profile = parse_plain(Contents::whole(&bytes), path, wanted)?;
    profile.is_cut |= fault.is_some();
    profile.notes.extend(fault);
    Ok(profile)
}

fn parse_plain(contents: Contents, path: &Path, wanted: Wanted) -> Result<Profile, Error> {
    let header = header(contents.bytes, path)?;
    let mode = format::Mode::from_number(header.mode).ok_or_else(|| {
        damaged(path, format!("invalid mode {} in the header, expected 1 to 4", header.mode))
    })?;
    let walk = Walk::over(contents, &header).map_err(|what| damaged(path, what))?;
    let strings = Strings { bytes: contents.bytes, ranges: walk.ranges(Kind::Strings) };
    let (modules, by_index) = modules(&walk, &strings);
    let nodes = || match wanted {
        Wanted::All => Nodes::read(&walk, &strings, &modules, &by_index),
        Wanted::Names | Wanted::Header => Nodes::places(&walk, &modules, &by_index),
    };
    let (tree, ((named, accounts), (mut sites, node_ids), [mut mappings, mut device])) =
        threads::both(nodes, || {
            let mut texts = Texts::new(&strings, walk.length());
            let (named, ids) = annotations::read(&walk, &mut texts, &header);
            let accounts = accounts::read(&walk, &mut texts);
            let ids = (header.version > 1).then_some(&ids);
            let sites_of = |kind| sites(&walk, kind, ids);
            let heap = match wanted {
                Wanted::All => {
                    let (mut sites, mut nodes) = sites_of(Kind::Sites);
                    let (sampled, of_sampled) = sites_of(Kind::SampledSites);
                    sites.extend(sampled);
                    nodes.extend(of_sampled);
                    (sites, nodes)
                }
                Wanted::Names | Wanted::Header => (Vec::new(), Vec::new()),
            };
            ((named, accounts), heap, [Kind::MappedSites, Kind::DeviceSites].map(sites_of))
        });
    for (sites, node_ids) in [(&mut sites, &node_ids)]
        .into_iter()
        .chain([&mut mappings, &mut device].map(|(sites, node_ids)| (sites, &*node_ids)))
    {
        for (site, id) in sites.iter_mut().zip(node_ids) {
            site.node = tree.by_id.get(*id);
        }
    }
    let timeline = timeline(&walk, Kind::Timeline);
    let mut spans: Vec<format::Span> = walk.records(Kind::Spans).map(|r| r.1).collect();
    spans.sort_by_key(|span| span.begin_ns);
    let lanes = lanes(&walk, Kind::Lanes);
    let former_threads = walk.records(Kind::FormerThreads).map(|record| record.1).collect();
    let mapped = mapped(&walk, &strings, mappings.0);
    let device = outside(&walk, OF_DEVICE, device.0);
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
        python: tree.python,
        nodes: tree.nodes,
        made: tree.made,
        lanes,
        former_threads,
        sites,
        named,
        accounts,
        timeline,
        spans,
        node_ids: (header.trace & format::TRACE_FREE_STACKS != 0).then_some(tree.by_id),
        events,
        before: None,
        earlier_peak: None,
        held: None,
        search: None,
        lost: None,
        mapped,
        device,
        is_followed: false,
        is_cut,
        notes,
        header,
    })
}

/// Returns the samples of a kind, in order of time.
fn timeline(walk: &Walk, kind: Kind) -> Vec<format::Sample> {
    let mut timeline: Vec<_> = walk.records::<format::Sample>(kind).map(|r| r.1).collect();
    timeline.sort_by_key(|s| s.time_ns);
    timeline
}

/// Returns the lanes of a kind, in order of their index.
fn lanes(walk: &Walk, kind: Kind) -> Vec<format::Lane> {
    let mut lanes: Vec<_> = walk.records::<format::Lane>(kind).map(|r| r.1).collect();
    lanes.sort_by_key(|lane| lane.index);
    lanes
}

/// The kinds of records about mappings, and about device memory: lanes, samples and changes.
const OF_MAPPINGS: [Kind; 3] = [Kind::MappedLanes, Kind::MappedTimeline, Kind::MappedChanges];
const OF_DEVICE: [Kind; 3] = [Kind::DeviceLanes, Kind::DeviceTimeline, Kind::DeviceChanges];

/// Returns the records about mappings; `None` if there are no mappings.
fn mapped(walk: &Walk, strings: &Strings, sites: Vec<Site>) -> Option<Box<MappedProfile>> {
    let mut mapped = outside(walk, OF_MAPPINGS, sites)?;
    let files = &mut mapped.files;
    for site in &mapped.sites {
        let file = MappingKey::unpack(site.size).file;
        let path = strings.raw(file);
        if site.flags & format::KEY_MAPPING != 0 && !path.is_empty() {
            let path = &path[..path.len().min(PATH_LIMIT)];
            files.entry(file).or_insert_with(|| text::from_bytes(path).into());
        }
    }
    Some(mapped)
}

/// Returns the records about memory outside the heap, without names of files; `None` if there is no
/// such memory.
fn outside(walk: &Walk, kinds: [Kind; 3], sites: Vec<Site>) -> Option<Box<MappedProfile>> {
    if sites.is_empty() {
        return None;
    }
    let [of_lanes, of_timeline, of_changes] = kinds;
    let mut changes: Vec<format::MappedChange> =
        walk.records(of_changes).map(|record| record.1).collect();
    changes.sort_by_key(|change| change.time_ns); // stable: those at one time keep their order
    let (lanes, timeline) = (lanes(walk, of_lanes), timeline(walk, of_timeline));
    Some(Box::new(MappedProfile { sites, lanes, timeline, changes, files: FxHashMap::default() }))
}

/// Describes scopes that were ended out of order.
fn mismatch(named: &Named, header: &FileHeader) -> Option<String> {
    let (ended, open) = named.mismatch.as_ref()?;
    let times = header.losses[format::Loss::ScopeMismatch as usize];
    let (ends, were) = if times == 1 { ("end", "was") } else { ("ends", "were") };
    let while_open =
        if open.is_empty() { "no scope was open".to_owned() } else { format!("`{open}` was open") };
    Some(format!(
        "scope `{ended}` was ended while {while_open}; {times} such {ends} {were} repaired"
    ))
}

/// Splits arguments, each of which ends with a zero byte.
fn arguments(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.split(|&b| b == 0).map(text::from_bytes).collect()
}

/// Returns the modules, and their indices by the number that nodes contain.
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

/// Returns the sites of a kind without their nodes, and the id of each site's node in the file.
/// Without `ids` (version 1), sites have only stacks.
fn sites(walk: &Walk, kind: Kind, ids: Option<&Ids>) -> (Vec<Site>, Vec<u32>) {
    let site = |(extent, counters, offset): (&Extent, format::Site, u64)| {
        let id = (offset / format::SITE_GRANULE) as u32;
        let none = OptionalIndex::NONE;
        let lane = extent.lane;
        let plain = Site {
            id,
            node: none,
            scope: none,
            label: none,
            lane,
            owner: lane,
            flags: 0,
            size: 0,
            moved: [0; 3],
            lent_bytes: 0,
            counters,
            is_weighted: kind == Kind::SampledSites,
        };
        let Some(ids) = ids.filter(|_| counters.key & format::KEY_BIT != 0) else {
            return (plain, counters.key);
        };
        let Some(key) = ids.key(counters.key) else {
            return (plain, 0);
        };
        let keyed = Site {
            scope: ids.scope(key.scope),
            label: ids.name(key.label),
            lane: key.lane,
            flags: key.flags,
            size: key.size,
            moved: [key.moved_blocks, key.moved_bytes, key.moved_requested_bytes],
            lent_bytes: key.lent_bytes as i64,
            ..plain
        };
        (keyed, key.stack)
    };
    walk.records::<format::Site>(kind).map(site).unzip()
}
