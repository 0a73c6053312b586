//! Selects the kind of memory: heap, mappings, both, or device memory.
//!
//! The heap and the mappings of a process have separate totals, peaks and sites. Initially, the
//! tables of a process contain the heap. Selecting mappings replaces it; selecting all adds both.
//! Selecting the program's memory adds only mappings whose bytes are not counted elsewhere. Device
//! memory is never added to that of the host.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::{
    Device, Frame, FrameId, LabelId, Lane, Mapped, MappedTotals, Mapping, MappingClass, Measures,
    Mode, Process, PythonObjects, Sample, Site, SiteKind, SizeClass, StackId, StackNode, Sum,
    Tables,
};
use crate::quantity::{bytes, duration};
use crate::selection::mapped_history::History;

/// A kind of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemoryKind {
    /// Blocks of the allocator.
    #[default]
    Heap,
    /// Memory mapped by the program and its allocator.
    Mapped,
    /// Both.
    All,
    /// Blocks of the allocator, and memory that the program maps for its own data. Mappings that
    /// contain blocks, thread stacks, files and reserved addresses are excluded.
    Program,
    /// Memory of devices.
    Device,
}

impl MemoryKind {
    /// All kinds, in the order of the help.
    pub const ALL: [MemoryKind; 5] = [
        MemoryKind::Heap,
        MemoryKind::Mapped,
        MemoryKind::All,
        MemoryKind::Program,
        MemoryKind::Device,
    ];

    /// Returns the name in options.
    pub const fn name(self) -> &'static str {
        match self {
            MemoryKind::Heap => "heap",
            MemoryKind::Mapped => "mapped",
            MemoryKind::All => "all",
            MemoryKind::Program => "program",
            MemoryKind::Device => "device",
        }
    }
}

/// Error of a name that is not a kind of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownMemoryKind;

impl fmt::Display for UnknownMemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected heap, mapped, all, program or device")
    }
}

impl std::error::Error for UnknownMemoryKind {}

impl FromStr for MemoryKind {
    type Err = UnknownMemoryKind;

    fn from_str(name: &str) -> Result<MemoryKind, UnknownMemoryKind> {
        MemoryKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or(UnknownMemoryKind)
    }
}

/// What arenas of Python contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arenas {
    /// Recorded blocks.
    Blocks,
    /// Objects that were not recorded as blocks.
    Data,
}

impl Arenas {
    fn of(process: &Process) -> Arenas {
        match process.completeness.python_objects {
            None | Some(PythonObjects::None | PythonObjects::Blocks) => Arenas::Blocks,
            Some(_) => Arenas::Data,
        }
    }
}

/// Samples are exact to one percent of the peak, so smaller parts count as nothing.
const NOTHING_PART: u64 = 64;

/// Returns whether bytes are about nothing beside a peak.
fn is_nothing(bytes: u64, peak: u64) -> bool {
    bytes <= peak / NOTHING_PART
}

/// The moment at which heap and mappings together have their peak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Together {
    /// When the heap has its peak, for which all rows are known.
    AtHeapPeak,
    /// When both have about their peak.
    AtBothPeaks,
    /// When the mappings have their peak, and the heap has about nothing.
    AtMappedPeak,
    /// When the heap has less than at its peak; it is not known by row.
    Unknown,
}

/// Peak usage of heap and mappings together.
struct Joint {
    moment: Together,
    /// How much higher the sum of a moment at which both are known can be, or how much lower the
    /// true peak can be than the sum of both peaks.
    bound_bytes: u64,
}

