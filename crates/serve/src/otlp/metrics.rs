//! Converts a reading to metrics of OTLP, with the same names as for Prometheus.
//!
//! Fields are numbered as in github.com/open-telemetry/opentelemetry-proto, version 1.11,
//! `metrics/v1/metrics.proto`, which is stable.

use heaptide_render::export::otlp::{self, Resource, Value as Attribute, attribute};
use heaptide_render::export::protobuf::Message;

use super::resource;
use crate::collector::Reading;
use crate::family::{Definition, Family, Kind, Point, Value};

/// Sums count from the start of the process or server (`AGGREGATION_TEMPORALITY_CUMULATIVE`).
const CUMULATIVE: u64 = 2;

/// Time of a reading and start of the server, in nanoseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) now_ns: u64,
    pub(crate) server_start_ns: u64,
}

/// Returns an `ExportMetricsServiceRequest`.
pub(crate) fn request(reading: &Reading, times: Times, version: &str) -> Vec<u8> {
    let mut request = Message::new();
    let mut add = |process: Option<usize>, resource: &Resource, start_ns: u64| {
        let mut of_scope = Message::new();
        of_scope.message(1, &otlp::scope(version));
        for family in &reading.families {
            if let Some(metric) = metric(family, process, (start_ns, times.now_ns)) {
                of_scope.message(2, &metric);
            }
        }
        let mut of_resource = Message::new();
        of_resource.message(1, &resource.message()).message(2, &of_scope);
        request.message(1, &of_resource);
    };
    for (index, listed) in reading.processes.iter().enumerate() {
        let image = listed.image.as_ref();
        let start_ns = image.map_or(times.server_start_ns, |image| image.summary.start_realtime_ns);
        add(Some(index), &resource::of_process(listed), start_ns);
    }
    add(None, &resource::of_server(version), times.server_start_ns);
    request.finished()
}

/// Returns a `Metric` with the points of a process, or with those that belong to none; `None` if
/// there are no such points.
fn metric(family: &Family, process: Option<usize>, times: (u64, u64)) -> Option<Message> {
    let Definition { name, kind, unit, help } = family.definition;
    // The labels of an info are in the resource instead.
    let points = family.points.iter().filter(|point| point.process == process);
    let mut points = points.filter(|_| *kind != Kind::Info).peekable();
    points.peek()?;
    let mut data = Message::new();
    for point in points {
        data.message(1, &data_point(point, *kind, times));
    }
    let unit = match *unit {
        "bytes" => "By",
        "seconds" => "s",
        other => other,
    };
    let mut metric = Message::new();
    metric.bytes(1, name.as_bytes()).bytes(2, help.as_bytes()).bytes(3, unit.as_bytes());
    match kind {
        Kind::Gauge | Kind::Info => metric.message(5, &data),
        Kind::Counter => {
            data.number(2, CUMULATIVE).number(3, true);
            metric.message(7, &data)
        }
    };
    Some(metric)
}

fn data_point(point: &Point, kind: Kind, (start_ns, now_ns): (u64, u64)) -> Message {
    let mut data = Message::new();
    if kind == Kind::Counter {
        data.fixed(2, start_ns);
    }
    data.fixed(3, now_ns);
    match point.value {
        Value::Whole(value) => data.fixed(6, value.min(i64::MAX as u64)),
        Value::Real(value) => data.double(4, value),
    };
    for (name, value) in &point.labels {
        data.message(7, &attribute(name, &Attribute::from(&**value)));
    }
    data
}
