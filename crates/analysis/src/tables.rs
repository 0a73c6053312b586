//! One profile and its names into the tables of [`crate::model`].

use heaptide_format as format;
use rustc_hash::FxHashMap;

use crate::model::{
    Frame, FrameId, Lane, LaneId, Measures, Mode, Module, ModuleId, Process, Site, SizeClass,
    StackId, StackNode,
};
use crate::reader::{self, NO_MODULE, Profile};
use crate::recording::Ending;
use crate::symbols::{ModuleKey, Symbols};

/// Builds a process image's tables.
pub(crate) fn process(profile: Profile, symbols: &Symbols, ending: Ending) -> Process {
    let (frames, frames_of_place) = frames(&profile, symbols);
    let (stacks, stack_of_node) = stacks(&profile, &frames_of_place);
    let mut facts = Facts::new(&profile);
    match profile.mode {
        format::Mode::Stacks | format::Mode::Scopes => facts.add_sites(&profile, &stack_of_node),
        format::Mode::Counters => facts.add_lane_sites(&profile),
    }
    let (lanes, sites) = facts.finish();
    let mut totals = Measures::default();
    sites.iter().for_each(|site| totals.add(&site.measures));
    let header = &profile.header;
    totals.peak_bytes = header.peak_bytes;
    Process {
        file: ending.file,
        pid: header.pid,
        ppid: header.ppid,
        image: header.image,
        forked: header.forked != 0,
        start_realtime_ns: header.start_realtime_ns,
        duration_ns: ending.duration_ns,
        end: ending.end,
        mode: match profile.mode {
            format::Mode::Counters => Mode::Counters,
            format::Mode::Stacks => Mode::Stacks,
            format::Mode::Scopes => Mode::Scopes,
        },
        totals,
        peak_time_ns: header.peak_time_ns,
        peak_bound_bytes: header.peak_bound_bytes,
        unmatched_frees: header.unmatched_frees,
        losses: losses(header),
        histogram: histogram(&profile.lanes),
        lanes,
        frames,
        stacks,
        sites,
        unwinder: (header.frames_stepped, header.rules_evaluated),
        lanes_at_once: header.lanes_at_once,
        modules: profile.modules.into_iter().map(module).collect(),
        program: profile.program,
        command: profile.command,
        host: profile.host,
        timeline: profile.timeline,
        notes: ending.notes,
    }
}

fn module(module: reader::Module) -> Module {
    Module {
        path: module.path,
        start: module.start,
        end: module.end,
        bias: module.bias,
        build_id: module.build_id,
        unloaded: module.unloaded,
    }
}

fn losses(header: &format::FileHeader) -> Vec<(&'static str, &'static str, u64)> {
    const LATER: (&str, &str) = ("other", "losses of a kind this heaptide does not know");
    let named = header.losses.iter().enumerate();
    let named = named.map(|(i, &count)| (format::LOSS_NAMES.get(i).unwrap_or(&LATER), count));
    named.filter(|&(_, count)| count > 0).map(|(name, count)| (name.0, name.1, count)).collect()
}

fn histogram(lanes: &[format::Lane]) -> Vec<SizeClass> {
    let sum = |of: fn(&format::Lane) -> &[u64; format::SIZE_CLASSES], class: usize| {
        lanes.iter().fold(0u64, |sum, lane| sum.saturating_add(of(lane)[class]))
    };
    let class = |class| {
        let (size_min, size_max) = format::class_bounds(class);
        SizeClass {
            size_min,
            size_max,
            requested: sum(|lane| &lane.requested_classes, class),
            usable: sum(|lane| &lane.usable_classes, class),
            freed: sum(|lane| &lane.freed_classes, class),
        }
    };
    let occurs = |c: &SizeClass| c.requested | c.usable | c.freed != 0;
    (0..format::SIZE_CLASSES).map(class).filter(occurs).collect()
}

