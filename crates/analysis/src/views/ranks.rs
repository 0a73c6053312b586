//! Compares the ranks of a parallel job, or hosts, or processes: the spread of their memory,
//! outliers, and the owners that cause them.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::aggregate::by_stack;
use crate::attribution::Owners;
use crate::model::{Measure, Measures, Process, Sample};
use crate::recording::join_timeline::most_at_once;
use crate::recording::origin::{Group, Origin, groups};

/// Minimum number of values for finding outliers.
const OUTLYING_FROM: usize = 4;
/// Minimum distance of an outlier from the median, relative to the median.
const OUTLYING_PART: f64 = 0.05;
/// An outlier's modified z-score is above this.
const OUTLYING_SCORE: f64 = 3.5;
/// Minimum number of samples for computing growth.
pub const GROWTH_FROM: usize = 4;
/// Minimum time for computing growth, in nanoseconds: a program that has just begun always grows.
pub const GROWTH_OVER_NS: u64 = 1_000_000_000;
/// Maximum number of owners to compare; those with most bytes are kept.
const OWNERS_MAX: usize = 1000;
/// Minimum number of owners to compare, for any number of ranks.
const OWNERS_MIN: usize = 20;
/// Maximum number of values of owners in ranks: as JSON they take some gigabytes for 100,000 ranks.
const VALUES_MAX: usize = 10_000_000;

/// A rank, host or process.
#[derive(Clone, Debug)]
pub struct Place {
    /// The display name: `rank 3`.
    pub name: Arc<str>,
    /// Its number, if it is a rank.
    pub number: Option<u32>,
    /// Its host; of several, that of the process with the highest peak.
    pub host: String,
    /// Whether it is compared: processes without a rank are not.
    pub is_compared: bool,
    /// Number of process images.
    pub images: u32,
    /// Sums over the images; the peak is the most that was live at the same time, or after a filter
    /// the sum of peaks.
    pub sums: Measures,
    /// Growth of live bytes in the second half of the run, in bytes per second, of the process with
    /// the highest peak.
    pub growth: Option<f64>,
    /// The metric by owner name.
    pub owners: FxHashMap<Arc<str>, u64>,
}

impl Place {
    /// Adds the numbers of the same place in another recording. The peaks are added, too, because
    /// their overlap in time is unknown.
    pub fn join(&mut self, other: Place) {
        let peak_bytes = self.sums.peak_bytes.saturating_add(other.sums.peak_bytes);
        if other.sums.peak_bytes > self.sums.peak_bytes {
            self.growth = other.growth;
        }
        self.sums.add(&other.sums);
        self.sums.peak_bytes = peak_bytes;
        self.images += other.images;
        for (owner, value) in other.owners {
            let sum = self.owners.entry(owner).or_default();
            *sum = sum.saturating_add(value);
        }
    }
}

/// Returns the ranks, hosts or processes of a recording, with the metric of each owner.
///
/// ```
/// use heaptide_analysis::model::Measure;
/// use heaptide_analysis::recording::origin::Origin;
/// use heaptide_analysis::views::ranks::places;
/// # let mut bytes = vec![0; 4096];
/// # bytes[..8].copy_from_slice(b"HEAPTIDE");
/// # (bytes[8], bytes[12], bytes[16], bytes[65]) = (1, 2, 7, 16);
/// # let process = heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
/// let places = places(&[process], Origin::Process, Measure::PeakBytes);
/// assert_eq!((&*places[0].name, places[0].images), ("pid 7", 1));
/// ```
pub fn places(processes: &[Process], by: Origin, metric: Measure) -> Vec<Place> {
    let place = |group: Group| {
        let members: Vec<&Process> = group.members.iter().map(|&at| &processes[at]).collect();
        let mut sums = Measures::default();
        members.iter().for_each(|process| sums.add(&process.totals));
        sums.peak_bytes = most_at_once(&members).bytes();
        let largest = members.iter().max_by_key(|process| process.totals.peak_bytes);
        Place {
            host: largest.map_or(String::new(), |process| process.identity.host.clone()),
            growth: largest.and_then(|process| growth(&process.time.samples)),
            is_compared: by != Origin::Rank || group.rank.is_some(),
            images: members.iter().map(|process| process.identity.images).sum(),
            owners: owners(&members, metric.of_sites()),
            name: group.name,
            number: group.rank,
            sums,
        }
    };
    groups(processes, by).into_iter().map(place).collect()
}

