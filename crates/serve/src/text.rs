//! Metric families as text: OpenMetrics 1.0, or the older format of Prometheus (0.0.4).
//!
//! Specifications: github.com/prometheus/OpenMetrics, `specification/OpenMetrics.md`, and
//! prometheus.io/docs/instrumenting/exposition_formats.

use std::borrow::Cow;
use std::fmt::Write;

use crate::collector::Reading;
use crate::family::{Family, Kind, Point, Value};

/// A text format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    OpenMetrics,
    Prometheus,
}

impl Format {
    /// Selects the format that a client accepts by its `Accept` header.
    pub(crate) fn accepted(accept: &str) -> Format {
        let is_open = |part: &str| {
            let mut fields = part.split(';').map(str::trim);
            let kind = fields.next().unwrap_or_default();
            let mut parameters = fields.filter_map(|field| field.split_once('='));
            let is_refused = |(name, value): (&str, &str)| {
                let value = value.trim_matches('"');
                match name.to_ascii_lowercase().as_str() {
                    "version" => !matches!(value, "1.0.0" | "0.0.1"),
                    "q" => value.parse() == Ok(0.0),
                    _ => false,
                }
            };
            kind.eq_ignore_ascii_case("application/openmetrics-text") && !parameters.any(is_refused)
        };
        if accept.split(',').any(is_open) { Format::OpenMetrics } else { Format::Prometheus }
    }

    /// Returns the content type of a response.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Formats a reading.
pub(crate) fn text(reading: &Reading, format: Format) -> String {
    let mut text = String::new();
    for family in &reading.families {
        write_family(&mut text, reading, family, format);
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn write_family(text: &mut String, reading: &Reading, family: &Family, format: Format) {
    let definition = family.definition;
    let suffix = match definition.kind {
        Kind::Counter => "_total",
        Kind::Gauge => "",
        Kind::Info => "_info",
    };
    let name = definition.name;
    let (of_family, kind) = match (format, definition.kind) {
        (Format::OpenMetrics, Kind::Counter) => ("", "counter"),
        (Format::OpenMetrics, Kind::Info) => ("", "info"),
        (Format::Prometheus, Kind::Counter) => (suffix, "counter"),
        (Format::Prometheus, Kind::Info) => (suffix, "gauge"),
        (_, Kind::Gauge) => ("", "gauge"),
    };
    let _ = writeln!(text, "# HELP {name}{of_family} {}", escaped_help(definition.help, format));
    let _ = writeln!(text, "# TYPE {name}{of_family} {kind}");
    if format == Format::OpenMetrics && !definition.unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {}", definition.unit);
    }
    for point in &family.points {
        text.push_str(name);
        text.push_str(suffix);
        write_labels(text, reading, point);
        match point.value {
            Value::Whole(value) => _ = writeln!(text, " {value}"),
            Value::Real(value) => _ = writeln!(text, " {value}"),
        }
    }
}

fn write_labels(text: &mut String, reading: &Reading, point: &Point) {
    let process = point.process.and_then(|index| reading.processes.get(index));
    let of_process =
        process.map(|process| [("pid", &*process.pid), ("program", &*process.program)]);
    let own = point.labels.iter().map(|(name, value)| (*name, &**value));
    let labels = of_process.into_iter().flatten().chain(own);
    let mut is_first = true;
    for (name, value) in labels {
        let before = if is_first { '{' } else { ',' };
        let _ = write!(text, "{before}{name}=\"{}\"", escaped(value));
        is_first = false;
    }
    if !is_first {
        text.push('}');
    }
}

/// Escapes the value of a label, as required by both formats.
fn escaped(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(value);
    }
    Cow::Owned(value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

fn escaped_help(help: &str, format: Format) -> Cow<'_, str> {
    match format {
        Format::OpenMetrics => escaped(help),
        Format::Prometheus => Cow::Borrowed(help), // help texts contain no backslash or line break
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::collector::Listed;
    use crate::family::Definition;

    const LIVE: Definition = Definition::gauge("live_bytes", "bytes", "Live \"bytes\".");
    const CALLS: Definition = Definition::counter("calls", "", "Calls.");
    const BUILD: Definition = Definition::info("build", "What it is.");

    fn reading() -> Reading {
        let (pid, program) = ("7".into(), "a\"b\\c\nd".into());
        let process = Listed { pid, program, image: None };
        let labelled = |value| Point {
            process: Some(0),
            labels: vec![("scope", "load > parse".into())],
            value,
        };
        let families = vec![
            Family { definition: &LIVE, points: vec![labelled(Value::Real(1.5))] },
            Family { definition: &CALLS, points: vec![labelled(Value::Whole(u64::MAX))] },
            Family { definition: &BUILD, points: vec![Point::plain(Value::Whole(1))] },
        ];
        Reading {
            families,
            processes: vec![process],
            running: Vec::new(),
            failures: Vec::new(),
            read_at: Instant::now(),
            cost: Duration::ZERO,
        }
    }

    #[test]
    fn both_formats() {
        let labels = r#"{pid="7",program="a\"b\\c\nd",scope="load > parse"}"#;
        let expected = format!(
            "# HELP live_bytes Live \\\"bytes\\\".\n# TYPE live_bytes gauge\n\
             # UNIT live_bytes bytes\nlive_bytes{labels} 1.5\n\
             # HELP calls Calls.\n# TYPE calls counter\ncalls_total{labels} 18446744073709551615\n\
             # HELP build What it is.\n# TYPE build info\nbuild_info 1\n# EOF\n"
        );
        assert_eq!(text(&reading(), Format::OpenMetrics), expected);
        let expected = format!(
            "# HELP live_bytes Live \"bytes\".\n# TYPE live_bytes gauge\nlive_bytes{labels} 1.5\n\
             # HELP calls_total Calls.\n# TYPE calls_total counter\n\
             calls_total{labels} 18446744073709551615\n\
             # HELP build_info What it is.\n# TYPE build_info gauge\nbuild_info 1\n"
        );
        assert_eq!(text(&reading(), Format::Prometheus), expected);
    }

    #[test]
    fn clients_get_what_they_accept() {
        let open = [
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "text/plain, application/openmetrics-text; version=\"1.0.0\"; charset=utf-8",
            "application/openmetrics-text",
        ];
        for accept in open {
            assert_eq!(Format::accepted(accept), Format::OpenMetrics, "{accept}");
        }
        let other = [
            "",
            "*/*",
            "text/plain;version=0.0.4",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-text;q=0,text/plain",
        ];
        for accept in other {
            assert_eq!(Format::accepted(accept), Format::Prometheus, "{accept}");
        }
    }
}