impl Joint {
    /// Determines the moment. `heap_bytes`, `heap_then`: of the heap, at its peak and at that of
    /// the mappings; `sampled`: the highest sum in samples; `at_most`: a bound of all sums.
    fn of(
        (heap_bytes, heap_then): (u64, u64),
        history: &History,
        sampled: u64,
        at_most: u64,
    ) -> Joint {
        let at_heap_peak = heap_bytes.saturating_add(history.heap_peak.bytes);
        let at_mapped_peak = heap_then.saturating_add(history.peak.bytes);
        let both_peaks = heap_bytes.saturating_add(history.peak.bytes);
        let at_most = at_most.min(both_peaks);
        let known = at_heap_peak.max(sampled).min(both_peaks);
        let above = |bytes: u64| at_most.saturating_sub(bytes);
        let below = both_peaks - known;
        let (moment, bound_bytes) = if is_nothing(above(at_heap_peak), at_most) {
            (Together::AtHeapPeak, above(at_heap_peak))
        } else if is_nothing(below, at_most) {
            (Together::AtBothPeaks, below)
        } else if is_nothing(heap_then, at_most) && is_nothing(above(at_mapped_peak), at_most) {
            (Together::AtMappedPeak, above(at_mapped_peak))
        } else {
            (Together::Unknown, below)
        };
        Joint { moment, bound_bytes }
    }
}

impl Mapping {
    /// Returns whether it is memory for data of the program that no recorded block contains:
    /// anonymous or shared memory that is not only reserved. `arenas` has the purpose of Python's
    /// arenas.
    fn is_of_program(&self, arenas: Arenas) -> bool {
        let is_data = match self.class {
            MappingClass::PythonArena => arenas == Arenas::Data,
            class => class.is_of_program(),
        };
        is_data && self.protection != 0
    }
}

impl Process {
    /// Returns the sum over the mappings that [`MemoryKind::Program`] adds to the heap; `None`
    /// without such mappings, or after a kind was selected.
    pub fn program_mappings(&self) -> Option<Measures> {
        let mapped = self.mappings.as_deref()?;
        let arenas = Arenas::of(self);
        let sum = Sum::over(mapped.sites.iter().filter(|site| is_of_program(site, arenas)));
        (sum.allocations > 0).then_some(sum)
    }

    /// Returns the peak of these mappings; if that is not known, their bytes at the peak of all
    /// mappings.
    pub fn program_mapped_peak(&self) -> u64 {
        let Some(sum) = self.program_mappings() else { return 0 };
        let arenas = Arenas::of(self);
        let of_program = |site: &Site| is_of_program(site, arenas);
        let history = self.mappings.as_deref().and_then(|mapped| History::of(mapped, of_program));
        history.map_or(sum.at_peak_bytes, |history| history.peak.bytes)
    }

    /// Selects a kind of memory. Can be called only once, because the other kind is dropped.
    ///
    /// Events are recorded only for the heap, so a process of another kind has no trace, and
    /// labels, windows and marks cover the heap.
    pub fn select_kind(&mut self, kind: MemoryKind) {
        let program = self.program_mappings();
        self.completeness.leaves_mappings = program.is_some() && kind == MemoryKind::Heap;
        let mapped = self.mappings.take().map(|mapped| *mapped);
        let device = self.device_memory.take().map(|device| *device);
        match kind {
            MemoryKind::Heap => self.forget_last_labels(),
            MemoryKind::Mapped => {
                let totals = self.mapped.as_ref().map(|of| (of.totals, of.peak_time_ns));
                self.replace_by(mapped, totals);
                self.say_part("mapped memory");
            }
            MemoryKind::Device => {
                let totals = self.device.as_ref().map(|of| (of.totals, of.peak_time_ns));
                self.replace_by(device, totals);
                self.split_by_device();
                self.say_part("device memory");
            }
            MemoryKind::All => {
                if let (Some(mapped), Some(totals)) = (mapped, self.mapped.clone()) {
                    self.add_mappings(mapped, &totals);
                }
                self.say_part("heap and mapped memory, the peak is the sum of both peaks");
            }
            MemoryKind::Program => {
                if let (Some(mapped), Some(sum)) = (mapped, program) {
                    let arenas = Arenas::of(self);
                    match History::of(&mapped, |site| is_of_program(site, arenas)) {
                        Some(history) => self.add_by_history(mapped, history, arenas),
                        None => self.add_program_mappings(mapped, sum),
                    }
                }
                self.forget_last_labels();
            }
        }
    }

