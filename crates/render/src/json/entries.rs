//! Parts of the JSON contract that several views have: metrics, samples, modes, ends.

use heaptide_analysis::model::{End, Measure, Measures, Mode, Sample};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::shared::quantity::seconds;

/// Version of the contract; it changes when a key changes its meaning or goes.
pub(crate) const SCHEMA: u32 = 1;

/// The name of a mode in options and JSON.
pub(crate) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Counters => "counters",
        Mode::Stacks => "stacks",
        Mode::Scopes => "scopes",
    }
}

#[derive(serde::Serialize)]
pub(crate) struct SampleEntry {
    time_s: f64,
    live_bytes: u64,
    peak_bytes: u64,
    allocations: u64,
    frees: u64,
    usable_bytes: u64,
    resident_bytes: u64,
    virtual_bytes: u64,
}

impl SampleEntry {
    pub(crate) fn of(s: &Sample) -> SampleEntry {
        SampleEntry {
            time_s: seconds(s.time_ns),
            live_bytes: s.live_bytes,
            peak_bytes: s.peak_bytes,
            allocations: s.allocations,
            frees: s.frees,
            usable_bytes: s.usable_bytes,
            resident_bytes: s.resident_bytes,
            virtual_bytes: s.virtual_bytes,
        }
    }
}

#[derive(serde::Serialize)]
pub(crate) struct EndEntry {
    kind: &'static str,
    code: Option<i32>,
}

impl EndEntry {
    pub(crate) fn of(end: End) -> EndEntry {
        let (kind, code) = match end {
            End::Exited(code) => ("exited", Some(code)),
            End::Signaled(code) => ("signaled", Some(code)),
            End::Exec => ("exec", None),
            End::Detached => ("detached", None),
            End::Running => ("running", None),
            End::Unknown => ("unknown", None),
        };
        EndEntry { kind, code }
    }
}

/// The value of a measure; none if it is not recorded. Counters cannot tell the blocks at the peak.
pub(crate) fn value(measure: Measure, measures: &Measures, mode: Mode) -> Option<u64> {
    let is_at_peak = matches!(measure, Measure::AtPeakBlocks | Measure::AtPeakBytes);
    (mode != Mode::Counters || !is_at_peak).then(|| measure.of(measures))
}

/// The measures of a row that is a part of a process with this mode: a part has no peak of its own.
pub(crate) fn serialize_part<M: SerializeMap>(
    measures: &Measures,
    mode: Mode,
    map: &mut M,
) -> Result<(), M::Error> {
    for measure in Measure::of_parts() {
        map.serialize_entry(measure.name(), &value(measure, measures, mode))?;
    }
    Ok(())
}

/// Measures of a part of a process with a mode, by their names.
pub(crate) struct MeasuresEntry(pub(crate) Measures, pub(crate) Mode);

impl Serialize for MeasuresEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        serialize_part(&self.0, self.1, &mut map)?;
        map.end()
    }
}
