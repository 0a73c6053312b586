//! Joins the tables of several process images to a single process.
//!
//! Entries with equal contents are merged: frames by function, module and position, modules by path
//! and build-id, lanes by name, stacks and scope paths by their components. Every sum over the
//! joined sites is the sum over the sites of the parts.

use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::join_timeline;
use super::origin::{self, Origin};
use crate::model::{
    Attribution, Call, Completeness, DeviceApi, DeviceTotals, End, Entered, Frame, FrameId,
    Identity, Interception, Label, LabelId, Lane, LaneId, Lifetime, MappedTotals, Measures, Mode,
    Module, ModuleId, Process, Recording, Sampling, Scope, ScopeId, Shape, Site, SiteKind,
    SizeClass, StackId, StackNode, Tables, TimeTables, UnrecordedProgram, UnwinderStats,
};

/// Whether, and in which tree, joined processes are kept apart: then the outermost frame or scope
/// of each allocation is its origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Apart {
    /// Not kept apart: equal entries of several processes are merged.
    Nowhere,
    /// By frames such as `[rank 3]`.
    InStacks(Origin),
    /// By scopes such as `rank=3`.
    InScopes(Origin),
}

impl Recording {
    /// Joins all process images to a single process. Its peak, and the bytes at peak, are sums over
    /// the individual peaks; timeline, windows and marks are on a common clock.
    ///
    /// ```
    /// use heaptide_analysis::recording::join::Apart;
    /// use heaptide_analysis::model::{Process, Recording};
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # let read = || Process::from_bytes(&bytes, "12-0.profile".as_ref()).unwrap();
    /// let processes = vec![read(), read()];
    /// let path = "a.heaptide".into();
    /// let mut recording = Recording { path, processes, ..Recording::default() };
    /// recording.join(Apart::Nowhere);
    /// assert_eq!(recording.processes[0].identity.images, 2);
    /// ```
    pub fn join(&mut self, apart: Apart) {
        if self.processes.len() > 1 || apart != Apart::Nowhere && !self.processes.is_empty() {
            let processes = std::mem::take(&mut self.processes);
            self.processes.extend(join(processes, apart, &self.path));
            self.subject = None;
        }
    }

    /// Joins some of the process images to a single one, in the place of the first of them.
    pub(crate) fn join_some(&mut self, is_one: impl Fn(&Process) -> bool) {
        let Some(place) = self.processes.iter().position(&is_one) else {
            return;
        };
        let (some, mut rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.processes).into_iter().partition(is_one);
        let joined = match <[Process; 1]>::try_from(some) {
            Ok([alone]) => Some(alone),
            Err(some) => join(some, Apart::Nowhere, &self.path),
        };
        rest.splice(place..place, joined);
        self.processes = rest;
    }
}

fn join(processes: Vec<Process>, apart: Apart, path: &Path) -> Option<Process> {
    let heading = heading(&processes, path)?;
    let mut joining = Joining::new(heading);
    let mut places = vec![None; processes.len()];
    if let Apart::InStacks(by) | Apart::InScopes(by) = apart {
        for group in origin::groups(&processes, by) {
            group.members.iter().for_each(|&member| places[member] = Some(group.name.clone()));
        }
    }
    let mut time = join_timeline::Joining::of(&processes);
    let unit = joining.joined.sampling.map_or(0, |sampling| sampling.mean_bytes);
    for (index, (mut process, place)) in processes.into_iter().zip(places).enumerate() {
        in_units_of(&mut process, unit);
        let lanes = joining.lanes(&process.tables.lanes);
        time.add(index, &mut process, &lanes);
        let outermost = match (apart, place) {
            (Apart::InStacks(_), Some(place)) => Outermost::Frame(place),
            (Apart::InScopes(by), Some(place)) => Outermost::Scope(by, place),
            _ => Outermost::Nothing,
        };
        joining.add(process, &lanes, outermost);
    }
    let mut joined = joining.joined;
    time.finish(&mut joined);
    Some(joined)
}

/// The outermost frame or scope to put around all allocations of a process.
enum Outermost {
    Nothing,
    Frame(Arc<str>),
    Scope(Origin, Arc<str>),
}

