//! A comparison of ranks, as JSON.

use std::io::{self, Write};

use heaptide_analysis::model::Measure;
use heaptide_analysis::views::ranks::{OwnerSpread, Place, Spread};

use crate::json::entries::{SCHEMA, SumsEntry};
use crate::shared::json_text;
use crate::shared::ranks::Ranks;

/// Writes the places, the distribution of their values, and at most `top` owners as one JSON object
/// and a newline.
///
/// Errors: those of `out`.
pub fn write(out: &mut dyn Write, ranks: &Ranks, top: Option<usize>) -> io::Result<()> {
    let spread = |metric: Measure| {
        let spread = ranks.spread(|place| metric.of(&place.sums) as f64)?;
        Some(SpreadEntry { metric: metric.name(), spread: Values::of(&spread, ranks) })
    };
    let owners = ranks.owners.iter().take(top.unwrap_or(usize::MAX));
    let document = Document {
        schema: SCHEMA,
        heaptide: env!("CARGO_PKG_VERSION"),
        recordings: ranks.recordings,
        by: ranks.by.name(),
        metric: ranks.metric.name(),
        owner_metric: ranks.metric.of_sites().name(),
        left_out_images: ranks.left_out,
        places: ranks.places.iter().map(PlaceEntry::of).collect(),
        spreads: ranks.metrics().into_iter().filter_map(spread).collect(),
        owners: owners.map(|owner| OwnerEntry::of(owner, ranks)).collect(),
    };
    json_text::write(out, &document)?;
    out.write_all(b"\n")
}

#[derive(serde::Serialize)]
struct Document<'a> {
    schema: u32,
    heaptide: &'static str,
    recordings: usize,
    by: &'static str,
    metric: &'static str,
    owner_metric: &'static str,
    left_out_images: u32,
    places: Vec<PlaceEntry<'a>>,
    spreads: Vec<SpreadEntry<'a>>,
    owners: Vec<OwnerEntry<'a>>,
}

#[derive(serde::Serialize)]
struct PlaceEntry<'a> {
    name: &'a str,
    host: &'a str,
    images: u32,
    growth_bytes_per_s: Option<f64>,
    #[serde(flatten)]
    measures: SumsEntry,
    peak_bytes: u64,
}

impl PlaceEntry<'_> {
    fn of(place: &Place) -> PlaceEntry<'_> {
        PlaceEntry {
            name: &place.name,
            host: &place.host,
            images: place.images,
            growth_bytes_per_s: place.growth,
            measures: SumsEntry(place.sums),
            peak_bytes: place.sums.peak_bytes,
        }
    }
}

#[derive(serde::Serialize)]
struct SpreadEntry<'a> {
    metric: &'static str,
    #[serde(flatten)]
    spread: Values<'a>,
}

/// A distribution of values over places, which are given by name.
#[derive(serde::Serialize)]
struct Values<'a> {
    median: f64,
    lower_quartile: f64,
    upper_quartile: f64,
    least_in: &'a str,
    most_in: &'a str,
    outlying: Vec<&'a str>,
}

impl<'a> Values<'a> {
    fn of(spread: &Spread, ranks: &'a Ranks) -> Values<'a> {
        let name = |at: usize| &*ranks.places[at].name;
        let [least_in, most_in] = spread.extremes.map(name);
        let [lower_quartile, upper_quartile] = spread.quartiles;
        let outlying = spread.outlying.iter().map(|&at| name(at)).collect();
        let median = spread.median;
        Values { median, lower_quartile, upper_quartile, least_in, most_in, outlying }
    }
}

#[derive(serde::Serialize)]
struct OwnerEntry<'a> {
    owner: &'a str,
    above_median: f64,
    #[serde(flatten)]
    spread: Values<'a>,
    /// In the order of the places.
    values: &'a [u64],
}

impl<'a> OwnerEntry<'a> {
    fn of(owner: &'a OwnerSpread, ranks: &'a Ranks) -> OwnerEntry<'a> {
        OwnerEntry {
            owner: &owner.name,
            above_median: owner.above_median,
            spread: Values::of(&owner.spread, ranks),
            values: &owner.values,
        }
    }
}