/// The frames of all places, and the range of each place's, outermost first.
fn frames(profile: &Profile, symbols: &Symbols) -> (Vec<Frame>, Vec<(u32, u32)>) {
    let names: Vec<_> = profile
        .modules
        .iter()
        .map(|m| symbols.module(&ModuleKey { path: m.path.clone(), build_id: m.build_id.clone() }))
        .collect();
    let mut frames = Vec::with_capacity(profile.places.len());
    let mut ranges = Vec::with_capacity(profile.places.len());
    for place in &profile.places {
        let start = frames.len();
        let offset = place.offset;
        let module = (place.module != NO_MODULE).then_some(ModuleId(place.module));
        let known = module.and_then(|id| names[id.0 as usize]).and_then(|m| m.get(offset));
        frames.extend(known.into_iter().flatten().enumerate().map(|(depth, name)| Frame {
            function: name.function.map(str::to_owned),
            module,
            offset,
            file: name.file.map(str::to_owned),
            line: name.line,
            inlined: depth > 0,
        }));
        if frames.len() == start {
            let function = mark(place).map(str::to_owned);
            frames.push(Frame { function, module, offset, file: None, line: None, inlined: false });
        }
        ranges.push((start as u32, frames.len() as u32));
    }
    (frames, ranges)
}

/// What a pseudo frame stands for.
fn mark(place: &reader::Place) -> Option<&'static str> {
    match place.offset {
        _ if place.module != NO_MODULE => None,
        mark if mark == format::Gap::TooDeep as u64 => Some("[deeper frames cut]"),
        mark if mark == format::Gap::NoRoom as u64 => Some("[frames not stored]"),
        _ => None,
    }
}

/// The stack tree with inlined frames in it, and the stack of each node. Children of one stack with
/// the same frame are one stack.
fn stacks(profile: &Profile, frames_of_place: &[(u32, u32)]) -> (Vec<StackNode>, Vec<StackId>) {
    let mut stacks = vec![StackNode { parent: StackId(0), frame: FrameId(0) }];
    let mut ids = FxHashMap::default();
    ids.reserve(profile.nodes.len());
    let mut of_node = vec![StackId(0)]; // by node plus one; 0 has no stack
    for node in &profile.nodes {
        let mut stack = of_node[node.parent as usize];
        let (first, end) = frames_of_place[node.place as usize];
        for frame in first..end {
            stack = *ids.entry((stack, frame)).or_insert_with(|| {
                stacks.push(StackNode { parent: stack, frame: FrameId(frame) });
                StackId((stacks.len() - 1) as u32)
            });
        }
        of_node.push(stack);
    }
    (stacks, of_node)
}

/// Sites and lanes as they are put together.
struct Facts {
    sites: Vec<Site>,
    lanes: Vec<Lane>,
    ids: FxHashMap<u32, LaneId>,
}

impl Facts {
    fn new(profile: &Profile) -> Facts {
        let mut facts = Facts { sites: Vec::new(), lanes: Vec::new(), ids: FxHashMap::default() };
        for lane in &profile.lanes {
            let name = lane.name.split(|&b| b == 0).next().unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            let id = facts.lane(lane.index, || name);
            facts.lanes[id.0 as usize].threads = lane.threads;
        }
        facts
    }

    /// The lane of an index; one that has sites but no record (its extent was lost) gets a name
    /// made up.
    fn lane(&mut self, index: u32, name: impl FnOnce() -> String) -> LaneId {
        *self.ids.entry(index).or_insert_with(|| {
            self.lanes.push(Lane { name: name(), threads: 0, measures: Measures::default() });
            LaneId((self.lanes.len() - 1) as u32)
        })
    }

    /// Mode stacks: a row for each site, and what a lane freed on the lane's row without a stack,
    /// so that sums over sites are the totals.
    fn add_sites(&mut self, profile: &Profile, stack_of_node: &[StackId]) {
        let mut base = FxHashMap::default();
        for site in &profile.sites {
            let lane = self.lane(site.lane, || format!("lane {}", site.lane));
            let stack = stack_of_node[site.node as usize];
            let measures = site_measures(&site.counters, profile.header.epoch);
            if stack == StackId(0) {
                base.entry(lane).or_insert(self.sites.len());
            }
            self.sites.push(Site { stack, lane, measures });
        }
        for record in &profile.lanes {
            let here = Measures {
                frees_here: record.frees_here,
                freed_here_bytes: record.freed_here_bytes,
                ..Measures::default()
            };
            let lane = self.lane(record.index, String::new);
            match base.get(&lane) {
                Some(&site) => self.sites[site].measures.add(&here),
                None => self.sites.push(Site { stack: StackId(0), lane, measures: here }),
            }
        }
    }