    /// Adds the mappings of the program to the heap, with what both have at the peak of their sum.
    fn add_by_history(&mut self, mut mapped: Mapped, history: History, arenas: Arenas) {
        let heap_at_end = self.totals.live_bytes;
        let heap = (self.totals.peak_bytes, self.peak_time_ns);
        let heap_then = live_at(&self.time.samples, history.peak.time_ns);
        let added = added_samples(&self.time.samples, &history.samples).into_iter();
        let sampled = added.max_by_key(|sample| sample.live_bytes).unwrap_or_default();
        let bounds = &self.time.bounds;
        let at_most = if bounds.is_empty() { u64::MAX } else { history.at_most(bounds) };
        let Joint { moment, bound_bytes } =
            Joint::of((heap.0, heap_then), &history, sampled.live_bytes, at_most);
        if moment == Together::AtMappedPeak {
            forget_peak(&mut self.totals, &mut self.tables.sites, heap_then);
        }
        let is_at_heap_peak = moment == Together::AtHeapPeak;
        let at = if is_at_heap_peak { history.heap_peak } else { history.peak };
        History::set_peak(&mut mapped, at);
        mapped.samples = history.samples;
        mapped.keep_those_of_program(arenas);
        let totals = Measures { peak_bytes: at.bytes, ..Sum::over(&mapped.sites) };
        let peak_time_ns = history.peak.time_ns;
        self.add_mappings(mapped, &MappedTotals { totals, peak_time_ns, ..Default::default() });
        self.peak_time_ns = match moment {
            Together::AtHeapPeak => heap.1,
            Together::AtMappedPeak => peak_time_ns,
            Together::AtBothPeaks | Together::Unknown => sampled.time_ns,
        };
        let bound = &mut self.completeness.peak_bound_bytes;
        *bound = bound.saturating_add(bound_bytes);
        let is_small = |bytes| is_nothing(bytes, self.totals.peak_bytes);
        let had_more = is_small(history.heap_peak.bytes) && !is_small(history.peak.bytes);
        let takes_turns = moment == Together::AtMappedPeak || is_at_heap_peak && had_more;
        let after = |(bytes_, time)| format!("{} after {}", bytes(bytes_), duration(time));
        let mapped_peak = after((history.peak.bytes, peak_time_ns));
        self.completeness.memory = Some(if takes_turns {
            of_each("kinds at different times", &after(heap), &mapped_peak)
        } else if is_at_heap_peak {
            of_each("at one time", &bytes(heap.0), &after((at.bytes, heap.1)))
        } else {
            of_each("at the peak of each kind", &after(heap), &mapped_peak)
        });
        self.take_end_as_peak(heap_at_end);
    }

    /// Takes the end for the peak if more is live there, which is then a closer bound, with all
    /// functions. `heap_bytes` of it are in the heap.
    fn take_end_as_peak(&mut self, heap_bytes: u64) {
        let Some(more) = self.totals.live_bytes.checked_sub(self.totals.peak_bytes) else { return };
        if more == 0 {
            return;
        }
        let lanes = self.tables.lanes.iter_mut().map(|lane| &mut lane.measures);
        let sites = self.tables.sites.iter_mut().map(|site| &mut site.measures);
        for measures in sites.chain(lanes).chain([&mut self.totals]) {
            measures.take_live_as_peak();
        }
        self.totals.peak_bytes = self.totals.live_bytes;
        self.peak_time_ns = self.lifetime.duration_ns;
        let bound = &mut self.completeness.peak_bound_bytes;
        *bound = bound.saturating_sub(more);
        let mapped_bytes = self.totals.live_bytes.saturating_sub(heap_bytes);
        let (heap, mapped) = (bytes(heap_bytes), bytes(mapped_bytes));
        self.completeness.memory = Some(of_each("at the end", &heap, &mapped));
    }

