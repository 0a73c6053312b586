//! Figures since a reset: the profile's less those of its baseline, the copy made at the reset.
//!
//! Ids are places in the file and records are never moved, so a record of the baseline is found in
//! the profile by its id. What was counted is taken off; live stays as it is, and the peak, what
//! was live at it and the largest request are the profile's: the recorder began those anew, or they
//! cannot be told apart.

use std::path::{Path, PathBuf};

use heaptide_format as format;
use heaptide_format::BASELINE_SUFFIX;
use rustc_hash::FxHashMap;

use crate::Error;
use crate::model::{Measures, Moved};
use crate::profile::reader::{self, Profile, Site};
use crate::recording::snapshot;

/// What had been counted at the last reset.
#[derive(Debug)]
pub struct Before {
    /// When that was, seconds from the start.
    since_s: f64,
    sites: FxHashMap<u32, Site>,
    lanes: FxHashMap<u32, format::Lane>,
}

/// Notes in a profile what its baseline counted, if its figures were reset. Returns the baseline
/// and the reason if it is there and cannot be read.
pub(crate) fn apply(file: &Path, profile: &mut Profile) -> Option<(PathBuf, String)> {
    let resets = profile.header.resets;
    let baseline = file_of(file).filter(|_| resets > 0)?;
    let at = profile.header.reset_time_ns as f64 / 1e9;
    let read = reader::read(&baseline);
    let damage = read.as_ref().err().filter(|error| !error.is_missing()).map(Error::to_string);
    let read = read.map_err(|error| error.to_string());
    match read.and_then(|before| matching(before, &baseline, profile)) {
        Ok(before) => {
            take_off_scopes(profile, &before);
            let unmatched = &mut profile.header.unmatched_frees;
            *unmatched = unmatched.saturating_sub(before.header.unmatched_frees);
            let sites = before.sites.into_iter().map(|site| (site.id, site)).collect();
            let lanes = before.lanes.into_iter().map(|lane| (lane.index, lane)).collect();
            profile.before = Some(Box::new(Before { since_s: at, sites, lanes }));
        }
        Err(why) => profile.notes.push(format!(
            "counts are from the start: counts before the reset at {at:.3} s are unknown ({why})"
        )),
    }
    damage.map(|reason| (baseline, reason))
}

/// The baseline of a profile or snapshot; none for what is neither.
fn file_of(file: &Path) -> Option<PathBuf> {
    let process = match snapshot::numbers(file) {
        Some((image, _)) => image.to_string(),
        None => snapshot::process_of(file),
    };
    let path = file.with_file_name(format!("{process}{BASELINE_SUFFIX}"));
    (path != file).then_some(path)
}

/// The baseline if it is that of this profile's last reset. A snapshot may be older: then it is of
/// a later one.
fn matching(before: Profile, baseline: &Path, profile: &Profile) -> Result<Profile, String> {
    let (is, was) = (&profile.header, &before.header);
    let same = |h: &format::FileHeader| (h.pid, h.image, h.start_realtime_ns);
    if same(is) != same(was) || was.resets.checked_add(1) != Some(is.resets) {
        return Err(format!("{}: belongs to another reset", baseline.display()));
    }
    Ok(before)
}

fn take_off_scopes(profile: &mut Profile, before: &Profile) {
    let scopes = before.named.scopes.iter().map(|scope| (scope.id, scope.counters));
    let earlier: FxHashMap<u32, format::Scope> = scopes.collect();
    for scope in &mut profile.named.scopes {
        let Some(was) = earlier.get(&scope.id) else {
            continue;
        };
        let is = &mut scope.counters;
        is.entered = is.entered.saturating_sub(was.entered);
        is.frees_here = is.frees_here.saturating_sub(was.frees_here);
        is.freed_here_bytes = is.freed_here_bytes.saturating_sub(was.freed_here_bytes);
    }
}

impl Before {
    /// What the figures are of, for a person.
    pub(crate) fn says(&self) -> String {
        format!("since the reset at {:.3} s", self.since_s)
    }

    /// Takes off what a site had counted; `measures_of` makes its row of its record.
    pub(crate) fn take_off_site(
        &self,
        id: u32,
        measures: &mut Measures,
        moved: &mut Moved,
        measures_of: impl Fn(&Site) -> Measures,
    ) {
        let Some(site) = self.sites.get(&id) else {
            return;
        };
        take_off(measures, &measures_of(site));
        let [blocks, usable_bytes, requested_bytes] = site.moved;
        moved.blocks = moved.blocks.saturating_sub(blocks);
        moved.usable_bytes = moved.usable_bytes.saturating_sub(usable_bytes);
        moved.requested_bytes = moved.requested_bytes.saturating_sub(requested_bytes);
    }

    /// Takes off what a lane had counted, where lanes are all that there is.
    pub(crate) fn take_off_lane(
        &self,
        index: u32,
        measures: &mut Measures,
        measures_of: impl Fn(&format::Lane) -> Measures,
    ) {
        if let Some(lane) = self.lanes.get(&index) {
            take_off(measures, &measures_of(lane));
        }
    }

    /// The lanes with what they had counted taken off, as far as size classes have it.
    pub(crate) fn counts(&self, lanes: &[format::Lane]) -> Vec<format::Lane> {
        let mut lanes = lanes.to_vec();
        for lane in &mut lanes {
            let Some(was) = self.lanes.get(&lane.index) else {
                continue;
            };
            let less = |is: &mut [u64; format::SIZE_CLASSES], was: &[u64; format::SIZE_CLASSES]| {
                is.iter_mut().zip(was).for_each(|(is, was)| *is = is.saturating_sub(*was));
            };
            less(&mut lane.requested_classes, &was.requested_classes);
            less(&mut lane.usable_classes, &was.usable_classes);
            less(&mut lane.freed_classes, &was.freed_classes);
            lane.requested_bytes = lane.requested_bytes.saturating_sub(was.requested_bytes);
            lane.usable_bytes = lane.usable_bytes.saturating_sub(was.usable_bytes);
        }
        lanes
    }
}

/// Counts and sums less those before; live, the peak and the largest request stay.
fn take_off(is: &mut Measures, was: &Measures) {
    let less = |is: &mut u64, was: u64| *is = is.saturating_sub(was);
    less(&mut is.allocations, was.allocations);
    less(&mut is.frees, was.frees);
    less(&mut is.reallocations, was.reallocations);
    less(&mut is.failed, was.failed);
    less(&mut is.requested_bytes, was.requested_bytes);
    less(&mut is.usable_bytes, was.usable_bytes);
    less(&mut is.freed_bytes, was.freed_bytes);
    less(&mut is.temporary, was.temporary);
    less(&mut is.cross_thread_frees, was.cross_thread_frees);
    less(&mut is.frees_here, was.frees_here);
    less(&mut is.freed_here_bytes, was.freed_here_bytes);
}