    /// Mode counters: a row for each lane. Frees are known where they were made, not whose blocks
    /// they were: where a lane freed more than it allocated, the excess is taken off other lanes'
    /// live, in order.
    fn add_lane_sites(&mut self, profile: &Profile) {
        let first = self.sites.len();
        let (mut blocks, mut bytes) = (0, 0);
        for record in &profile.lanes {
            let lane = self.lane(record.index, String::new);
            let measures = lane_measures(record);
            blocks += i128::from(measures.frees.saturating_sub(measures.allocations));
            bytes += i128::from(measures.freed_bytes.saturating_sub(measures.usable_bytes));
            self.sites.push(Site { stack: StackId(0), lane, measures });
        }
        for Site { measures, .. } in &mut self.sites[first..] {
            take(&mut measures.live_blocks, &mut blocks);
            take(&mut measures.live_bytes, &mut bytes);
        }
    }

    /// Sums lanes up and leaves out rows that say nothing.
    fn finish(mut self) -> (Vec<Lane>, Vec<Site>) {
        self.sites.retain(|site| site.measures != Measures::default());
        for site in &self.sites {
            self.lanes[site.lane.0 as usize].measures.add(&site.measures);
        }
        (self.lanes, self.sites)
    }
}

fn take(from: &mut u64, excess: &mut i128) {
    let part = i128::from(*from).min(*excess);
    *from -= part as u64;
    *excess -= part;
}

/// A site's row. The counters of a live profile are of slightly different moments: no difference
/// goes below 0.
fn site_measures(site: &format::Site, epoch: u32) -> Measures {
    let frees = site.frees.saturating_add(site.remote_frees);
    let freed_bytes = site.freed_bytes.saturating_add(site.remote_freed_bytes);
    let (owner_blocks, owner_bytes) = match site.epoch >= epoch {
        true => (site.peak_blocks, site.peak_bytes),
        false => (
            site.allocations.saturating_sub(site.frees),
            site.usable_bytes.saturating_sub(site.freed_bytes),
        ),
    };
    let (remote_blocks, remote_bytes) = match site.remote_epoch >= epoch {
        true => (site.remote_peak_frees, site.remote_peak_freed_bytes),
        false => (site.remote_frees, site.remote_freed_bytes),
    };
    Measures {
        allocations: site.allocations,
        frees,
        reallocations: site.reallocations,
        failed: site.failed.into(),
        requested_bytes: site.requested_bytes,
        usable_bytes: site.usable_bytes,
        freed_bytes,
        live_blocks: site.allocations.saturating_sub(frees),
        live_bytes: site.usable_bytes.saturating_sub(freed_bytes),
        peak_bytes: 0,
        at_peak_blocks: owner_blocks.saturating_sub(remote_blocks),
        at_peak_bytes: owner_bytes.saturating_sub(remote_bytes),
        temporary: site.temporary,
        cross_thread_frees: site.remote_frees,
        largest_bytes: site.largest_bytes,
        frees_here: 0,
        freed_here_bytes: 0,
    }
}

fn lane_measures(lane: &format::Lane) -> Measures {
    Measures {
        allocations: lane.allocations,
        frees: lane.frees_here,
        reallocations: lane.reallocations,
        failed: lane.failed,
        requested_bytes: lane.requested_bytes,
        usable_bytes: lane.usable_bytes,
        freed_bytes: lane.freed_here_bytes,
        live_blocks: lane.allocations.saturating_sub(lane.frees_here),
        live_bytes: lane.usable_bytes.saturating_sub(lane.freed_here_bytes),
        temporary: lane.temporary,
        largest_bytes: lane.largest_bytes,
        frees_here: lane.frees_here,
        freed_here_bytes: lane.freed_here_bytes,
        ..Measures::default()
    }
}
