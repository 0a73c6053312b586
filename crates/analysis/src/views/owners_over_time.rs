//! Live bytes over time by owning function, computed from a trace in one pass over its events.
//!
//! Bytes are counted as in sums, except that blocks of a pool stay with the owner of their chunk.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use crate::attribution::{FunctionId, Owners};
use crate::error::Error;
use crate::model::{Process, SiteKind, StackId};
use crate::trace::{Event, Operation};

/// Maximum number of points in time, apart from the end.
const MOMENTS: u64 = 300;

/// Live bytes over time of the owners with most bytes at peak, and of all others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnersOverTime {
    /// The points in time: that of most live bytes in each part of the run, and the end.
    pub times_ns: Vec<u64>,
    /// Functions, most bytes at peak first, with their bytes at each point; `None` for allocations
    /// without a stack.
    pub owners: Vec<(Option<FunctionId>, Vec<u64>)>,
    /// Bytes of all others at each point.
    pub others: Vec<u64>,
}

impl OwnersOverTime {
    /// Replays the trace of a process for up to `count` owners. Memory is bounded by its tables and
    /// the number of live blocks.
    ///
    /// Errors: the same as those of [`Process::replay`].
    ///
    /// ```
    /// use heaptide_analysis::attribution::Owners;
    /// use heaptide_analysis::views::owners_over_time::OwnersOverTime;
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// let owners = Owners::of(&process);
    /// assert!(OwnersOverTime::of(&process, &owners, 8).is_err()); // it has no trace
    /// ```
    pub fn of(process: &Process, owners: &Owners, count: usize) -> Result<OwnersOverTime, Error> {
        let mut replay = process.replay_whole()?;
        let first = first_owners(process, owners, count);
        let place = |owner| first.iter().position(|of| *of == owner).unwrap_or(first.len());
        let sites = process.tables.sites.iter();
        let place_of_site = sites.map(|site| match site.kind {
            SiteKind::Heap | SiteKind::PoolChunk | SiteKind::Mapped(_) => {
                Some(place(owner_of(process, owners, site.stack)))
            }
            _ => None,
        });
        let mut pass = Pass {
            place_of_site: place_of_site.collect(),
            live: vec![0; first.len() + 1],
            part_ns: (process.lifetime.duration_ns / MOMENTS).max(1),
            part: 0,
            highest: Moment::default(),
            moments: Vec::new(),
        };
        let mut batch = Vec::new();
        while replay.fill(&mut batch) {
            batch.iter().for_each(|event| pass.event(event));
        }
        pass.end_part();
        pass.end(process.lifetime.duration_ns);
        let column = |place: usize| -> Vec<u64> {
            pass.moments.iter().map(|moment| moment.live[place].max(0) as u64).collect()
        };
        Ok(OwnersOverTime {
            times_ns: pass.moments.iter().map(|moment| moment.time_ns).collect(),
            others: column(first.len()),
            owners: first.iter().enumerate().map(|(at, owner)| (*owner, column(at))).collect(),
        })
    }
}

fn owner_of(process: &Process, owners: &Owners, stack: StackId) -> Option<FunctionId> {
    owners.frame(process, stack).map(|frame| owners.functions.of_frame(frame))
}

/// Returns the owners with most bytes at peak.
fn first_owners(process: &Process, owners: &Owners, count: usize) -> Vec<Option<FunctionId>> {
    let mut sums = FxHashMap::<Option<FunctionId>, u64>::default();
    for site in process.tables.sites.iter().filter(|site| site.kind == SiteKind::Heap) {
        let sum = sums.entry(owner_of(process, owners, site.stack)).or_default();
        *sum = sum.saturating_add(site.measures.at_peak_bytes);
    }
    let mut order: Vec<_> = sums.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    order.sort_by_key(|(owner, bytes)| (Reverse(*bytes), *owner));
    order.into_iter().take(count).map(|(owner, _)| owner).collect()
}

/// Live bytes at one time, by owner.
#[derive(Clone, Default)]
struct Moment {
    time_ns: u64,
    all: i64,
    live: Vec<i64>,
}

/// The sums while events are added.
struct Pass {
    /// Position of the owner of each site; `None` if its blocks are not counted.
    place_of_site: Vec<Option<usize>>,
    live: Vec<i64>,
    part_ns: u64,
    /// The part of the run that contains the last event.
    part: u64,
    /// The point of that part with most live bytes.
    highest: Moment,
    moments: Vec<Moment>,
}

impl Pass {
    fn event(&mut self, event: &Event) {
        let part = event.time_ns / self.part_ns;
        if part != self.part {
            self.end_part();
            self.part = part;
        }
        match event.operation {
            Operation::Allocate => self.add(event.site, event.usable, 1),
            Operation::Free => self.add(event.site, event.usable, -1),
            Operation::Relabel | Operation::Unlabel => {
                self.add(event.site_before, event.usable, -1);
                self.add(event.site, event.usable, 1);
            }
            Operation::Fail | Operation::Begin | Operation::End | Operation::Mark => return,
        }
        let all = self.live.iter().sum();
        if all >= self.highest.all || self.highest.live.is_empty() {
            self.highest.time_ns = event.time_ns;
            self.highest.all = all;
            self.highest.live.clone_from(&self.live);
        }
    }

    fn add(&mut self, site: u32, bytes: u64, sign: i64) {
        if let Some(Some(place)) = self.place_of_site.get(site as usize) {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            self.live[*place] = self.live[*place].saturating_add(sign * bytes);
        }
    }

    /// Adds the end of the run, if there is an earlier point.
    fn end(&mut self, time_ns: u64) {
        if self.moments.last().is_some_and(|last| last.time_ns < time_ns) {
            let all = self.live.iter().sum();
            self.moments.push(Moment { time_ns, all, live: self.live.clone() });
        }
    }

    /// Stores the highest point of the part, if it had events.
    fn end_part(&mut self) {
        if !self.highest.live.is_empty() {
            self.moments.push(std::mem::take(&mut self.highest));
        }
    }
}