    /// Adds the mappings of the program to the heap, if not all of their changes are known.
    fn add_program_mappings(&mut self, mut mapped: Mapped, mut sum: Measures) {
        let all = self.mapped.clone().unwrap_or_default();
        let arenas = Arenas::of(self);
        let is_all = mapped.is_of_program(arenas);
        // Addresses that a runtime reserves and maps again in parts can be all of the peak.
        let is_at_end = !is_all && sum.live_bytes > sum.at_peak_bytes;
        if is_at_end {
            mapped.sites.iter_mut().for_each(|site| site.measures.take_live_as_peak());
            sum.take_live_as_peak();
        }
        if !is_all {
            mapped.samples.clear();
            mapped.keep_those_of_program(arenas);
        }
        let peak_bytes = if is_all { all.totals.peak_bytes } else { sum.at_peak_bytes };
        let peak_time_ns = if is_at_end { self.lifetime.duration_ns } else { all.peak_time_ns };
        let mut totals =
            MappedTotals { totals: Measures { peak_bytes, ..sum }, peak_time_ns, ..all };
        let heap = (self.totals.peak_bytes, self.peak_time_ns);
        let is_exact = is_all && self.sampling.is_none();
        let takes_turns = is_exact && self.forget_lower_peak(&mut mapped, &mut totals.totals);
        self.add_mappings(mapped, &totals);
        let (highest, when) = match self.time.samples.iter().max_by_key(|s| s.live_bytes) {
            Some(sample) if is_all => (sample.live_bytes, Some(sample.time_ns)),
            _ => (heap.0.max(peak_bytes).max(self.totals.live_bytes), None),
        };
        self.peak_time_ns = when.unwrap_or(self.peak_time_ns);
        let bound = self.totals.peak_bytes.saturating_sub(highest);
        self.completeness.peak_bound_bytes =
            self.completeness.peak_bound_bytes.saturating_add(bound);
        let peak = |(bytes_, time)| format!("{} after {}", bytes(bytes_), duration(time));
        let times =
            if takes_turns { "kinds at different times" } else { "at the peak of each kind" };
        self.completeness.peak_is_least = is_at_end;
        let least = if is_at_end { "at least " } else { "" };
        let mapped = format!("{least}{}", peak((peak_bytes, totals.peak_time_ns)));
        self.completeness.memory = Some(of_each(times, &peak(heap), &mapped));
    }

    /// If there is about nothing of one kind when both together have their peak, replaces that
    /// kind's own peak by what there is of it then. Returns whether it did. `mapped` and `totals`:
    /// the mappings, of which the samples are exact, too.
    fn forget_lower_peak(&mut self, mapped: &mut Mapped, totals: &mut Measures) -> bool {
        let highest = added_samples(&self.time.samples, &mapped.samples).into_iter();
        let Some(highest) = highest.max_by_key(|sample| sample.live_bytes) else {
            return false;
        };
        let at = |samples| live_at(samples, highest.time_ns);
        let (heap_bytes, mapped_bytes) = (at(&self.time.samples), at(&mapped.samples));
        let nothing = |bytes| is_nothing(bytes, highest.live_bytes);
        let all = |bytes: u64, peak: u64| bytes >= peak - peak / NOTHING_PART;
        let sum = self.totals.peak_bytes.saturating_add(totals.peak_bytes);
        if nothing(sum.saturating_sub(highest.live_bytes)) {
            return false; // both peaks may well be at one time
        }
        if all(heap_bytes, self.totals.peak_bytes) && nothing(mapped_bytes) {
            forget_peak(totals, &mut mapped.sites, mapped_bytes);
        } else if all(mapped_bytes, totals.peak_bytes) && nothing(heap_bytes) {
            forget_peak(&mut self.totals, &mut self.tables.sites, heap_bytes);
        } else {
            return false;
        }
        true
    }

    fn say_part(&mut self, kind: &str) {
        let part = &mut self.completeness.part;
        *part = Some(match part.take() {
            Some(part) => format!("{kind}, {part}"),
            None => kind.to_owned(),
        });
    }

