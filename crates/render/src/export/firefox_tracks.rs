//! The tracks of the Firefox Profiler: counters from the timeline; windows and marks as markers.

use heaptide_analysis::model::{LaneId, Mark, Process, Sample};
use serde_json::{Value, json};

use crate::shared::live_over_time;

/// Phases of markers.
const INSTANT: u32 = 0;
const INTERVAL: u32 = 1;

/// Returns the descriptions of the markers' fields.
pub(crate) fn schemas() -> Value {
    let field = |key: &str, format: &str| json!({"key": key, "label": key.replace('_', " "), "format": format});
    let schema = |name: &str, fields: Vec<Value>| {
        json!({
            "name": name, "tableLabel": "{marker.name}", "chartLabel": "{marker.name}",
            "tooltipLabel": "{marker.name}", "fields": fields,
            "display": ["marker-chart", "marker-table", "timeline-overview", "timeline-memory"],
        })
    };
    let counted = ["allocations", "frees"].map(|key| field(key, "integer"));
    let bytes = ["usable_bytes", "freed_bytes", "live_bytes", "peak_bytes"];
    let of_window = counted.into_iter().chain(bytes.map(|key| field(key, "bytes"))).collect();
    json!([schema("Window", of_window), schema("Mark", vec![field("live_bytes", "bytes")])])
}

/// Returns the markers of a lane: marks set by it. The first lane also has windows, and marks from
/// outside. Names are indices into the profile's strings.
pub(crate) fn markers(process: &Process, lane: LaneId, windows: &[u32], marks: &[u32]) -> Value {
    let first = lane == LaneId(0);
    let end_ms = |ns: u64| json!(milliseconds(ns));
    let windows = process.time.windows.iter().zip(windows).filter(|_| first).map(|(w, &name)| {
        let end = if w.open { process.lifetime.duration_ns } else { w.end_time_ns };
        let data = json!({
            "type": "Window", "allocations": w.allocations, "frees": w.frees,
            "usable_bytes": w.usable_bytes, "freed_bytes": w.freed_bytes,
            "live_bytes": w.live_bytes, "peak_bytes": w.peak_bytes,
        });
        (w.begin_time_ns, INTERVAL, end_ms(end.max(w.begin_time_ns)), name, data)
    });
    let here = |mark: &Mark| mark.lane.unwrap_or(LaneId(0)) == lane;
    let marks = process.time.marks.iter().zip(marks).filter(|(mark, _)| here(mark));
    let marks = marks.map(|(mark, &name)| {
        let data = json!({"type": "Mark", "live_bytes": mark.live_bytes});
        (mark.time_ns, INSTANT, Value::Null, name, data)
    });
    let mut all: Vec<_> = windows.chain(marks).collect();
    all.sort_by_key(|marker| marker.0);
    let column = |of: fn(&(u64, u32, Value, u32, Value)) -> Value| -> Vec<Value> {
        all.iter().map(of).collect()
    };
    json!({
        "length": all.len(),
        "startTime": column(|m| json!(milliseconds(m.0))),
        "phase": column(|m| json!(m.1)),
        "endTime": column(|m| m.2.clone()),
        "name": column(|m| json!(m.3)),
        "data": column(|m| m.4.clone()),
        "category": column(|_| json!(0)),
    })
}

/// Returns counters of live bytes, resident bytes and allocations, each as changes between samples.
pub(crate) fn counters(process: &Process) -> Value {
    if process.tables.lanes.is_empty() {
        return json!([]);
    }
    let samples = &process.time.samples;
    let of_samples = |value: fn(&Sample) -> u64| -> Vec<(u64, u64)> {
        samples.iter().map(|sample| (sample.time_ns, value(sample))).collect()
    };
    let bytes = ["accumulated", "bytes", "line-accumulated"];
    let count = ["count", "number", "line-rate"];
    let mut counters =
        vec![counter(process, "live bytes", "orange", bytes, &live_over_time::points(process))];
    if !samples.is_empty() {
        let resident = of_samples(|sample| sample.resident_bytes);
        counters.push(counter(process, "resident bytes", "purple", bytes, &resident));
        let allocations = of_samples(|sample| sample.allocations);
        counters.push(counter(process, "allocations", "blue", count, &allocations));
    }
    Value::Array(counters)
}

/// Returns a counter whose values start from 0. `[source, unit, graph]` describe how it is
/// displayed.
fn counter(
    process: &Process,
    name: &str,
    color: &str,
    [source, unit, graph]: [&str; 3],
    values: &[(u64, u64)],
) -> Value {
    let before = std::iter::once(0).chain(values.iter().map(|value| value.1));
    let changes = values.iter().zip(before);
    let changes: Vec<i64> =
        changes.map(|(&(_, value), before)| value.wrapping_sub(before) as i64).collect();
    let times: Vec<f64> = values.iter().map(|value| milliseconds(value.0)).collect();
    let shown_unit = if unit == "bytes" { "bytes" } else { "" };
    json!({
        "name": name, "category": "Memory", "description": name,
        "pid": process.identity.pid.to_string(), "mainThreadIndex": 0,
        "samples": {"length": times.len(), "time": times, "count": changes},
        "display": {
            "graphType": graph, "unit": shown_unit, "color": color, "label": name,
            "markerSchemaLocation": "timeline-memory", "sortWeight": 20,
            "tooltipRows": [
                {"type": "value", "source": source, "format": {"unit": unit}, "label": name},
            ],
        },
    })
}

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}
