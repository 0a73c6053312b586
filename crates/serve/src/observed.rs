//! A process image: the last values of itself, its scopes and labels.

use std::sync::Arc;
use std::time::Duration;

use heaptide_analysis::Error;
use heaptide_analysis::model::SiteKind;
use heaptide_analysis::recording::live::Scratch;
use heaptide_analysis::recording::live_sums::{Group, LiveSums};
use heaptide_format::LOSSES;
use heaptide_render::shared::names::printable;

use crate::numbers::{COUNTERS, GroupNumbers, Numbers, SCOPE_COUNTERS, add, raise};
use crate::watch::Image;

/// Name of the group that sums up all groups without a place. A scope or label with this name is
/// added to it, too.
pub(crate) const OTHER: &str = "(other)";

/// Whether a group is a scope path or a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GroupKind {
    Scope,
    Label,
}

/// A scope path or label of a process.
pub(crate) struct Counted {
    pub(crate) kind: GroupKind,
    /// The scope path, or the name of the label.
    pub(crate) name: Arc<str>,
    /// The kind of memory with this label.
    pub(crate) memory: SiteKind,
    pub(crate) numbers: GroupNumbers,
    /// Increases of its counters at the last reading.
    grown: [u64; SCOPE_COUNTERS.len()],
}

/// The sums of all scopes, or labels, of a process that have no place.
#[derive(Default)]
pub(crate) struct Rest {
    pub(crate) numbers: GroupNumbers,
    /// Whether there ever was such a group.
    pub(crate) is_used: bool,
}

/// A process image that is running or has ended recently.
pub(crate) struct Observed {
    pub(crate) image: Image,
    pub(crate) pid: Arc<str>,
    /// Name of its executable file.
    pub(crate) program: Arc<str>,
    /// `None` after the end.
    sums: Option<LiveSums>,
    pub(crate) numbers: Numbers,
    pub(crate) grown: [u64; COUNTERS.len()],
    losses: [u64; LOSSES],
    pub(crate) losses_grown: [u64; LOSSES],
    pub(crate) groups: Vec<Counted>,
    pub(crate) rest: [Rest; 2],
    /// When it ended, by the clock of recordings.
    pub(crate) ended: Option<Duration>,
}

impl Observed {
    /// Opens the profile of an image without reading it.
    ///
    /// Errors: the profile cannot be read.
    pub(crate) fn open(image: &Image) -> Result<Observed, Error> {
        let sums = LiveSums::open(&image.running.file)?;
        let file = image.summary.program.rsplit('/').next().unwrap_or_default();
        Ok(Observed {
            pid: image.running.pid.to_string().into(),
            program: printable(file).into(),
            sums: Some(sums),
            numbers: Numbers::default(),
            grown: [0; COUNTERS.len()],
            losses: [0; LOSSES],
            losses_grown: [0; LOSSES],
            groups: Vec::new(),
            rest: Default::default(),
            ended: None,
            image: image.clone(),
        })
    }

    /// Reads the current counters.
    ///
    /// Errors: its profile cannot be read.
    pub(crate) fn read(&mut self, scratch: &mut Scratch) -> Result<(), Error> {
        (self.grown, self.losses_grown) = Default::default();
        self.groups.iter_mut().for_each(|group| group.grown = Default::default());
        let Some(sums) = &mut self.sums else { return Ok(()) };
        let has_changed = sums.look(scratch)?;
        let resident = self.image.running.memory().map(|(resident, _)| resident);
        let now = Numbers::of(sums, resident);
        self.grown = raise(&mut self.numbers.counters, &now.counters);
        self.numbers.gauges = now.gauges;
        self.losses_grown = raise(&mut self.losses, &sums.header().losses);
        if has_changed {
            for (index, (group, measures)) in sums.groups().enumerate() {
                if index == self.groups.len() {
                    self.groups.push(Counted::new(group));
                }
                let (own, now) = (&mut self.groups[index], GroupNumbers::of(measures));
                own.grown = raise(&mut own.numbers.counters, &now.counters);
                own.numbers.gauges = now.gauges;
            }
        }
        Ok(())
    }

    /// Adds the values of groups without places to the rest.
    pub(crate) fn add_rest(&mut self, has_place: impl Fn(usize) -> bool) {
        self.rest.iter_mut().for_each(|rest| rest.numbers.gauges = Default::default());
        for (index, group) in self.groups.iter().enumerate() {
            if group.is_empty() || !group.is_rest() && has_place(index) {
                continue;
            }
            let rest = &mut self.rest[group.kind as usize];
            rest.is_used = true;
            add(&mut rest.numbers.counters, &group.grown);
            add(&mut rest.numbers.gauges, &group.numbers.gauges);
        }
    }

    /// Marks the process as ended; call it after the last reading.
    pub(crate) fn end(&mut self, now: Duration) {
        self.sums = None;
        self.ended = Some(now);
        self.numbers = self.numbers.after_end();
        for group in &mut self.groups {
            group.numbers.gauges = Default::default();
        }
    }
}

impl Counted {
    fn new(group: &Group) -> Counted {
        let (kind, name, memory) = match group {
            Group::Scope(path) => (GroupKind::Scope, path.as_str(), SiteKind::Heap),
            Group::Label { name, kind } => (GroupKind::Label, name.as_str(), *kind),
            Group::RestOfScopes => (GroupKind::Scope, OTHER, SiteKind::Heap),
            Group::RestOfLabels => (GroupKind::Label, OTHER, SiteKind::Heap),
        };
        Counted {
            kind,
            name: printable(name).into(),
            memory,
            numbers: GroupNumbers::default(),
            grown: Default::default(),
        }
    }

    /// Returns whether the group always belongs to the rest.
    pub(crate) fn is_rest(&self) -> bool {
        &*self.name == OTHER
    }

    /// Returns whether the group has never counted anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.counters[0] == 0
    }
}
