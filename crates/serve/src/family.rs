//! Metric families and their points, in the common model of Prometheus and OTLP.

use std::sync::Arc;

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// It only increases. Its name gets the suffix `_total`.
    Counter,
    /// It can increase and decrease.
    Gauge,
    /// Its labels are information; its value is 1. Its name gets the suffix `_info`.
    Info,
}

/// The names of a family.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Definition {
    /// Without `_total` and `_info`.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The unit at the end of the name; empty for plain counts.
    pub(crate) unit: &'static str,
    /// A sentence that describes it.
    pub(crate) help: &'static str,
}

impl Definition {
    pub(crate) const fn counter(
        name: &'static str,
        unit: &'static str,
        help: &'static str,
    ) -> Definition {
        Definition { name, kind: Kind::Counter, unit, help }
    }

    pub(crate) const fn gauge(
        name: &'static str,
        unit: &'static str,
        help: &'static str,
    ) -> Definition {
        Definition { name, kind: Kind::Gauge, unit, help }
    }

    pub(crate) const fn info(name: &'static str, help: &'static str) -> Definition {
        Definition { name, kind: Kind::Info, unit: "", help }
    }
}

/// The value of a point.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Value {
    Whole(u64),
    Real(f64),
}

/// A value with its labels.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Point {
    /// Index of its process in the reading; `None` if it covers all.
    pub(crate) process: Option<usize>,
    /// Names and values in addition to those of the process.
    pub(crate) labels: Vec<(&'static str, Arc<str>)>,
    pub(crate) value: Value,
}

impl Point {
    /// Returns a value without labels.
    pub(crate) fn plain(value: Value) -> Point {
        Point { process: None, labels: Vec::new(), value }
    }
}

/// A metric with all its points.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) definition: &'static Definition,
    pub(crate) points: Vec<Point>,
}
