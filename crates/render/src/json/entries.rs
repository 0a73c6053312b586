//! Parts of the JSON schema that several views share: metrics, samples, modes, ends.

use heaptide_analysis::model::{End, Interval, Measure, Measures, Mode, Process, Sample, Sampling};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::shared::quantity::seconds;

/// Version of the schema; incremented when the meaning of a key changes or a key is removed.
pub(crate) const SCHEMA: u32 = 1;

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

/// Returns the value of a metric, or `None` if it is not recorded. Mode `counters` does not record
/// values at peak.
pub(crate) fn value(measure: Measure, measures: &Measures, mode: Mode) -> Option<u64> {
    let is_at_peak = matches!(measure, Measure::AtPeakBlocks | Measure::AtPeakBytes);
    (mode != Mode::Counters || !is_at_peak).then(|| measure.of(measures))
}

/// Writes the metrics of a part of a process, which has no peak of its own. Estimates also have the
/// limits of their 95 % interval.
pub(crate) fn serialize_part<M: SerializeMap>(
    measures: &Measures,
    process: &Process,
    map: &mut M,
) -> Result<(), M::Error> {
    serialize_measures(measures, process.mode, map)?;
    if process.sampling.is_some() {
        for measure in Measure::of_parts() {
            serialize_interval(measure, measures, process, map)?;
        }
    }
    Ok(())
}

fn serialize_measures<M: SerializeMap>(
    measures: &Measures,
    mode: Mode,
    map: &mut M,
) -> Result<(), M::Error> {
    for measure in Measure::of_parts() {
        map.serialize_entry(measure.name(), &value(measure, measures, mode))?;
    }
    Ok(())
}

/// Writes the limits of the 95 % interval of a metric, `…_low` and `…_high`, if it has one.
pub(crate) fn serialize_interval<M: SerializeMap>(
    measure: Measure,
    measures: &Measures,
    process: &Process,
    map: &mut M,
) -> Result<(), M::Error> {
    let Some(Interval { low, high }) = process.interval(measure, measures) else {
        return Ok(());
    };
    map.serialize_entry(&format!("{measure}_low"), &low)?;
    map.serialize_entry(&format!("{measure}_high"), &high)
}

/// The metrics of a part of a process, by name.
pub(crate) struct MeasuresEntry<'a>(pub(crate) Measures, pub(crate) &'a Process);

impl Serialize for MeasuresEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        serialize_part(&self.0, self.1, &mut map)?;
        map.end()
    }
}

/// The metrics of parts of several processes, by name.
pub(crate) struct SumsEntry(pub(crate) Measures);

impl Serialize for SumsEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        serialize_measures(&self.0, Mode::Stacks, &mut map)?;
        map.end()
    }
}

/// The parameters of sampling.
#[derive(serde::Serialize)]
pub(crate) struct SamplingEntry {
    mean_bytes: u64,
    blocks: u64,
    totals_are_exact: bool,
}

impl SamplingEntry {
    pub(crate) fn of(process: &Process) -> Option<SamplingEntry> {
        let Sampling { mean_bytes, blocks, .. } = process.sampling?;
        let totals_are_exact = !process.is_part_of_sampled();
        Some(SamplingEntry { mean_bytes, blocks, totals_are_exact })
    }
}
