//! Data of views of ranks: the compared places, and their owners.

use std::cmp::Ordering;

use heaptide_analysis::model::Measure;
use heaptide_analysis::recording::origin::Origin;
use heaptide_analysis::views::ranks::{OwnerSpread, Place, Spread, by_owner};

/// A comparison of ranks, hosts or processes.
pub struct Ranks {
    /// Names what was read.
    pub title: String,
    /// Number of recordings.
    pub recordings: usize,
    /// What is compared: ranks, hosts or processes.
    pub by: Origin,
    /// The metric by which owners and outliers are compared.
    pub metric: Measure,
    /// The compared places, in order.
    pub places: Vec<Place>,
    /// Number of process images that belong to no place.
    pub left_out: u32,
    /// Owners of allocations, sorted by how much places differ in them, most first.
    pub owners: Vec<OwnerSpread>,
}

impl Ranks {
    /// Compares places.
    pub fn of(
        title: String,
        recordings: usize,
        by: Origin,
        metric: Measure,
        all: Vec<Place>,
    ) -> Ranks {
        let (places, others): (Vec<Place>, Vec<Place>) =
            all.into_iter().partition(|place| place.is_compared);
        let left_out = others.iter().map(|place| place.images).sum();
        let owners = by_owner(&places);
        Ranks { title, recordings, by, metric, places, left_out, owners }
    }

    /// Returns the metrics to show of whole places, the chosen one first.
    pub fn metrics(&self) -> Vec<Measure> {
        use Measure::{Allocations, LiveBytes, PeakBytes, Temporary};
        let mut metrics = vec![self.metric];
        let others = [PeakBytes, LiveBytes, Allocations, Temporary];
        metrics.extend(others.into_iter().filter(|&metric| metric != self.metric));
        metrics
    }

    /// Returns whether the host of a place has to be shown.
    pub fn has_several_hosts(&self) -> bool {
        self.by != Origin::Host
            && self.places.windows(2).any(|places| places[0].host != places[1].host)
    }

    /// Returns how a value is distributed over places; `None` without places.
    pub fn spread(&self, value: impl Fn(&Place) -> f64) -> Option<Spread> {
        Spread::of(&self.places.iter().map(value).collect::<Vec<f64>>())
    }

    /// Returns the owner by which a place differs most from the median, and the difference. Only
    /// differences in the direction of the place's total count.
    pub fn largest_difference(&self, at: usize) -> Option<(&str, f64)> {
        let whole = self.spread(|place| self.metric.of(&place.sums) as f64)?.median;
        let is_above = self.metric.of(&self.places[at].sums) as f64 >= whole;
        let difference = |owner: &OwnerSpread| owner.values[at] as f64 - owner.spread.median;
        let towards = |owner: &OwnerSpread| difference(owner) * if is_above { 1.0 } else { -1.0 };
        let most = self
            .owners
            .iter()
            .max_by(|a, b| towards(a).partial_cmp(&towards(b)).unwrap_or(Ordering::Equal))?;
        (towards(most) > 0.0).then(|| (&*most.name, difference(most)))
    }
}
