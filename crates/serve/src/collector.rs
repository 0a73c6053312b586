//! Reads all processes, and creates the metric families.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heaptide_analysis::model::Mode;
use heaptide_analysis::recording::live::Scratch;
use heaptide_clock as clock;
use heaptide_format::{LOSS_NAMES, LOSSES};
use heaptide_render::shared::names::printable;
use rustc_hash::FxHashSet;

use crate::family::{Definition, Family, Point, Value};
use crate::numbers::{
    self, COUNTERS, GAUGES, LABEL_COUNTERS, LABEL_GAUGES, PROCESS_INFO, SCOPE_COUNTERS,
    SCOPE_GAUGES, SERIES_OF_GROUP, SERIES_OF_PROCESS, START_TIME,
};
use crate::observed::{Counted, GroupKind, OTHER, Observed};
use crate::own;
use crate::places::Places;
use crate::target::Target;
use crate::watch::{Image, Watch};

/// Maximum number of observed processes; each has an open file.
const PROCESSES_MAX: usize = 500;
/// Series that always exist: those of the server, and of losses.
const FIXED_SERIES: usize = 50;
/// Minimum for the maximum number of series.
pub const SERIES_MIN: usize = 200;

const LOSS: Definition = Definition::counter(
    "heaptide_losses",
    "",
    "Events that the recorder lost, by kind, in all processes read since this server started.",
);

/// A process in a reading.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) pid: Arc<str>,
    /// Name of its executable file.
    pub(crate) program: Arc<str>,
    /// `None` for the row that sums up all processes without series of their own.
    pub(crate) image: Option<Arc<Image>>,
}

/// The state of all processes at one time.
pub(crate) struct Reading {
    pub(crate) families: Vec<Family>,
    /// The processes to which points refer.
    pub(crate) processes: Vec<Listed>,
    /// All running processes, largest first.
    pub(crate) running: Vec<Listed>,
    /// Messages about anything that cannot be read.
    pub(crate) failures: Vec<String>,
    pub(crate) read_at: Instant,
    /// Processor time of the reading.
    pub(crate) cost: Duration,
}

/// Reads all processes repeatedly.
pub(crate) struct Collector {
    watch: Watch,
    observed: Vec<Observed>,
    /// Running images that have not been opened yet.
    waiting: Vec<Image>,
    scratch: Scratch,
    /// How long an ended process is kept.
    linger: Duration,
    processes: Places<u64>,
    /// By process number and index of the group.
    groups: Places<(u64, usize)>,
    /// Counters of processes without places, since the start of the server.
    other: [u64; COUNTERS.len()],
    has_other: bool,
    losses: [u64; LOSSES],
    errors: u64,
    version: &'static str,
}

impl Collector {
    /// Creates a collector of these targets with at most `series` series.
    pub(crate) fn new(
        targets: Vec<Target>,
        series: usize,
        linger: Duration,
        version: &'static str,
    ) -> Collector {
        let room = series.max(SERIES_MIN) - FIXED_SERIES;
        // Each process also has one sum of remaining scopes and one of remaining labels.
        let of_process = SERIES_OF_PROCESS + 2 * SERIES_OF_GROUP;
        let processes = (room / 2 / of_process).max(1);
        let groups = room.saturating_sub((processes + 1) * of_process) / SERIES_OF_GROUP;
        Collector {
            watch: Watch::new(targets),
            observed: Vec::new(),
            waiting: Vec::new(),
            scratch: Scratch::default(),
            linger,
            processes: Places::new(processes),
            groups: Places::new(groups),
            other: [0; COUNTERS.len()],
            has_other: false,
            losses: [0; LOSSES],
            errors: 0,
            version,
        }
    }

    /// Reads the current state.
    pub(crate) fn read(&mut self) -> Reading {
        let (read_at, begin) = (Instant::now(), own::processor_time());
        let now = clock::now();
        let mut failures = self.read_processes(now);
        failures.extend_from_slice(self.watch.failures());
        self.give_places(now);
        let (processes, observed) = self.shown();
        let mut families = Vec::new();
        self.families_of_processes(&observed, &mut families);
        families_of_groups(&observed, &self.groups, &mut families);
        let mut running: Vec<&Observed> =
            self.observed.iter().filter(|observed| observed.ended.is_none()).collect();
        running.sort_by_key(|observed| std::cmp::Reverse(observed.numbers.gauges[0]));
        let running: Vec<Listed> = running.into_iter().map(listed).collect();
        let cost = own::processor_time().saturating_sub(begin);
        let state = own::State {
            version: self.version,
            recordings: self.watch.recordings() as u64,
            processes: running.len() as u64,
            other_processes: self.observed.iter().filter(|one| !self.has_place(one)).count() as u64,
            unread_processes: self.waiting.len() as u64,
            other_groups: self.groups_without_places(),
            errors: self.errors,
            cost,
        };
        families.push(self.losses());
        families.extend(own::families(&state));
        families.retain(|family| !family.points.is_empty());
        Reading { families, processes, running, failures, read_at, cost }
    }