/// The properties by which sites are merged.
type Key = (StackId, ScopeId, Option<LabelId>, LaneId, Option<u64>, Option<Call>, SiteKind);

/// The joined tables while processes are added, and indices of their entries.
struct Joining {
    joined: Process,
    modules: FxHashMap<(String, Vec<u8>), ModuleId>,
    frames: FxHashMap<Frame, FrameId>,
    stacks: FxHashMap<(StackId, FrameId), StackId>,
    scopes: FxHashMap<(ScopeId, Arc<str>, Arc<str>), ScopeId>,
    entered: FxHashMap<(ScopeId, LaneId), usize>,
    labels: FxHashMap<Label, LabelId>,
    shapes: FxHashMap<Shape, u32>,
    lanes: FxHashMap<String, LaneId>,
    sites: FxHashMap<Key, usize>,
}

impl Joining {
    fn new(joined: Process) -> Joining {
        Joining {
            joined,
            modules: FxHashMap::default(),
            frames: FxHashMap::default(),
            stacks: FxHashMap::default(),
            scopes: FxHashMap::default(),
            entered: FxHashMap::default(),
            labels: FxHashMap::default(),
            shapes: FxHashMap::default(),
            lanes: FxHashMap::default(),
            sites: FxHashMap::default(),
        }
    }

    /// Adds the lanes of a process and returns the joined lane of each.
    fn lanes(&mut self, lanes: &[Lane]) -> Vec<LaneId> {
        let joined = &mut self.joined.tables.lanes;
        let add = |lane: &Lane| {
            let id = *self.lanes.entry(lane.name.clone()).or_insert_with(|| {
                let nothing = Measures::default();
                joined.push(Lane {
                    name: lane.name.clone(),
                    threads: 0,
                    tids: Vec::new(),
                    measures: nothing,
                });
                LaneId((joined.len() - 1) as u32)
            });
            let sums = &mut joined[id.0 as usize];
            sums.threads = sums.threads.saturating_add(lane.threads);
            sums.tids.extend(&lane.tids);
            sums.measures.add(&lane.measures);
            id
        };
        lanes.iter().map(add).collect()
    }

    fn add(&mut self, process: Process, lanes: &[LaneId], outermost: Outermost) {
        self.sums(&process);
        let (bottom, root) = self.outermost(outermost);
        let stacks = self.stacks(&process, bottom);
        let scopes = self.scopes(process.tables.scopes, root);
        let labels: Vec<LabelId> =
            process.tables.labels.into_iter().map(|l| self.label(l)).collect();
        let shapes = process.tables.shapes.into_iter();
        let shapes: Vec<u32> = shapes
            .map(|shape| self.shape(Shape { label: labels[shape.label.0 as usize], ..shape }))
            .collect();
        for Entered { scope, lane, times } in process.tables.entered {
            let (scope, lane) = (scopes[scope.0 as usize], lanes[lane.0 as usize]);
            let rows = &mut self.joined.tables.entered;
            let at = *self.entered.entry((scope, lane)).or_insert_with(|| {
                rows.push(Entered { scope, lane, times: 0 });
                rows.len() - 1
            });
            rows[at].times = rows[at].times.saturating_add(times);
        }
        self.sites.reserve(process.tables.sites.len());
        let mut sites = Vec::with_capacity(process.tables.sites.len());
        for site in process.tables.sites {
            let index = self.site(Site {
                stack: stacks[site.stack.0 as usize],
                scope: scopes[site.scope.0 as usize],
                label: site.label.map(|label| labels[label.0 as usize]),
                lane: lanes[site.lane.0 as usize],
                ..site
            });
            sites.push(index as u32);
        }
        self.joined.time.traces_are_partial |= process.time.traces_are_partial;
        for mut trace in process.time.traces {
            trace.move_sites(|site| Some(sites[site as usize]));
            trace.move_scopes(|scope| scopes[scope.0 as usize]);
            trace.move_stacks(|stack| stacks[stack.0 as usize]);
            trace.move_lanes(|lane| lanes[lane.0 as usize]);
            trace.move_shapes(|shape| shapes.get(shape as usize).copied());
            self.joined.time.traces.push(trace);
        }
    }