    /// Replaces the heap by other memory, with its totals and the time of its peak.
    fn replace_by(&mut self, memory: Option<Mapped>, totals: Option<(Measures, u64)>) {
        let tables = &mut self.tables;
        tables.sites.clear();
        tables.histogram.clear();
        self.time.samples.clear();
        self.time.samples_have_more = false;
        self.time.bounds.clear();
        tables.shapes.clear();
        self.time.traces.clear();
        self.time.site_rows = None;
        for scope in &mut tables.scopes {
            (scope.frees_here, scope.freed_here_bytes) = (0, 0);
        }
        self.completeness.peak_bound_bytes = 0;
        self.completeness.unmatched_frees = 0;
        self.sampling = None; // only blocks are sampled
        (self.totals, self.peak_time_ns) = totals.unwrap_or_default();
        if self.mode == Mode::Counters {
            self.mode = Mode::Scopes;
        }
        match memory {
            Some(memory) => {
                let sites = self.with_files(memory.sites, memory.files);
                let tables = &mut self.tables;
                tables.sites = sites;
                tables.lanes = memory.lanes;
                tables.histogram = memory.histogram;
                self.time.samples = memory.samples;
            }
            None => tables.lanes.iter_mut().for_each(|lane| lane.measures = Default::default()),
        }
        self.keep_labels_in_use();
        self.count_frees_in_scopes();
    }

    /// Removes the labels of memory outside the heap that follow those in use.
    fn forget_last_labels(&mut self) {
        let tables = &mut self.tables;
        let of_sites = tables.sites.iter().filter_map(|site| site.label);
        let used = of_sites.chain(tables.shapes.iter().map(|shape| shape.label));
        let count = used.map(|label| label.0 as usize + 1).max().unwrap_or_default();
        tables.labels.truncate(count);
    }

    /// Removes the labels of other memory.
    fn keep_labels_in_use(&mut self) {
        let tables = &mut self.tables;
        let labels = std::mem::take(&mut tables.labels);
        let mut ids: Vec<Option<LabelId>> = vec![None; labels.len()];
        for label in tables.sites.iter_mut().filter_map(|site| site.label.as_mut()) {
            let known = &mut ids[label.0 as usize];
            *label = *known.get_or_insert_with(|| {
                tables.labels.push(labels[label.0 as usize].clone());
                LabelId((tables.labels.len() - 1) as u32)
            });
        }
    }

    fn add_mappings(&mut self, mapped: Mapped, totals: &MappedTotals) {
        let peak_bytes = self.totals.peak_bytes.saturating_add(totals.totals.peak_bytes);
        self.totals.add(&totals.totals);
        self.totals.peak_bytes = peak_bytes;
        if totals.totals.peak_bytes > self.totals.peak_bytes / 2 {
            self.peak_time_ns = totals.peak_time_ns;
        }
        let sites = self.with_files(mapped.sites, mapped.files);
        self.tables.sites.extend(sites);
        add_lanes(&mut self.tables.lanes, &mapped.lanes);
        add_classes(&mut self.tables.histogram, &mapped.histogram);
        self.time.samples = added_samples(&self.time.samples, &mapped.samples);
        self.time.bounds.clear();
        self.time.traces_are_partial = true;
        if self.search.is_none() {
            self.time.site_rows = None; // for views that follow counters
        }
        self.count_frees_in_scopes();
    }

    /// Counts frees outside the heap, which are known only by lane, outside of all scopes.
    fn count_frees_in_scopes(&mut self) {
        let is_outside = |kind: SiteKind| matches!(kind, SiteKind::Mapped(_) | SiteKind::Device(_));
        let outside = self.tables.sites.iter().filter(|site| is_outside(site.kind));
        let (frees, bytes) = outside.fold((0u64, 0u64), |(frees, bytes), site| {
            let m = &site.measures;
            (frees.saturating_add(m.frees_here), bytes.saturating_add(m.freed_here_bytes))
        });
        if let Some(outside) = self.tables.scopes.first_mut() {
            outside.frees_here = outside.frees_here.saturating_add(frees);
            outside.freed_here_bytes = outside.freed_here_bytes.saturating_add(bytes);
        }
    }

