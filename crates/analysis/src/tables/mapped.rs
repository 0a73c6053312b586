//! Builds the tables of a process's mappings, and of its device memory, with the code for blocks,
//! by reading the profile as if these were blocks.

use std::sync::Arc;

use heaptide_format as format;
use heaptide_format::{DeviceKey, FileHeader, MappingKey};
use rustc_hash::FxHashMap;
use zerocopy::FromZeros;

use super::figures::{Peak, histogram, sample};
use super::mapping_class::{self, Described};
use super::site_table::{Dimensions, SiteTable};
use crate::model::{
    Device, DeviceApi, DeviceClass, DeviceMemory, DeviceSum, DeviceTotals, Frame, Mapped,
    MappedChange, MappedTotals, Mapping, MappingClass, Measures, Module, PoolBytes, Site, SiteKind,
    StackId, StackNode, Sum,
};
use crate::profile::annotations::{Named, Scope};
use crate::profile::parsed::{MappedProfile, Profile, Space};

/// Frames, and the stacks that contain them.
pub(super) struct Stacks<'a> {
    pub(super) frames: &'a [Frame],
    pub(super) modules: &'a [Module],
    pub(super) stacks: &'a [StackNode],
    /// Stacks by slot of the index of a node.
    pub(super) of_node: &'a [StackId],
}

impl Stacks<'_> {
    /// Returns the class of mappings with this key, stack and average size in bytes.
    pub(super) fn class(
        &self,
        of: &MappedProfile,
        key: MappingKey,
        bytes: u64,
        stack: StackId,
    ) -> MappingClass {
        let file = of.files.get(&key.file).map(|name| &**name);
        mapping_class::class(&Described { key, file, bytes }, self.frames(stack))
    }

    /// Returns the frames of a stack with their modules, innermost first.
    pub(super) fn frames(
        &self,
        stack: StackId,
    ) -> impl Iterator<Item = (&Frame, Option<&Module>)> + Clone {
        let is_frame = |stack: &StackId| stack.0 != 0;
        let parent =
            move |stack: &StackId| Some(self.stacks[stack.0 as usize].parent).filter(is_frame);
        std::iter::successors(Some(stack).filter(is_frame), parent).map(|stack| {
            let frame = &self.frames[self.stacks[stack.0 as usize].frame.0 as usize];
            (frame, frame.module.map(|module| &self.modules[module.0 as usize]))
        })
    }
}

/// Returns the mappings of a profile and their totals; `None` if there are none. `now_ns` is when
/// the process ended, or was read.
pub(super) fn tables(
    profile: &Profile,
    of: &Dimensions,
    stacks: &Stacks,
    now_ns: u64,
) -> Option<(Mapped, MappedTotals)> {
    let parsed = profile.mapped.as_deref()?;
    let kind = |key: u64, site: &Site| {
        let key = MappingKey::unpack(key);
        let bytes = site.measures.usable_bytes.checked_div(site.measures.allocations);
        let class = stacks.class(parsed, key, bytes.unwrap_or_default(), site.stack);
        let mapping = Mapping { class, protection: key.protection as u8, flags: key.flags };
        (SiteKind::Mapped(mapping), parsed.files.get(&key.file).cloned())
    };
    let (mapped, totals, peak_time_ns) =
        tables_of(profile, Space::Mapped, (of, stacks), kind, now_ns)?;
    let classes = by_class(&mapped.sites);
    let totals = MappedTotals { totals, peak_time_ns, classes, images: 1 };
    Some((mapped, totals))
}

/// Returns the device memory of a profile and its totals; `None` if there is none. `now_ns` is as
/// above.
pub(super) fn device_tables(
    profile: &Profile,
    of: &Dimensions,
    stacks: &Stacks,
    now_ns: u64,
) -> Option<(Mapped, DeviceTotals)> {
    let kind = |key: u64, _: &Site| {
        let memory = (key != 0).then(|| device_memory(DeviceKey::unpack(key)));
        (SiteKind::Device(memory), None)
    };
    let (device, totals, peak_time_ns) =
        tables_of(profile, Space::Device, (of, stacks), kind, now_ns)?;
    let (devices, pools) = (by_device(&device), pools(&device.sites));
    Some((device, DeviceTotals { totals, peak_time_ns, devices, pools, images: 1 }))
}