    /// Adds the totals of a process.
    fn sums(&mut self, process: &Process) {
        let joined = &mut self.joined;
        let peak_bytes = joined.totals.peak_bytes.saturating_add(process.totals.peak_bytes);
        joined.totals.add(&process.totals);
        joined.totals.peak_bytes = peak_bytes;
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        add(&mut joined.completeness.peak_bound_bytes, process.completeness.peak_bound_bytes);
        add(&mut joined.completeness.unmatched_frees, process.completeness.unmatched_frees);
        add(&mut joined.unwinder.frames_stepped, process.unwinder.frames_stepped);
        add(&mut joined.unwinder.rules_evaluated, process.unwinder.rules_evaluated);
        joined.tables.lanes_at_once =
            joined.tables.lanes_at_once.saturating_add(process.tables.lanes_at_once);
        let limit = &mut joined.completeness.profile_limit;
        *limit = limit.or(process.completeness.profile_limit);
        for loss in &process.completeness.losses {
            match joined.completeness.losses.iter_mut().find(|known| known.name == loss.name) {
                Some(known) => add(&mut known.count, loss.count),
                None => joined.completeness.losses.push(*loss),
            }
        }
        for class in &process.tables.histogram {
            let classes = &mut joined.tables.histogram;
            match classes.binary_search_by_key(&class.size_min, |c| c.size_min) {
                Ok(at) => {
                    let SizeClass { requested, usable, freed, .. } = &mut classes[at];
                    add(requested, class.requested);
                    add(usable, class.usable);
                    add(freed, class.freed);
                }
                Err(at) => classes.insert(at, *class),
            }
        }
    }

    /// Returns the stack and scope that become the roots of those of a process.
    fn outermost(&mut self, outermost: Outermost) -> (StackId, ScopeId) {
        match outermost {
            Outermost::Nothing => (StackId(0), ScopeId(0)),
            Outermost::Frame(name) => {
                let frame = self.frame(Frame::named(format!("[{name}]")));
                (self.stack(StackId(0), frame), ScopeId(0))
            }
            Outermost::Scope(by, name) => {
                let value = name.strip_prefix(by.name()).map_or(&*name, str::trim_start);
                let scope = Scope::new(ScopeId(0), by.name().into(), value.into());
                (StackId(0), self.scope(scope))
            }
        }
    }

    fn stacks(&mut self, process: &Process, bottom: StackId) -> Vec<StackId> {
        let modules: Vec<ModuleId> =
            process.tables.modules.iter().map(|m| self.module(m)).collect();
        let frame = |frame: &Frame| {
            let module = frame.module.map(|module| modules[module.0 as usize]);
            self.frame(Frame { module, ..frame.clone() })
        };
        let frames: Vec<FrameId> = process.tables.frames.iter().map(frame).collect();
        self.stacks.reserve(process.tables.stacks.len());
        let mut stacks = Vec::with_capacity(process.tables.stacks.len());
        stacks.push(bottom);
        for node in process.tables.stacks.iter().skip(1) {
            let parent = stacks[node.parent.0 as usize];
            stacks.push(self.stack(parent, frames[node.frame.0 as usize]));
        }
        stacks
    }

    fn module(&mut self, module: &Module) -> ModuleId {
        let all = &mut self.joined.tables.modules;
        let key = (module.path.clone(), module.build_id.clone());
        let id = *self.modules.entry(key).or_insert_with(|| {
            all.push(module.clone());
            ModuleId((all.len() - 1) as u32)
        });
        all[id.0 as usize].unloaded &= module.unloaded;
        id
    }

    fn frame(&mut self, frame: Frame) -> FrameId {
        if let Some(&id) = self.frames.get(&frame) {
            return id;
        }
        let id = FrameId(self.joined.tables.frames.len() as u32);
        self.joined.tables.frames.push(frame.clone());
        self.frames.insert(frame, id);
        id
    }

    fn stack(&mut self, parent: StackId, frame: FrameId) -> StackId {
        let all = &mut self.joined.tables.stacks;
        *self.stacks.entry((parent, frame)).or_insert_with(|| {
            all.push(StackNode { parent, frame });
            StackId((all.len() - 1) as u32)
        })
    }

