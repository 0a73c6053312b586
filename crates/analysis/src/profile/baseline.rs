//! Counters since a reset: subtracts the baseline, a copy of the profile at the reset. Counters of
//! the whole run: takes the peak from the baseline, if it was higher before the reset.
//!
//! Ids are positions in the file and records are never moved, so a record of the baseline is found
//! in the profile by its id. Counters are subtracted. Live bytes do not change, and the peak, the
//! bytes live at peak and the largest request are those of the profile: the recorder restarted them
//! at the reset, or they cannot be separated.

use std::path::{Path, PathBuf};

use heaptide_format as format;
use heaptide_format::{BASELINE_SUFFIX, FileHeader};
use rustc_hash::FxHashMap;

use super::parsed::{Before, EarlierPeak, Profile};
use super::reader;
use crate::error::Error;
use crate::files::file_names;
use crate::model::DamagedFile;

/// Stores the counters of the baseline in a profile, if its counters were reset. Returns the
/// baseline if it exists and cannot be read.
pub(crate) fn apply(file: &Path, profile: &mut Profile) -> Option<DamagedFile> {
    let at = profile.header.reset_time_ns as f64 / 1e9;
    let Baseline { read, damaged } = Baseline::of(file, profile)?;
    match read {
        Ok(before) => take_off(profile, before, format!("the reset at {at:.3} s")),
        Err(why) => profile.notes.push(format!(
            "counts are from the start: counts before the reset at {at:.3} s are unknown ({why})"
        )),
    }
    damaged
}

/// Makes the peak of a profile that of the whole run, if its counters were reset. Returns the
/// baseline if it exists and cannot be read.
pub(crate) fn restore_peak(file: &Path, profile: &mut Profile) -> Option<DamagedFile> {
    let at = profile.header.reset_time_ns as f64 / 1e9;
    let Baseline { read, damaged } = Baseline::of(file, profile)?;
    let why = match read {
        Ok(before) => {
            take_peak(profile, before);
            "the peak was before an earlier reset".to_owned()
        }
        Err(why) => {
            if profile.header.earlier_peak_bytes == 0 {
                profile.notes.push(format!(
                    "the peak is that since the reset at {at:.3} s: the earlier one is unknown \
                     ({why})"
                ));
            }
            why
        }
    };
    let FileHeader { earlier_peak_bytes, peak_bytes, peak_bound_bytes, .. } = profile.header;
    let lacks = earlier_peak_bytes.saturating_sub(peak_bytes);
    if lacks > peak_bound_bytes.max(profile.unpublished_bytes()) {
        profile.header.peak_bound_bytes = lacks;
        profile.notes.push(format!(
            "what was live at the highest peak, before the reset at {at:.3} s, is unknown ({why})"
        ));
    }
    damaged
}

/// The baseline of a profile whose counters were reset.
struct Baseline {
    /// The baseline, or why it is unknown.
    read: Result<Profile, String>,
    /// Its file, if that exists and cannot be read.
    damaged: Option<DamagedFile>,
}

impl Baseline {
    /// Reads the baseline of a profile; `None` if its counters were not reset.
    fn of(file: &Path, profile: &Profile) -> Option<Baseline> {
        let path = file_of(file).filter(|_| profile.header.resets > 0)?;
        let read = reader::read(&path);
        let unread = read.as_ref().err().filter(|error| !error.is_missing());
        let reason = unread.map(Error::to_string);
        let read = read.map_err(|error| error.to_string());
        let read = read.and_then(|before| matching(before, &path, profile));
        Some(Baseline { read, damaged: reason.map(|reason| DamagedFile { path, reason }) })
    }
}

/// Takes the peak of an earlier copy, and what was live then, if it was higher.
fn take_peak(profile: &mut Profile, before: Profile) {
    let (is, was) = (&mut profile.header, &before.header);
    if was.peak_bytes <= is.peak_bytes {
        return;
    }
    (is.peak_bytes, is.peak_time_ns) = (was.peak_bytes, was.peak_time_ns);
    let sites = before.sites.into_iter().map(|site| (site.id, site)).collect();
    profile.earlier_peak = Some(Box::new(EarlierPeak { epoch: was.epoch, sites }));
}

/// Stores the counters of an earlier copy in a profile, so that counters are `since` then.
pub(crate) fn take_off(profile: &mut Profile, before: Profile, since: String) {
    take_off_scopes(profile, &before);
    take_off_shapes(profile, &before);
    let unmatched = &mut profile.header.unmatched_frees;
    *unmatched = unmatched.saturating_sub(before.header.unmatched_frees);
    let [mapped, device] =
        [before.mapped, before.device].map(|memory| memory.map(|m| *m).unwrap_or_default());
    let sites = before.sites.into_iter().chain(mapped.sites).chain(device.sites);
    let by_index =
        |lanes: Vec<format::Lane>| lanes.into_iter().map(|lane| (lane.index, lane)).collect();
    profile.before = Some(Box::new(Before {
        since,
        sites: sites.map(|site| (site.id, site)).collect(),
        lanes: by_index(before.lanes),
        mapped_lanes: by_index(mapped.lanes),
        device_lanes: by_index(device.lanes),
    }));
}

/// Returns the path of the baseline of a profile or snapshot; `None` for other files.
fn file_of(file: &Path) -> Option<PathBuf> {
    let process = match file_names::snapshot(file) {
        Some((image, _)) => image.to_string(),
        None => file_names::image_name(file),
    };
    let path = file.with_file_name(format!("{process}{BASELINE_SUFFIX}"));
    (path != file).then_some(path)
}

/// Returns the baseline if it is that of this profile's last reset. If a snapshot is older than the
/// baseline, the baseline is that of a later reset.
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

fn take_off_shapes(profile: &mut Profile, before: &Profile) {
    let shapes = before.named.shapes.iter().map(|shape| (shape.id, shape.record.labelled));
    let earlier: FxHashMap<u32, u64> = shapes.collect();
    for shape in &mut profile.named.shapes {
        let labelled = &mut shape.record.labelled;
        *labelled = labelled.saturating_sub(earlier.get(&shape.id).copied().unwrap_or(0));
    }
}
