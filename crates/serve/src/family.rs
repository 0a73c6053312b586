//! Families of metrics and their points, as both the text of Prometheus and OTLP have them.

use std::sync::Arc;

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// It only grows. Its name is followed by `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Its labels describe something; its value is 1. Its name is followed by `_info`.
    Info,
}

/// The names of a family.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Definition {
    /// Without `_total` and `_info`.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The unit at the end of the name; empty if it is none but a number of something.
    pub(crate) unit: &'static str,
    /// A sentence that explains it.
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

/// One value with its labels.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Point {
    /// The process that it is of, an index into those of the reading; none if it is of all.
    pub(crate) process: Option<usize>,
    /// Names and values beside those of the process.
    pub(crate) labels: Vec<(&'static str, Arc<str>)>,
    pub(crate) value: Value,
}

impl Point {
    /// A value without labels.
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
