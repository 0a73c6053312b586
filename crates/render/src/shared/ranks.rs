//! What views of ranks show: places that are compared, and their owners.

use std::cmp::Ordering;

use heaptide_analysis::model::Measure;
use heaptide_analysis::recording::origin::Origin;
use heaptide_analysis::views::ranks::{OwnerSpread, Place, Spread, by_owner};

/// Ranks, hosts or processes that are compared.
pub struct Ranks {
    /// What was read.
    pub title: String,
    /// How many recordings that is.
    pub recordings: usize,
    /// What is compared.
    pub by: Origin,
    /// The metric of owners and of places that stand out.
    pub metric: Measure,
    /// The places that are compared, in order.
    pub places: Vec<Place>,
    /// Process images of no place.
    pub left_out: u32,
    /// Their owners, those by which they differ most first.
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

    /// The metrics of whole places that are shown, the chosen one first.
    pub fn metrics(&self) -> Vec<Measure> {
        use Measure::{Allocations, LiveBytes, PeakBytes, Temporary};
        let mut metrics = vec![self.metric];
        let others = [PeakBytes, LiveBytes, Allocations, Temporary];
        metrics.extend(others.into_iter().filter(|&metric| metric != self.metric));
        metrics
    }

    /// Whether it matters on which host a place is.
    pub fn has_several_hosts(&self) -> bool {
        self.by != Origin::Host
            && self.places.windows(2).any(|places| places[0].host != places[1].host)
    }

    /// How a value of places spreads; none without places.
    pub fn spread(&self, value: impl Fn(&Place) -> f64) -> Option<Spread> {
        Spread::of(&self.places.iter().map(value).collect::<Vec<f64>>())
    }

    /// The owner by which a place differs most from the median, in the direction in which it
    /// differs as a whole, and by how much.
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