    fn scopes(&mut self, scopes: Vec<Scope>, root: ScopeId) -> Vec<ScopeId> {
        let mut ids: Vec<ScopeId> = Vec::with_capacity(scopes.len());
        for (index, scope) in scopes.into_iter().enumerate() {
            let (frees, bytes, times) = (scope.frees_here, scope.freed_here_bytes, scope.entered);
            let live = scope.clone();
            let id = match index {
                0 => root,
                _ => self.scope(Scope { parent: ids[scope.parent.0 as usize], ..scope }),
            };
            ids.push(id);
            let sums = &mut self.joined.tables.scopes[id.0 as usize];
            sums.entered = sums.entered.saturating_add(times);
            sums.frees_here = sums.frees_here.saturating_add(frees);
            sums.freed_here_bytes = sums.freed_here_bytes.saturating_add(bytes);
            sums.live_as(&live);
        }
        ids
    }

    /// Returns the path with this parent and name, which is added with counters of 0 if it is new.
    fn scope(&mut self, scope: Scope) -> ScopeId {
        let all = &mut self.joined.tables.scopes;
        let key = (scope.parent, scope.attribute.clone(), scope.value.clone());
        *self.scopes.entry(key).or_insert_with(|| {
            all.push(scope.without_counts());
            ScopeId((all.len() - 1) as u32)
        })
    }

    fn label(&mut self, label: Label) -> LabelId {
        let all = &mut self.joined.tables.labels;
        *self.labels.entry(label.clone()).or_insert_with(|| {
            all.push(label);
            LabelId((all.len() - 1) as u32)
        })
    }

    /// Adds a shape and returns its index.
    fn shape(&mut self, shape: Shape) -> u32 {
        let all = &mut self.joined.tables.shapes;
        let labelled = shape.labelled;
        let index = *self.shapes.entry(Shape { labelled: 0, ..shape }).or_insert_with_key(|key| {
            all.push(key.clone());
            (all.len() - 1) as u32
        });
        let sum = &mut all[index as usize].labelled;
        *sum = sum.saturating_add(labelled);
        index
    }

    /// Adds a site and returns its index.
    fn site(&mut self, site: Site) -> usize {
        let Site { stack, scope, label, lane, size, call, kind, .. } = site;
        let all = &mut self.joined.tables.sites;
        let key = (stack, scope, label, lane, size, call, kind);
        let at = *self.sites.entry(key).or_insert(all.len());
        let Some(sum) = all.get_mut(at) else {
            all.push(site);
            return at;
        };
        // The size that a label states is not a request: only real requests count for the largest
        // one.
        let largest_bytes = match (sum.is_only_labelled(), site.is_only_labelled()) {
            (true, false) => site.measures.largest_bytes,
            (false, true) => sum.measures.largest_bytes,
            _ => sum.measures.largest_bytes.max(site.measures.largest_bytes),
        };
        sum.measures.add(&site.measures);
        sum.measures.largest_bytes = largest_bytes;
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        add(&mut sum.moved.blocks, site.moved.blocks);
        add(&mut sum.moved.usable_bytes, site.moved.usable_bytes);
        add(&mut sum.moved.requested_bytes, site.moved.requested_bytes);
        add(&mut sum.lent_bytes, site.lent_bytes);
        at
    }
}