    /// If there is memory of several devices, makes the device the outermost frame of each stack.
    fn split_by_device(&mut self) {
        let device = |site: &Site| site.kind.device_memory().map(|memory| memory.device);
        let mut all = self.tables.sites.iter().filter_map(device);
        let first = all.next();
        if all.all(|device| Some(device) == first) {
            return;
        }
        let mut below = BelowDevices::default();
        let mut sites = std::mem::take(&mut self.tables.sites);
        for site in &mut sites {
            if let Some(device) = device(site) {
                site.stack = below.stack(&mut self.tables, device, site.stack);
            }
        }
        self.tables.sites = sites;
    }

    /// Adds the name of each site's file as the innermost frame of its stack.
    fn with_files(&mut self, mut sites: Vec<Site>, files: Vec<Option<Arc<str>>>) -> Vec<Site> {
        let tables = &mut self.tables;
        let mut frames: FxHashMap<Arc<str>, FrameId> = FxHashMap::default();
        let mut stacks: FxHashMap<(StackId, FrameId), StackId> = FxHashMap::default();
        for (site, file) in sites.iter_mut().zip(files) {
            let Some(file) = file else {
                continue;
            };
            let frame = *frames.entry(file).or_insert_with_key(|file| {
                tables.frames.push(Frame::named(format!("[{file}]")));
                FrameId((tables.frames.len() - 1) as u32)
            });
            site.stack = *stacks.entry((site.stack, frame)).or_insert_with(|| {
                tables.stacks.push(StackNode { parent: site.stack, frame });
                StackId((tables.stacks.len() - 1) as u32)
            });
        }
        sites
    }
}

/// Stacks below frames that stand for devices.
#[derive(Default)]
struct BelowDevices {
    frames: FxHashMap<Device, FrameId>,
    stacks: FxHashMap<(Device, StackId), StackId>,
}

impl BelowDevices {
    /// Returns a stack whose outermost frame is a device.
    fn stack(&mut self, tables: &mut Tables, device: Device, stack: StackId) -> StackId {
        // From the innermost frame outwards, up to one that is known below the device.
        let (mut above, mut at) = (Vec::new(), stack);
        let mut below = loop {
            if let Some(&known) = self.stacks.get(&(device, at)) {
                break known;
            }
            if at == StackId(0) {
                let frame = *self.frames.entry(device).or_insert_with(|| {
                    tables.frames.push(Frame::named(format!("[{device}]")));
                    FrameId((tables.frames.len() - 1) as u32)
                });
                break self.add(tables, (device, at), StackNode { parent: at, frame });
            }
            above.push(at);
            at = tables.stacks[at.0 as usize].parent;
        };
        for stack in above.into_iter().rev() {
            let frame = tables.stacks[stack.0 as usize].frame;
            below = self.add(tables, (device, stack), StackNode { parent: below, frame });
        }
        below
    }

    fn add(&mut self, tables: &mut Tables, of: (Device, StackId), node: StackNode) -> StackId {
        tables.stacks.push(node);
        let stack = StackId((tables.stacks.len() - 1) as u32);
        self.stacks.insert(of, stack);
        stack
    }
}

impl Mapped {
    /// Returns whether all mappings are of the program.
    fn is_of_program(&self, arenas: Arenas) -> bool {
        // Rows without mappings count what was unmapped.
        let has_none = |site: &Site| site.measures.allocations == 0;
        self.sites.iter().all(|site| has_none(site) || is_of_program(site, arenas))
    }

    /// Drops mappings that are not of the program, and then what is known only for all together.
    fn keep_those_of_program(&mut self, arenas: Arenas) {
        self.changes.clear();
        if self.is_of_program(arenas) {
            return;
        }
        let files = std::mem::take(&mut self.files);
        let sites = std::mem::take(&mut self.sites);
        let all = sites.into_iter().zip(files);
        (self.sites, self.files) = all.filter(|(site, _)| is_of_program(site, arenas)).unzip();
        self.histogram.clear();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let of_lane = self.sites.iter().filter(|site| site.lane.0 as usize == index);
            lane.measures = Sum::over(of_lane);
        }
    }
}

/// Describes the peaks of heap and mappings.
fn of_each(times: &str, heap: &str, mapped: &str) -> String {
    format!("{times}: heap {heap}, mapped by the program {mapped}")
}

