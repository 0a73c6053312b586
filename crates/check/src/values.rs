//! Measures quantities of a process or a part of it: in total, and by owner.

use std::collections::BTreeMap;
use std::sync::Arc;

use heaptide_analysis::attribution::{Owners, name_in_every_build};
use heaptide_analysis::model::{
    AccountCause, FrameId, Interval, Measure, Measures, Mode, Process, Site, Sum,
};
use heaptide_analysis::recording::retained::SEARCHED;
use heaptide_analysis::views::leaks::{self, Leaks, Origin};
use heaptide_analysis::views::suppressions::Suppressions;
use heaptide_render::shared::quantity::duration;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::limit::Quantity;
use crate::part::Part;

/// A quantity of a part of a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Value {
    /// The total.
    pub total: u64,
    /// Its 95 % interval, if it is an estimate: of a part of a sampled recording.
    pub interval: Option<Interval>,
    /// Why it can be more than the total, if it can.
    pub at_least: Option<String>,
    /// The total that a percentage refers to, if there is one.
    pub whole: Option<u64>,
    /// The values of owners; owners without a value are omitted. Their sum may be less than the
    /// total, because some allocations have no stack.
    pub owners: BTreeMap<String, OwnerValue>,
}

/// The value of an owner.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnerValue {
    /// The value.
    pub value: u64,
    /// The source location of most of it, if known.
    pub place: Option<Place>,
}

/// A line of a source file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The path of the file, as the compiler stored it.
    pub file: Arc<str>,
    /// The line.
    pub line: u32,
}

/// A process to measure.
pub struct Measured<'a> {
    process: &'a Process,
    owners: Owners,
    /// The origins of blocks that are live at the end and not suppressed.
    leaks: FxHashSet<Origin>,
    /// The same process with its lost blocks as live ones, if its memory was searched.
    lost: Option<Box<Measured<'a>>>,
}

/// Sums over the sites of an owner.
#[derive(Clone, Copy, Default)]
struct OfOwner {
    sum: Sum,
    /// The frame with the largest value, and that value.
    most: Option<(FrameId, u64)>,
}

