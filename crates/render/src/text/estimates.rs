//! The column of a table that shows how exact estimates are.

use heaptide_analysis::model::{Interval, Measure, Measures, Process};

use crate::text::columns::{Column, right};
use crate::text::screen::Screen;

/// Returns the column with the 95 % interval of a metric; omitted if the metric has none.
pub(crate) fn column(process: &Process, measure: Measure) -> Column {
    let is_known = process.interval(measure, &Measures::default()).is_some();
    right(19, "95% interval").optional().if_known(is_known)
}

/// Returns the cell; empty if the value is 0 or the metric has no interval.
pub(crate) fn cell(out: &Screen, process: &Process, measure: Measure, row: &Measures) -> String {
    let interval = process.interval(measure, row).filter(|_| measure.of_sites().of(row) > 0);
    interval.map_or_else(String::new, |interval| limits(out, interval))
}

/// Formats both limits in bytes.
pub(crate) fn limits(out: &Screen, Interval { low, high }: Interval) -> String {
    format!("{}–{}", out.bytes(low), out.bytes(high))
}