/// Returns the live bytes of the last sample up to a time.
fn live_at(samples: &[Sample], time_ns: u64) -> u64 {
    let after = samples.partition_point(|sample| sample.time_ns <= time_ns);
    after.checked_sub(1).map_or(0, |last| samples[last].live_bytes)
}

/// Replaces a kind's memory at its own peak by the bytes that it had when both kinds together had
/// most, which no row has.
fn forget_peak(totals: &mut Measures, sites: &mut [Site], bytes: u64) {
    let rows = sites.iter_mut().map(|site| &mut site.measures);
    for measures in rows.chain([&mut *totals]) {
        (measures.at_peak_blocks, measures.at_peak_bytes) = (0, 0);
    }
    totals.peak_bytes = bytes;
}

fn is_of_program(site: &Site, arenas: Arenas) -> bool {
    site.kind.mapping().is_some_and(|mapping| mapping.is_of_program(arenas))
}

/// Adds the sums of other lanes of the same process.
fn add_lanes(lanes: &mut Vec<Lane>, more: &[Lane]) {
    for (index, lane) in more.iter().enumerate() {
        match lanes.get_mut(index) {
            Some(sum) => sum.measures.add(&lane.measures),
            None => lanes.push(lane.clone()),
        }
    }
}

/// Adds size classes, in order of size.
fn add_classes(classes: &mut Vec<SizeClass>, more: &[SizeClass]) {
    for class in more {
        match classes.binary_search_by_key(&class.size_min, |known| known.size_min) {
            Ok(at) => {
                let sum = &mut classes[at];
                sum.requested = sum.requested.saturating_add(class.requested);
                sum.usable = sum.usable.saturating_add(class.usable);
                sum.freed = sum.freed.saturating_add(class.freed);
            }
            Err(at) => classes.insert(at, *class),
        }
    }
}

/// Merges samples of two kinds: each one is added to the last known value of the other kind.
fn added_samples(heap: &[Sample], mapped: &[Sample]) -> Vec<Sample> {
    let (mut heap, mut mapped) = (heap.iter().peekable(), mapped.iter().peekable());
    let [mut last_heap, mut last_mapped] = [Sample::default(); 2];
    let mut all = Vec::new();
    loop {
        let now = match (heap.peek(), mapped.peek()) {
            (None, None) => return all,
            (Some(h), m) if m.is_none_or(|m| h.time_ns <= m.time_ns) => {
                last_heap = **h;
                heap.next();
                last_heap
            }
            (_, Some(m)) => {
                last_mapped = **m;
                mapped.next();
                last_mapped
            }
            (Some(_), None) => return all, // handled above
        };
        let sum = |of: fn(&Sample) -> u64| of(&last_heap).saturating_add(of(&last_mapped));
        all.push(Sample {
            live_bytes: sum(|s| s.live_bytes),
            peak_bytes: sum(|s| s.peak_bytes),
            allocations: sum(|s| s.allocations),
            frees: sum(|s| s.frees),
            usable_bytes: sum(|s| s.usable_bytes),
            ..now
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time_ns: u64, live_bytes: u64) -> Sample {
        Sample { time_ns, live_bytes, peak_bytes: live_bytes, ..Sample::default() }
    }

    #[test]
    fn samples_of_both_kinds_are_sums_of_what_is_last_known() {
        let heap = [sample(10, 1), sample(30, 3)];
        let mapped = [sample(5, 100), sample(30, 200), sample(40, 50)];
        let found = added_samples(&heap, &mapped);
        let found: Vec<_> = found.iter().map(|s| (s.time_ns, s.live_bytes)).collect();
        assert_eq!(found, [(5, 100), (10, 101), (30, 103), (30, 203), (40, 53)]);
        assert_eq!(added_samples(&heap, &[]).len(), 2);
    }

    #[test]
    fn a_kind_has_the_name_that_it_is_chosen_by() {
        for kind in MemoryKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert_eq!("heaps".parse::<MemoryKind>(), Err(UnknownMemoryKind));
    }
}