impl<'a> Measured<'a> {
    /// Finds owners and leaks of a process.
    pub fn new(process: &'a Process, suppressions: &Suppressions) -> Measured<'a> {
        let leaks = if leaks::counts(process) {
            Leaks::of(process, suppressions).leaks.iter().map(|leak| leak.origin).collect()
        } else {
            FxHashSet::default()
        };
        Measured { process, owners: Owners::of(process), leaks, lost: None }
    }

    /// Adds the same process, read with its lost blocks as live ones.
    pub fn with_lost(self, process: &'a Process, suppressions: &Suppressions) -> Measured<'a> {
        Measured { lost: Some(Box::new(Measured::new(process, suppressions))), ..self }
    }

    /// Measures a quantity of a part.
    ///
    /// # Errors
    ///
    /// It was not recorded, or is an estimate whose error is not known.
    pub fn value(&self, part: &Part, quantity: Quantity) -> Result<Value, String> {
        let process = self.process;
        if let Some(missing) = part.missing_in(process.mode) {
            return Err(missing.to_owned());
        }
        match (quantity, process.mode) {
            (Quantity::Lost, _) => match &self.lost {
                Some(lost) => lost.value(part, Quantity::Leaked),
                None => Err(format!("the process was not searched when it ended; {SEARCHED}")),
            },
            (Quantity::Resident, _) => self.resident(part),
            (_, Mode::Counters) => self.of_lanes(part, quantity),
            _ if self.is_exact_of_threads(part, quantity) => self.of_lanes(part, quantity),
            _ => self.of_sites(part, quantity),
        }
    }

    /// Returns whether any allocation belongs to a part; for the whole process always.
    pub fn has_any(&self, part: &Part) -> bool {
        let kept = match self.process.mode {
            Mode::Counters => part.lanes(self.process),
            Mode::Scopes | Mode::Stacks => part.sites(self.process, &self.owners),
        };
        part.is_all() || kept.contains(&true)
    }

    /// Measures resident memory; its owners are those of live bytes at peak.
    fn resident(&self, part: &Part) -> Result<Value, String> {
        if !part.is_all() {
            return Err(format!("{part}: resident memory is known only for the whole process"));
        }
        let accounts = self.process.time.accounts.iter();
        let with_numbers = accounts.filter(|account| account.most_resident_bytes > 0);
        let Some(last) = with_numbers.max_by_key(|account| account.time_ns) else {
            return Err("resident memory was not recorded; `heaptide memory` shows why".to_owned());
        };
        let owners = match self.process.mode {
            Mode::Counters => BTreeMap::new(),
            Mode::Scopes | Mode::Stacks => self.of_sites(part, Quantity::Peak)?.owners,
        };
        let at_least = match last.cause {
            AccountCause::End | AccountCause::Now => None,
            AccountCause::Sample | AccountCause::Peak => Some(format!(
                "known until {} of {}",
                duration(last.time_ns),
                duration(self.process.lifetime.duration_ns)
            )),
        };
        Ok(Value { total: last.most_resident_bytes, at_least, owners, ..Value::default() })
    }

    fn of_lanes(&self, part: &Part, quantity: Quantity) -> Result<Value, String> {
        let process = self.process;
        let kept = part.lanes(process);
        let mut sum = Measures::default();
        for ((lane, keep), id) in process.tables.lanes.iter().zip(kept).zip(0..) {
            let origins = [Origin::Lane(heaptide_analysis::model::LaneId(id)), Origin::Process];
            let counts = quantity != Quantity::Leaked
                || origins.iter().any(|origin| self.leaks.contains(origin));
            if keep && counts {
                sum.add(&lane.measures);
            }
        }
        let is_of_peak = matches!(metric(quantity), Measure::AtPeakBytes | Measure::AtPeakBlocks);
        let is_of_live = quantity == Quantity::Leaked && process.tables.lanes.len() > 1;
        if part.is_all() && quantity != Quantity::Leaked {
            sum = process.totals;
        } else if is_of_peak || is_of_live && !part.is_all() {
            let name = quantity.name();
            return Err(format!("{part}: {name} of a thread requires --mode scopes or stacks"));
        }
        Ok(Value {
            total: whole_metric(quantity, part).of(&sum),
            whole: quantity.whole().map(|whole| whole.of(&sum)),
            ..Value::default()
        })
    }

    fn of_sites(&self, part: &Part, quantity: Quantity) -> Result<Value, String> {
        let process = self.process;
        let kept = part.sites(process, &self.owners);
        let mut all = Sum::default();
        let mut by_owner: FxHashMap<u32, OfOwner> = FxHashMap::default();
        for (site, keep) in process.tables.sites.iter().zip(kept) {
            if !keep || quantity == Quantity::Leaked && !self.is_leaked(site) {
                continue;
            }
            all.add(site);
            let Some(frame) = self.owners.frame(process, site.stack) else { continue };
            let owner = by_owner.entry(self.owners.functions.of_frame(frame).0).or_default();
            owner.sum.add(site);
            let value = metric(quantity).of(&site.measures);
            if owner.most.is_none_or(|(_, most)| value > most) {
                owner.most = Some((frame, value));
            }
        }
        let is_total = part.is_all() && quantity != Quantity::Leaked;
        let all = if is_total { process.totals } else { all.total() };
        Ok(Value {
            total: whole_metric(quantity, part).of(&all),
            interval: self.interval(part, quantity, &all)?,
            at_least: None,
            whole: quantity.whole().map(|whole| whole.of(&all)),
            owners: self.named(by_owner, metric(quantity)),
        })
    }

    /// Whether threads counted a quantity of all blocks, though sites have estimates of it.
    fn is_exact_of_threads(&self, part: &Part, quantity: Quantity) -> bool {
        use Measure::{Allocations, Failed, Reallocations, RequestedBytes, Temporary, UsableBytes};
        let exact = [Allocations, Failed, Reallocations, RequestedBytes, Temporary, UsableBytes];
        let process = self.process;
        let is_whole = process.sampling.is_some() && !process.is_part_of_sampled();
        is_whole && part.is_of_threads() && exact.contains(&metric(quantity))
    }

    /// The interval of a quantity that is an estimate.
    fn interval(
        &self,
        part: &Part,
        quantity: Quantity,
        sum: &Measures,
    ) -> Result<Option<Interval>, String> {
        let process = self.process;
        let metric = metric(quantity);
        let is_all = match quantity {
            Quantity::Leaked => sum.live_bytes == process.totals.live_bytes,
            _ => part.is_all(),
        };
        let has_total = !matches!(metric, Measure::AtPeakBlocks | Measure::CrossThreadFrees);
        let is_total = is_all && has_total && !process.is_part_of_sampled();
        if process.sampling.is_none() || is_total || metric == Measure::Failed {
            return Ok(None);
        }
        let interval = process.interval(metric, sum);
        interval.map(Some).ok_or_else(|| {
            let name = quantity.name();
            let of = if part.is_all() { String::new() } else { format!("{part}: ") };
            format!(
                "{of}{name} of a sampled recording is an estimate with unknown error; limit bytes, \
                 or record with --mode stacks"
            )
        })
    }

    /// Returns owners by names that are the same in every build.
    fn named(
        &self,
        by_owner: FxHashMap<u32, OfOwner>,
        metric: Measure,
    ) -> BTreeMap<String, OwnerValue> {
        let process = self.process;
        let mut named: BTreeMap<String, (OwnerValue, u64)> = BTreeMap::new();
        for OfOwner { sum, most } in by_owner.into_values() {
            let value = metric.of(&sum.total());
            let Some((frame, _)) = most.filter(|_| value > 0) else { continue };
            let label = process.label(frame);
            let (owner, largest) =
                named.entry(name_in_every_build(&label).into_owned()).or_default();
            owner.value = metric.combine().of(owner.value, value);
            if value > *largest {
                *largest = value;
                let frame = &process.tables.frames[frame.0 as usize];
                let place = |file: Arc<str>, line| Place { file, line };
                owner.place = frame.file.clone().zip(frame.line).map(|(f, l)| place(f, l));
            }
        }
        named.into_iter().map(|(name, (owner, _))| (name, owner)).collect()
    }

    fn is_leaked(&self, site: &Site) -> bool {
        let origin = match self.process.mode {
            Mode::Scopes => Origin::Scope(site.scope),
            Mode::Stacks | Mode::Counters => Origin::Stack(site.stack),
        };
        self.leaks.contains(&origin)
    }
}

/// Returns the metric of sites for a quantity.
fn metric(quantity: Quantity) -> Measure {
    match quantity {
        Quantity::Peak | Quantity::Resident => Measure::AtPeakBytes,
        Quantity::Leaked | Quantity::Lost => Measure::LiveBytes,
        Quantity::Metric(metric) => metric.of_sites(),
    }
}

/// Returns the metric of totals for a quantity: only a whole process has a peak.
fn whole_metric(quantity: Quantity, part: &Part) -> Measure {
    match quantity {
        Quantity::Peak | Quantity::Metric(Measure::PeakBytes) if part.is_all() => {
            Measure::PeakBytes
        }
        _ => metric(quantity),
    }
}
