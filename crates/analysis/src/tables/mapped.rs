//! Builds the tables of a process's mappings with the code for blocks, by reading the profile as if
//! mappings were blocks.

use heaptide_format as format;
use heaptide_format::{FileHeader, MappingKey};
use rustc_hash::FxHashMap;
use zerocopy::FromZeros;

use super::figures::{Peak, histogram, sample};
use super::mapping_class::{self, Described};
use super::site_table::{Dimensions, SiteTable};
use crate::model::{
    Frame, Mapped, MappedChange, MappedTotals, Mapping, MappingClass, Measures, Module, Site,
    SiteKind, StackId, StackNode, Sum,
};
use crate::profile::annotations::{Named, Scope};
use crate::profile::parsed::{MappedProfile, Profile};

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
    let of_mappings = as_blocks(profile)?;
    let parsed = profile.mapped.as_deref()?;
    let table = SiteTable::of(&of_mappings, of, !parsed.changes.is_empty());
    let (mut sites, mut files): (Vec<Site>, Vec<_>) = (Vec::new(), Vec::new());
    for site in table.sites {
        let kind = MappingKey::unpack(site.size.unwrap_or_default());
        let site = site.with_stack(|node| stacks.of_node[node.slot()]);
        let bytes = site.measures.usable_bytes.checked_div(site.measures.allocations);
        let class = stacks.class(parsed, kind, bytes.unwrap_or_default(), site.stack);
        let mapping = Mapping { class, protection: kind.protection as u8, flags: kind.flags };
        sites.push(Site { kind: SiteKind::Mapped(mapping), size: None, ..site });
        files.push(parsed.files.get(&kind.file).cloned());
    }
    let changes = changes(profile, parsed, &table.of_site);
    let mut totals = Sum::over(&sites);
    let peak = Peak::of(&of_mappings, of_mappings.header.peak_bytes, &totals, now_ns);
    totals.peak_bytes = peak.bytes;
    let mapped = Mapped {
        files,
        lanes: table.lanes,
        histogram: histogram(&of_mappings, &totals),
        samples: of_mappings.timeline.iter().map(sample).collect(),
        changes,
        sites,
    };
    let totals =
        MappedTotals { totals, peak_time_ns: peak.time_ns, classes: by_class(&mapped.sites) };
    Some((mapped, totals))
}

/// Returns the changes of mapped bytes; none if they do not belong to known rows. `of_site`: the
/// row of each site of the profile.
fn changes(profile: &Profile, of: &MappedProfile, of_site: &[Option<u32>]) -> Vec<MappedChange> {
    if profile.before.is_some() {
        return Vec::new(); // counters are those since then
    }
    let ids = of.sites.iter().map(|site| site.id).zip(of_site.iter().copied());
    let rows: FxHashMap<u32, u32> = ids.filter_map(|(id, row)| Some((id, row?))).collect();
    let change = |change: &format::MappedChange| {
        Some(MappedChange {
            time_ns: change.time_ns,
            is_before_heap_peak: change.heap_peak_bytes < profile.header.peak_bytes,
            site: *rows.get(&change.site)?,
            mappings: i64::from(change.mappings.cast_signed()),
            bytes: change.bytes.cast_signed(),
        })
    };
    of.changes.iter().map(change).collect::<Option<_>>().unwrap_or_default()
}

/// Returns the profile with its mappings as blocks, and without those of the heap. `None` without
/// mappings.
fn as_blocks(profile: &Profile) -> Option<Profile> {
    let mapped = profile.mapped.as_deref()?;
    let heap = &profile.header;
    let header = FileHeader {
        epoch: heap.mapped_epoch,
        peak_bytes: heap.mapped_peak_bytes,
        peak_time_ns: heap.mapped_peak_time_ns,
        peak_bound_bytes: 0,
        trace: 0,
        ..*heap
    };
    // The lanes of the process, so that ids are the same in both.
    let lane = |lane: &format::Lane| {
        let counters = mapped.lanes.iter().find(|counters| counters.index == lane.index);
        let (name, threads, tid) = (lane.name, lane.threads, lane.tid);
        let nothing = format::Lane::new_zeroed();
        format::Lane { name, threads, tid, index: lane.index, ..*counters.unwrap_or(&nothing) }
    };
    Some(Profile {
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
        sites: mapped.sites.clone(),
        named: Named { scopes: without_frees(&profile.named.scopes), ..Named::default() },
        timeline: mapped.timeline.clone(),
        spans: Vec::new(),
        node_ids: None,
        events: Vec::new(),
        before: profile.before.as_ref().map(|before| Box::new(before.of_mappings())),
        held: None,
        lost: None,
        is_followed: false,
        is_cut: profile.is_cut,
        notes: Vec::new(),
        mapped: None,
        accounts: Vec::new(),
    })
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