    /// Reads the processes. Returns messages about those that cannot be read.
    fn read_processes(&mut self, now: Duration) -> Vec<String> {
        let changes = self.watch.look();
        let mut failures = Vec::new();
        self.waiting.extend(changes.began);
        self.waiting.retain(|image| !changes.ended.contains(&image.number));
        let room = PROCESSES_MAX.saturating_sub(self.observed.len()).min(self.waiting.len());
        for image in self.waiting.drain(..room).collect::<Vec<_>>() {
            match Observed::open(&image) {
                Ok(observed) => self.observed.push(observed),
                Err(error) => {
                    failures.push(error.to_string());
                    self.waiting.push(image);
                }
            }
        }
        for observed in &mut self.observed {
            if let Err(error) = observed.read(&mut self.scratch) {
                failures.push(error.to_string());
            }
            if changes.ended.contains(&observed.image.number) {
                observed.end(now);
            }
            numbers::add(&mut self.losses, &observed.losses_grown);
        }
        self.keep_one_of_each_name();
        self.errors += failures.len() as u64;
        let linger = self.linger;
        let is_over =
            |observed: &Observed| observed.ended.is_some_and(|ended| now >= ended + linger);
        self.observed.retain(|observed| !is_over(observed));
        failures
    }

    /// If several images of a process have the same program, only the last one has series.
    fn keep_one_of_each_name(&mut self) {
        let mut names = FxHashSet::default();
        let mut is_last: Vec<bool> = Vec::with_capacity(self.observed.len());
        for observed in self.observed.iter().rev() {
            is_last.push(names.insert((observed.pid.clone(), observed.program.clone())));
        }
        let mut is_last = is_last.into_iter().rev();
        self.observed.retain(|_| is_last.next().unwrap_or(true));
    }

    /// Decides which processes and groups have series of their own; the others are summed up.
    fn give_places(&mut self, now: Duration) {
        let size = |observed: &Observed| observed.numbers.gauges[0].unwrap_or(0);
        let sizes: Vec<(u64, u64)> =
            self.observed.iter().map(|one| (one.image.number, size(one))).collect();
        self.processes.update(&sizes, now);
        let mut sizes = Vec::new();
        for observed in &self.observed {
            let number = observed.image.number;
            if self.processes.has(&number) {
                let groups = observed.groups.iter().enumerate();
                let groups = groups.filter(|(_, group)| !group.is_empty() && !group.is_rest());
                sizes.extend(
                    groups.map(|(index, group)| ((number, index), group.numbers.gauges[0])),
                );
            }
        }
        self.groups.update(&sizes, now);
        for observed in &mut self.observed {
            let number = observed.image.number;
            let groups = &self.groups;
            observed.add_rest(|index| groups.has(&(number, index)));
            if !self.processes.has(&number) {
                self.has_other = true;
                numbers::add(&mut self.other, &observed.grown);
            }
        }
    }

    fn has_place(&self, observed: &Observed) -> bool {
        self.processes.has(&observed.image.number)
    }

    fn groups_without_places(&self) -> u64 {
        let of_process = |observed: &Observed| {
            let number = observed.image.number;
            let groups = observed.groups.iter().enumerate();
            groups
                .filter(|(index, group)| !group.is_empty() && !self.groups.has(&(number, *index)))
                .count() as u64
        };
        self.observed.iter().map(of_process).sum()
    }

    /// Returns the processes with series of their own, and last the row that sums up all others.
    fn shown(&self) -> (Vec<Listed>, Vec<&Observed>) {
        let with_place = self.observed.iter().filter(|observed| self.has_place(observed));
        let observed: Vec<&Observed> = with_place.collect();
        let mut processes: Vec<Listed> = observed.iter().map(|one| listed(one)).collect();
        if self.has_other {
            let (pid, program) = (OTHER.into(), OTHER.into());
            processes.push(Listed { pid, program, image: None });
        }
        (processes, observed)
    }