/// Returns the joined process without tables; `None` if there are no processes.
fn heading(processes: &[Process], path: &Path) -> Option<Process> {
    let first = processes.first()?;
    let alone = processes.len() == 1;
    let stacks = vec![StackNode { parent: StackId(0), frame: FrameId(0) }];
    let scopes = first.tables.scopes.first().map(nothing_counted).into_iter().collect();
    Some(Process {
        identity: identity(processes, first, path),
        lifetime: Lifetime {
            start_realtime_ns: 0,
            duration_ns: 0,
            duration_is_known: processes.iter().all(|p| p.lifetime.duration_is_known),
            end: end(processes),
        },
        mode: most_told(processes),
        sampling: sampling(processes),
        totals: Measures::default(),
        peak_time_ns: first.peak_time_ns,
        tables: Tables { stacks, scopes, ..Tables::default() },
        time: TimeTables::default(),
        completeness: Completeness {
            part: first.completeness.part.clone().filter(|_| alone),
            unrecorded: common(processes, |p| &p.completeness.unrecorded).copied().flatten(),
            in_part: processes.iter().find_map(|p| p.completeness.in_part.clone()),
            interceptions: interceptions(processes),
            starts_in_middle: processes.iter().any(|p| p.completeness.starts_in_middle),
            leaves_mappings: processes.iter().any(|p| p.completeness.leaves_mappings),
            drivers: drivers(processes),
            has_own_malloc: processes.iter().any(|p| p.completeness.has_own_malloc),
            other_allocator: processes.iter().find_map(|p| p.completeness.other_allocator),
            held_ns: processes.iter().filter_map(|p| p.completeness.held_ns).max(),
            searched: processes.iter().filter_map(|p| p.completeness.searched).max(),
            python_objects: processes.iter().filter_map(|p| p.completeness.python_objects).max(),
            off: processes.iter().map(|p| p.completeness.off).max().unwrap_or_default(),
            notes: notes(processes),
            unrecorded_programs: unrecorded_programs(processes),
            ..Completeness::default()
        },
        attribution: Attribution::default(),
        unwinder: UnwinderStats::default(),
        mapped: mapped(processes),
        mappings: None,
        device: device(processes),
        device_memory: None,
        search: None,
    })
}

/// Returns the interceptions of all images without duplicates.
fn interceptions(processes: &[Process]) -> Vec<Interception> {
    let mut joined: Vec<Interception> = Vec::new();
    for interception in processes.iter().flat_map(|p| &p.completeness.interceptions) {
        if !joined.contains(interception) {
            joined.push(interception.clone());
        }
    }
    joined
}

/// Returns the unrecorded programs of all images.
fn unrecorded_programs(processes: &[Process]) -> Vec<UnrecordedProgram> {
    let mut all: Vec<UnrecordedProgram> = Vec::new();
    for program in processes.iter().flat_map(|p| &p.completeness.unrecorded_programs) {
        let same = |known: &&mut UnrecordedProgram| {
            (known.reason, &known.path) == (program.reason, &program.path)
        };
        match all.iter_mut().find(same) {
            Some(known) => known.count = known.count.saturating_add(program.count),
            None => all.push(program.clone()),
        }
    }
    all
}

/// Returns sums over the mappings of all processes; peaks are added, too.
fn mapped(processes: &[Process]) -> Option<MappedTotals> {
    let mut all = processes.iter().filter_map(|process| process.mapped.as_ref());
    let mut joined = all.next()?.clone();
    for mapped in all {
        let peak_bytes = joined.totals.peak_bytes.saturating_add(mapped.totals.peak_bytes);
        joined.totals.add(&mapped.totals);
        joined.totals.peak_bytes = peak_bytes;
        joined.images = joined.images.saturating_add(mapped.images);
        for (class, measures) in &mapped.classes {
            match joined.classes.binary_search_by_key(class, |known| known.0) {
                Ok(at) => joined.classes[at].1.add(measures),
                Err(at) => joined.classes.insert(at, (*class, *measures)),
            }
        }
    }
    Some(joined)
}

/// Returns the device drivers of all processes; one that was not recorded somewhere counts as such.
fn drivers(processes: &[Process]) -> Vec<(DeviceApi, Option<&'static str>)> {
    let all = processes.iter().flat_map(|process| &process.completeness.drivers);
    let mut drivers: Vec<_> = all.copied().collect();
    drivers.sort_by_key(|&(api, why)| (api, why.is_none()));
    drivers.dedup_by_key(|(api, _)| *api);
    drivers
}