fn device_memory(key: DeviceKey) -> DeviceMemory {
    let api = match key.api {
        api if api == format::DeviceApi::Cuda as u8 => DeviceApi::Cuda,
        api if api == format::DeviceApi::Hip as u8 => DeviceApi::Hip,
        api if api == format::DeviceApi::LevelZero as u8 => DeviceApi::LevelZero,
        api if api == format::DeviceApi::Offload as u8 => DeviceApi::Offload,
        _ => DeviceApi::Other,
    };
    let class = match key.class {
        class if class == format::DeviceClass::Memory as u8 => DeviceClass::Memory,
        class if class == format::DeviceClass::Stream as u8 => DeviceClass::Stream,
        class if class == format::DeviceClass::Array as u8 => DeviceClass::Array,
        class if class == format::DeviceClass::Physical as u8 => DeviceClass::Physical,
        class if class == format::DeviceClass::Announced as u8 => DeviceClass::Announced,
        class if class == format::DeviceClass::PoolBlock as u8 => DeviceClass::PoolBlock,
        class if class == format::DeviceClass::PoolChunk as u8 => DeviceClass::PoolChunk,
        _ => DeviceClass::Other,
    };
    let number = Some(key.device).filter(|&number| number != format::DEVICE_UNKNOWN);
    DeviceMemory { device: Device { api, number }, class }
}

/// Returns the tables of memory outside the heap, its totals, and the time of its peak. `kind` has
/// the kind and the name of a row, from the packed properties in its key.
fn tables_of(
    profile: &Profile,
    space: Space,
    (of, stacks): (&Dimensions, &Stacks),
    kind: impl Fn(u64, &Site) -> (SiteKind, Option<Arc<str>>),
    now_ns: u64,
) -> Option<(Mapped, Measures, u64)> {
    let parsed = parsed(profile, space)?;
    let as_blocks = as_blocks(profile, parsed, space);
    let table = SiteTable::of(&as_blocks, of, !parsed.changes.is_empty());
    let (mut sites, mut files): (Vec<Site>, Vec<_>) = (Vec::new(), Vec::new());
    for site in table.sites {
        let key = site.size.unwrap_or_default();
        let site = site.with_stack(|node| stacks.of_node[node.slot()]);
        let (kind, file) = kind(key, &site);
        sites.push(Site { kind, size: None, ..site });
        files.push(file);
    }
    let changes = changes(profile, parsed, &table.of_site);
    let mut totals = Sum::over(&sites);
    let peak = Peak::of(&as_blocks, as_blocks.header.peak_bytes, &totals, now_ns);
    totals.peak_bytes = peak.bytes;
    let mapped = Mapped {
        files,
        lanes: table.lanes,
        histogram: histogram(&as_blocks, &totals),
        samples: as_blocks.timeline.iter().map(sample).collect(),
        changes,
        sites,
    };
    Some((mapped, totals, peak.time_ns))
}

fn parsed(profile: &Profile, space: Space) -> Option<&MappedProfile> {
    match space {
        Space::Mapped => profile.mapped.as_deref(),
        Space::Device => profile.device.as_deref(),
    }
}

/// Returns the changes of mapped bytes; none if they do not belong to known rows. `of_site`: the
/// row of each site of the profile.
fn changes(profile: &Profile, of: &MappedProfile, of_site: &[Option<u32>]) -> Vec<MappedChange> {
    if profile.before.is_some() {
        return Vec::new(); // counters are those since then
    }
    let ids = of.sites.iter().map(|site| site.id).zip(of_site.iter().copied());
    let rows: FxHashMap<u32, u32> = ids.filter_map(|(id, row)| Some((id, row?))).collect();
    let FileHeader { peak_bytes, peak_time_ns, reset_time_ns, .. } = profile.header;
    // At a reset, the heap's peak starts anew.
    let is_before_peak = |change: &format::MappedChange| {
        let is_after_reset = peak_time_ns < reset_time_ns && change.time_ns >= reset_time_ns;
        change.heap_peak_bytes < peak_bytes && !is_after_reset
    };
    let change = |change: &format::MappedChange| {
        Some(MappedChange {
            time_ns: change.time_ns,
            is_before_heap_peak: is_before_peak(change),
            site: *rows.get(&change.site)?,
            mappings: i64::from(change.mappings.cast_signed()),
            bytes: change.bytes.cast_signed(),
        })
    };
    of.changes.iter().map(change).collect::<Option<_>>().unwrap_or_default()
}