    fn families_of_processes(&self, observed: &[&Observed], families: &mut Vec<Family>) {
        let of = |process, value| Point {
            process: Some(process),
            labels: Vec::new(),
            value: Value::Whole(value),
        };
        let others = || self.observed.iter().filter(|one| !self.has_place(one));
        let other = observed.len();
        for (index, (definition, is_summed)) in GAUGES.iter().enumerate() {
            let values = observed.iter().map(|one| one.numbers.gauges[index]).enumerate();
            let points = values.filter_map(|(process, value)| Some(of(process, value?)));
            let sum = (self.has_other && *is_summed).then(|| {
                let values = others().filter_map(|one| one.numbers.gauges[index]);
                of(other, values.fold(0, u64::saturating_add))
            });
            families.push(Family { definition, points: points.chain(sum).collect() });
        }
        for (index, definition) in COUNTERS.iter().enumerate() {
            let values = observed.iter().map(|one| one.numbers.counters[index]).enumerate();
            let points = values.map(|(process, value)| of(process, value));
            let sum = self.has_other.then(|| of(other, self.other[index]));
            families.push(Family { definition, points: points.chain(sum).collect() });
        }
        let start = |(process, one): (usize, &&Observed)| Point {
            value: Value::Real(one.image.summary.start_realtime_ns as f64 / 1e9),
            ..of(process, 0)
        };
        let points = observed.iter().enumerate().map(start).collect();
        families.push(Family { definition: &START_TIME, points });
        let points = observed.iter().enumerate().map(|(process, one)| info(process, one)).collect();
        families.push(Family { definition: &PROCESS_INFO, points });
    }

    fn losses(&self) -> Family {
        let kinds = LOSS_NAMES.iter().zip(self.losses);
        let point = |((name, _), count): (&(&'static str, &str), u64)| Point {
            process: None,
            labels: vec![("kind", (*name).into())],
            value: Value::Whole(count),
        };
        Family { definition: &LOSS, points: kinds.map(point).collect() }
    }
}

fn listed(observed: &Observed) -> Listed {
    Listed {
        pid: observed.pid.clone(),
        program: observed.program.clone(),
        image: Some(Arc::new(observed.image.clone())),
    }
}

fn info(process: usize, observed: &Observed) -> Point {
    let image = &observed.image;
    let recording = image.recording.file_name().unwrap_or(image.recording.as_os_str());
    let recording = recording.to_string_lossy();
    let mode = match image.summary.mode {
        Mode::Counters => "counters",
        Mode::Scopes => "scopes",
        Mode::Stacks => "stacks",
    };
    let labels = vec![
        ("executable", printable(&image.summary.program).into()),
        ("recording", printable(&recording).into()),
        ("mode", mode.into()),
    ];
    Point { process: Some(process), labels, value: Value::Whole(1) }
}

/// The definition for scopes, the one for labels, and the function that returns the value of a
/// group.
struct OfGroups {
    scope: &'static Definition,
    label: &'static Definition,
    number: fn(&numbers::GroupNumbers, usize) -> u64,
    index: usize,
}

fn families_of_groups(
    observed: &[&Observed],
    places: &Places<(u64, usize)>,
    families: &mut Vec<Family>,
) {
    let gauges = SCOPE_GAUGES.iter().zip(&LABEL_GAUGES).enumerate().map(|(index, pair)| OfGroups {
        scope: pair.0,
        label: pair.1,
        number: |numbers, index| numbers.gauges[index],
        index,
    });
    let counters = SCOPE_COUNTERS.iter().zip(&LABEL_COUNTERS).enumerate();
    let counters = counters.map(|(index, pair)| OfGroups {
        scope: pair.0,
        label: pair.1,
        number: |numbers, index| numbers.counters[index],
        index,
    });
    let of_both: Vec<OfGroups> = gauges.chain(counters).collect();
    for kind in [GroupKind::Scope, GroupKind::Label] {
        for of in &of_both {
            let mut points = Vec::new();
            for (process, one) in observed.iter().enumerate() {
                let number = one.image.number;
                let groups = one.groups.iter().enumerate();
                let own = groups
                    .filter(|(index, group)| group.kind == kind && places.has(&(number, *index)));
                points.extend(own.map(|(_, group)| Point {
                    process: Some(process),
                    labels: labels(group),
                    value: Value::Whole((of.number)(&group.numbers, of.index)),
                }));
                let rest = &one.rest[kind as usize];
                points.extend(rest.is_used.then(|| Point {
                    process: Some(process),
                    labels: labels_of_rest(kind),
                    value: Value::Whole((of.number)(&rest.numbers, of.index)),
                }));
            }
            let definition = if kind == GroupKind::Scope { of.scope } else { of.label };
            families.push(Family { definition, points });
        }
    }
}

fn labels(group: &Counted) -> Vec<(&'static str, Arc<str>)> {
    match group.kind {
        GroupKind::Scope => vec![("scope", group.name.clone())],
        GroupKind::Label => {
            vec![("label", group.name.clone()), ("memory", group.memory.name().into())]
        }
    }
}

fn labels_of_rest(kind: GroupKind) -> Vec<(&'static str, Arc<str>)> {
    match kind {
        GroupKind::Scope => vec![("scope", OTHER.into())],
        GroupKind::Label => vec![("label", OTHER.into()), ("memory", OTHER.into())],
    }
}