/// Returns sums over the device memory of all processes; peaks are added, too. Devices with one
/// number can be different ones on different hosts.
fn device(processes: &[Process]) -> Option<DeviceTotals> {
    let mut all = processes.iter().filter_map(|process| process.device.as_ref());
    let mut joined = all.next()?.clone();
    for device in all {
        let peak_bytes = joined.totals.peak_bytes.saturating_add(device.totals.peak_bytes);
        joined.totals.add(&device.totals);
        joined.totals.peak_bytes = peak_bytes;
        joined.images = joined.images.saturating_add(device.images);
        if let Some(pools) = &device.pools {
            joined.pools.get_or_insert_default().add(pools);
        }
        for sum in &device.devices {
            match joined.devices.iter_mut().find(|known| known.device == sum.device) {
                Some(known) => {
                    known.measures.add(&sum.measures);
                    let both = known.peak_bytes.zip(sum.peak_bytes);
                    known.peak_bytes = both.map(|(a, b)| a.saturating_add(b));
                }
                None => joined.devices.push(*sum),
            }
        }
    }
    joined.devices.sort_by_key(|sum| sum.device);
    Some(joined)
}

/// Returns the identity of the joined process; numbers of an image are kept only if it is the only
/// one.
fn identity(processes: &[Process], first: &Process, path: &Path) -> Identity {
    let alone = processes.len() == 1;
    let number = |of_first: u32| if alone { of_first } else { 0 };
    Identity {
        file: if alone { first.identity.file.clone() } else { path.to_owned() },
        pid: number(first.identity.pid),
        ppid: number(first.identity.ppid),
        image: number(first.identity.image),
        process_number: number(first.identity.process_number),
        execs: number(first.identity.execs),
        is_requested: alone && first.identity.is_requested,
        role: common(processes, |p| &p.identity.role).copied().unwrap_or_default(),
        forked: alone && first.identity.forked,
        program: common(processes, |p| &p.identity.program).cloned().unwrap_or_default(),
        command: command(processes),
        host: hosts(processes),
        rank: first
            .identity
            .rank
            .filter(|_| processes.iter().all(|p| p.identity.rank == first.identity.rank)),
        job: common(processes, |p| &p.identity.job).cloned().unwrap_or_default(),
        run: first
            .identity
            .run
            .clone()
            .filter(|_| processes.iter().all(|p| p.identity.run == first.identity.run)),
        images: processes.iter().map(|p| p.identity.images).fold(0, u32::saturating_add),
    }
}

fn nothing_counted(scope: &Scope) -> Scope {
    scope.without_counts()
}

/// Returns the value that all processes have in common.
fn common<'a, T: PartialEq + ?Sized>(
    processes: &'a [Process],
    of: impl Fn(&'a Process) -> &'a T,
) -> Option<&'a T> {
    let first = of(processes.first()?);
    processes.iter().all(|p| of(p) == first).then_some(first)
}