/// Returns the profile with memory outside the heap as blocks, and without those of the heap.
fn as_blocks(profile: &Profile, memory: &MappedProfile, space: Space) -> Profile {
    let heap = &profile.header;
    let (epoch, peak_bytes, peak_time_ns) = match space {
        Space::Mapped => (heap.mapped_epoch, heap.mapped_peak_bytes, heap.mapped_peak_time_ns),
        Space::Device => (heap.device_epoch, heap.device_peak_bytes, heap.device_peak_time_ns),
    };
    let header =
        FileHeader { epoch, peak_bytes, peak_time_ns, peak_bound_bytes: 0, trace: 0, ..*heap };
    // The lanes of the process, so that ids are the same in both.
    let lane = |lane: &format::Lane| {
        let counters = memory.lanes.iter().find(|counters| counters.index == lane.index);
        let (name, threads, tid) = (lane.name, lane.threads, lane.tid);
        let nothing = format::Lane::new_zeroed();
        format::Lane { name, threads, tid, index: lane.index, ..*counters.unwrap_or(&nothing) }
    };
    Profile {
        header,
        mode: format::Mode::Stacks,
        program: String::new(),
        command: Vec::new(),
        host: String::new(),
        job: String::new(),
        modules: Vec::new(),
        places: Vec::new(),
        python: Vec::new(),
        nodes: Vec::new(),
        made: Vec::new(),
        lanes: profile.lanes.iter().map(lane).collect(),
        former_threads: profile.former_threads.clone(),
        sites: memory.sites.clone(),
        named: Named { scopes: without_frees(&profile.named.scopes), ..Named::default() },
        timeline: memory.timeline.clone(),
        spans: Vec::new(),
        node_ids: None,
        events: Vec::new(),
        before: profile.before.as_ref().map(|before| Box::new(before.of_space(space))),
        earlier_peak: None,
        held: None,
        search: None,
        lost: None,
        is_followed: false,
        is_cut: profile.is_cut,
        notes: Vec::new(),
        mapped: None,
        device: None,
        accounts: Vec::new(),
    }
}

/// Returns scopes without frees: unmapping is counted by lane only.
fn without_frees(scopes: &[Scope]) -> Vec<Scope> {
    let mut scopes = scopes.to_vec();
    for scope in &mut scopes {
        (scope.counters.frees_here, scope.counters.freed_here_bytes) = (0, 0);
    }
    scopes
}

/// Returns the sums by class, for classes that occur.
fn by_class(sites: &[Site]) -> Vec<(MappingClass, Measures)> {
    let sum = |class| {
        let of_class = sites.iter().filter(
            |site| matches!(site.kind, SiteKind::Mapped(mapping) if mapping.class == class),
        );
        (class, Sum::over(of_class))
    };
    let occurs = |(_, measures): &(MappingClass, Measures)| measures.allocations > 0;
    MappingClass::ALL.into_iter().map(sum).filter(occurs).collect()
}

/// Returns the bytes of pools; `None` without chunks of pools.
fn pools(sites: &[Site]) -> Option<PoolBytes> {
    let mut sum: Option<PoolBytes> = None;
    for Site { kind, measures, .. } in sites {
        let (at_peak, live) = (measures.at_peak_bytes, measures.live_bytes);
        let none = PoolBytes::default();
        let part = match kind {
            kind if kind.is_pool_chunk() => PoolBytes { idle_at_peak: at_peak, idle: live, ..none },
            kind if kind.is_pool_block() => {
                PoolBytes { in_use_at_peak: at_peak, in_use: live, ..none }
            }
            _ => continue,
        };
        sum.get_or_insert_default().add(&part);
    }
    sum
}

/// Returns the sums by device, with the peak of each as far as all changes are known.
fn by_device(memory: &Mapped) -> Vec<DeviceSum> {
    let device = |site: &Site| site.kind.device_memory().map(|memory| memory.device);
    let mut devices: Vec<Device> = memory.sites.iter().filter_map(device).collect();
    devices.sort_unstable();
    devices.dedup();
    let sum = |of: Device| {
        let measures = Sum::over(memory.sites.iter().filter(|site| device(site) == Some(of)));
        let (mut live, mut peak) = (0i64, 0i64);
        for change in &memory.changes {
            if memory.sites.get(change.site as usize).and_then(device) == Some(of) {
                live = live.saturating_add(change.bytes);
                peak = peak.max(live);
            }
        }
        let is_whole = live == measures.live_bytes.cast_signed() && peak > 0;
        DeviceSum { device: of, measures, peak_bytes: is_whole.then_some(peak.cast_unsigned()) }
    };
    devices.into_iter().map(sum).collect()
}