fn owners(processes: &[&Process], metric: Measure) -> FxHashMap<Arc<str>, u64> {
    let mut sums: FxHashMap<Arc<str>, u64> = FxHashMap::default();
    for process in processes {
        let owners = Owners::of(process);
        for (stack, measures) in by_stack(process) {
            let value = metric.of(&measures);
            let Some(frame) = owners.frame(process, stack).filter(|_| value > 0) else { continue };
            let name = process.label(frame);
            match sums.get_mut(&*name) {
                Some(sum) => *sum = sum.saturating_add(value),
                None => drop(sums.insert(Arc::from(&*name), value)),
            }
        }
    }
    sums
}

/// Returns the slope of live bytes over the second half of the run, by least squares, in bytes per
/// second; `None` if there are too few samples or the run is too short.
fn growth(samples: &[Sample]) -> Option<f64> {
    let end_ns = samples.last()?.time_ns;
    if end_ns / 2 < GROWTH_OVER_NS {
        return None;
    }
    let later: Vec<(f64, f64)> = samples
        .iter()
        .filter(|sample| sample.time_ns >= end_ns / 2)
        .map(|sample| (sample.time_ns as f64 / 1e9, sample.live_bytes as f64))
        .collect();
    if later.len() < GROWTH_FROM {
        return None;
    }
    let count = later.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| later.iter().map(of).sum::<f64>() / count;
    let (time, live) = (mean(|point| point.0), mean(|point| point.1));
    let both: f64 = later.iter().map(|point| (point.0 - time) * (point.1 - live)).sum();
    let square: f64 = later.iter().map(|point| (point.0 - time).powi(2)).sum();
    (square > 0.0).then(|| both / square)
}

/// The spread of values.
#[derive(Clone, PartialEq, Debug)]
pub struct Spread {
    /// The median: half of the values are not less, half not more.
    pub median: f64,
    /// The lower and the upper quartile.
    pub quartiles: [f64; 2],
    /// Indices of the smallest and the largest value.
    pub extremes: [usize; 2],
    /// Indices of outliers, furthest from the median first.
    pub outlying: Vec<usize>,
}

impl Spread {
    /// Returns the spread of values; `None` if there are none. A value is an outlier if its
    /// modified z-score is above 3.5 (B. Iglewicz, D. C. Hoaglin: How to Detect and Handle
    /// Outliers, 1993; with the mean deviation if the median deviation is 0) and its distance from
    /// the median is above 5 %.
    ///
    /// ```
    /// use heaptide_analysis::views::ranks::Spread;
    /// let spread = Spread::of(&[10.0, 11.0, 9.0, 40.0, 10.0]).unwrap();
    /// assert_eq!((spread.median, spread.quartiles), (10.0, [10.0, 11.0]));
    /// assert_eq!((spread.extremes, spread.outlying), ([2, 3], vec![3]));
    /// ```
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
        let (&least, &most) = (order.first()?, order.last()?);
        let sorted: Vec<f64> = order.iter().map(|&at| values[at]).collect();
        let median = quantile(&sorted, 0.5);
        Some(Spread {
            median,
            quartiles: [quantile(&sorted, 0.25), quantile(&sorted, 0.75)],
            extremes: [least, most],
            outlying: outlying(values, median),
        })
    }
}

/// Returns a quantile of sorted values, interpolated between adjacent values.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

fn outlying(values: &[f64], median: f64) -> Vec<usize> {
    /// The median deviation of a normal distribution with a standard deviation of 1.
    const MEDIAN_DEVIATION: f64 = 0.674_489_75;
    /// Its mean deviation.
    const MEAN_DEVIATION: f64 = 0.797_884_56;
    let away: Vec<f64> = values.iter().map(|value| (value - median).abs()).collect();
    let mut sorted = away.clone();
    sorted.sort_by(f64::total_cmp);
    let middle = quantile(&sorted, 0.5);
    let mean = away.iter().sum::<f64>() / away.len() as f64;
    let unit = if middle > 0.0 { middle / MEDIAN_DEVIATION } else { mean / MEAN_DEVIATION };
    let stands_out =
        |at: &usize| away[*at] > OUTLYING_SCORE * unit && away[*at] > OUTLYING_PART * median.abs();
    let all = if values.len() < OUTLYING_FROM { 0 } else { values.len() };
    let mut found: Vec<usize> = (0..all).filter(stands_out).collect();
    found.sort_by(|&a, &b| away[b].total_cmp(&away[a]));
    found
}

/// An owner over all places.
#[derive(Clone, Debug)]
pub struct OwnerSpread {
    /// Its name.
    pub name: Arc<str>,
    /// Its value in each place.
    pub values: Vec<u64>,
    /// The spread of the values.
    pub spread: Spread,
    /// Sum over places of the part above the median.
    pub above_median: f64,
}