/// Returns the command of a single process, else the names of the programs.
fn command(processes: &[Process]) -> Vec<String> {
    /// Maximum number of program names.
    const NAMED: usize = 3;
    if let [process] = processes {
        return process.identity.command.clone();
    }
    let mut names: Vec<&str> = Vec::new();
    for process in processes {
        let path = process.identity.command.first().unwrap_or(&process.identity.program);
        let name = path.rsplit('/').next().unwrap_or_default();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let more = match names.len().checked_sub(NAMED) {
        None | Some(0) => String::new(),
        Some(n) => format!(" and {n} more"),
    };
    let named = names[..names.len().min(NAMED)].join(", ");
    vec![format!("{named}{more}")]
}

fn hosts(processes: &[Process]) -> String {
    if let Some(host) = common(processes, |p| &p.identity.host) {
        return host.clone();
    }
    let mut hosts: Vec<&str> = processes.iter().map(|p| p.identity.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    format!("{} hosts", hosts.len())
}

/// Returns the joined sampling parameters; `None` if no process was sampled. Processes that were
/// not sampled are exact.
fn sampling(processes: &[Process]) -> Option<Sampling> {
    let all = || processes.iter().filter_map(|process| process.sampling);
    let mean_bytes = all().map(|sampling| sampling.mean_bytes).max()?;
    let mut joined = Sampling { mean_bytes, ..Sampling::default() };
    for sampling in all() {
        let sampling = sampling.in_units_of(mean_bytes);
        joined.blocks = joined.blocks.saturating_add(sampling.blocks);
        joined.whole.add(&sampling.whole);
        let add = |sums: &mut [u64; 3], more: [u64; 3]| {
            sums.iter_mut().zip(more).for_each(|(sum, n)| *sum = sum.saturating_add(n));
        };
        add(&mut joined.rest, sampling.rest);
        add(&mut joined.raised, sampling.raised);
    }
    Some(joined)
}

/// Converts the effective numbers of the rows of a process to another sampling mean.
fn in_units_of(process: &mut Process, mean_bytes: u64) {
    let Some(sampling) = process.sampling.filter(|own| own.mean_bytes != mean_bytes) else {
        return;
    };
    process.sampling = Some(sampling.in_units_of(mean_bytes));
    let sites = process.tables.sites.iter_mut().map(|site| &mut site.measures);
    let lanes = process.tables.lanes.iter_mut().map(|lane| &mut lane.measures);
    for measures in sites.chain(lanes).chain([&mut process.totals]) {
        measures.spread = measures.spread.in_units(sampling.mean_bytes, mean_bytes);
    }
}

/// Returns the most detailed mode of the processes.
fn most_told(processes: &[Process]) -> Mode {
    let has = |mode| processes.iter().any(|p| p.mode == mode);
    match () {
        () if has(Mode::Stacks) => Mode::Stacks,
        () if has(Mode::Scopes) => Mode::Scopes,
        () => Mode::Counters,
    }
}

/// Returns the end of the joined process: it runs while any process does; else the worst end of the
/// programs that commands started, or of the processes that were started first in each run. If
/// another one was killed, only an end of all counts.
fn end(processes: &[Process]) -> End {
    if processes.iter().any(|p| p.lifetime.end == End::Running) {
        return End::Running;
    }
    let is_killed = |p: &Process| matches!(p.lifetime.end, End::Signaled(_));
    let has_started = processes.iter().any(|p| p.identity.is_requested);
    if !has_started && processes.iter().any(is_killed) {
        let mut ends = processes.iter().map(|p| p.lifetime.end).filter(|&end| end != End::Exec);
        let first = ends.next().unwrap_or(End::Unknown);
        return if ends.all(|end| end == first) { first } else { End::Unknown };
    }
    let run = |p: &Process| p.identity.run.as_ref().map(|run| run.number);
    let mut roots: FxHashMap<Option<u32>, (u32, End)> = FxHashMap::default();
    for process in processes {
        let number = process.identity.process_number;
        let root = roots.entry(run(process)).or_insert((number, process.lifetime.end));
        if root.0 == number {
            root.1 = process.lifetime.end;
        }
    }
    let badness = |end: &End| match end {
        End::Signaled(signal) => (4, *signal),
        End::Exited(status) if *status != 0 => (3, *status),
        End::Unknown => (2, 0),
        End::Exec => (1, 0),
        End::Exited(_) | End::Detached | End::Running => (0, 0),
    };
    let worst = roots.into_values().map(|root| root.1).max_by_key(badness);
    match worst {
        Some(end @ End::Signaled(_)) => end,
        Some(end) if !processes.iter().any(is_killed) => end,
        Some(_) | None => End::Unknown,
    }
}

/// Returns the distinct notes of all processes, each with its pid or the number of processes that
/// have it.
fn notes(processes: &[Process]) -> Vec<String> {
    if let [process] = processes {
        return process.completeness.notes.clone();
    }
    let mut said: Vec<(&str, Vec<u32>)> = Vec::new();
    let mut at: FxHashMap<&str, usize> = FxHashMap::default();
    let mut say = |note, pid| {
        let index = *at.entry(note).or_insert(said.len());
        match said.get_mut(index) {
            Some((_, pids)) => pids.push(pid),
            None => said.push((note, vec![pid])),
        }
    };
    let mode = most_told(processes);
    for process in processes {
        process.completeness.notes.iter().for_each(|note| say(note, process.identity.pid));
        match process.mode {
            other if other == mode => {}
            Mode::Counters => {
                say("recorded with --mode counters: in the totals only", process.identity.pid)
            }
            _ => say("recorded with --mode scopes: without stacks", process.identity.pid),
        }
        process.completeness.part.iter().for_each(|part| say(part, process.identity.pid));
    }
    let line = |(note, pids): (&str, Vec<u32>)| match &*pids {
        [pid] => format!("pid {pid}: {note}"),
        _ => format!("{} processes: {note}", pids.len()),
    };
    said.into_iter().map(line).collect()
}