/// Returns how many owners are compared for this number of places.
pub fn owners_of(places: usize) -> usize {
    (VALUES_MAX / places.max(1)).clamp(OWNERS_MIN, OWNERS_MAX)
}

/// Returns the owners of places, ordered by the sum of the parts above the median. If there are too
/// many owners, those with most bytes are kept.
pub fn by_owner(places: &[Place]) -> Vec<OwnerSpread> {
    let mut sums: FxHashMap<&Arc<str>, u64> = FxHashMap::default();
    for (name, &value) in places.iter().flat_map(|place| &place.owners) {
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(value);
    }
    let mut names: Vec<(&Arc<str>, u64)> = sums.into_iter().collect();
    names.sort_by_key(|&(name, sum)| (Reverse(sum), name));
    names.truncate(owners_of(places.len()));
    let of = |(name, _): (&Arc<str>, u64)| {
        let value = |place: &Place| place.owners.get(name).copied().unwrap_or(0);
        let values: Vec<u64> = places.iter().map(value).collect();
        let numbers: Vec<f64> = values.iter().map(|&value| value as f64).collect();
        let spread = Spread::of(&numbers)?;
        let above_median = numbers.iter().map(|value| (value - spread.median).max(0.0)).sum();
        Some(OwnerSpread { name: name.clone(), values, spread, above_median })
    };
    let mut owners: Vec<OwnerSpread> = names.into_iter().filter_map(of).collect();
    owners.sort_by(|a, b| b.above_median.total_cmp(&a.above_median)); // stable, so by sum
    owners
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::with_stacks;
    use crate::model::Rank;

    fn sample(time_s: u64, live_bytes: u64) -> Sample {
        Sample { time_ns: time_s * 1_000_000_000, live_bytes, ..Sample::default() }
    }

    #[test]
    fn growth_is_the_slope_of_the_second_half() {
        let grows: Vec<Sample> = (0..=10).map(|s| sample(s, 500_000 + 100 * s)).collect();
        assert_eq!(growth(&grows).map(f64::round), Some(100.0));
        let early: Vec<Sample> = (0..=10).map(|s| sample(s, 7 * s.min(5))).collect();
        assert_eq!(growth(&early), Some(0.0));
        assert_eq!(growth(&grows[..4]), None);
        let short = |s: &Sample| Sample { time_ns: s.time_ns / 10, ..*s };
        assert_eq!(growth(&grows.iter().map(short).collect::<Vec<_>>()), None);
        assert_eq!(growth(&[]), None);
    }

    #[test]
    fn values_stand_out_by_the_median_deviation() {
        let spread = |values: &[f64]| Spread::of(values).expect("values");
        // The median deviation is 1: the threshold is 3.5 / 0.6745 = 5.19.
        let values = [9.0, 9.0, 10.0, 10.0, 10.0, 11.0, 11.0, 15.2, 4.7, 5.0];
        assert_eq!(spread(&values).outlying, [8, 7]);
        // All but one are equal; the outlier must be 5 % away.
        let mut equal = [100.0; 40];
        equal[7] = 104.0;
        assert_eq!(spread(&equal).outlying, [0; 0]);
        equal[7] = 106.0;
        assert_eq!(spread(&equal).outlying, [7]);
        assert_eq!(spread(&[1.0, 1.0, 9.0]).outlying, [0; 0]);
        let one = Spread { median: 3.0, quartiles: [3.0; 2], extremes: [0; 2], outlying: vec![] };
        assert_eq!(spread(&[3.0]), one);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn owners_are_in_order_of_what_ranks_have_above_the_median() {
        let process = |rank: Option<u32>, stacks: &[&str]| {
            let mut process = with_stacks(stacks);
            process.identity.rank = rank.map(|number| Rank { number, of: 0 });
            process
        };
        let processes = [
            process(Some(2), &["main;even", "main;odd"]),
            process(Some(0), &["main;even", "main;odd", "main;odd;more"]),
            process(None, &["main;even"]),
            process(Some(1), &["main;even"]),
        ];
        let places = places(&processes, Origin::Rank, Measure::Allocations);
        let names: Vec<&str> = places.iter().map(|place| &*place.name).collect();
        assert_eq!(names, ["rank 0", "rank 1", "rank 2", "no rank"]);
        assert!(!places[3].is_compared && places[..3].iter().all(|place| place.is_compared));
        let owners = by_owner(&places[..3]);
        let rows: Vec<_> =
            owners.iter().map(|row| (&*row.name, &row.values[..], row.above_median)).collect();
        assert_eq!(
            rows,
            [
                ("more", &[1, 0, 0][..], 1.0),
                ("even", &[1, 1, 1][..], 0.0),
                ("odd", &[1, 0, 1][..], 0.0),
            ]
        );
    }
}
