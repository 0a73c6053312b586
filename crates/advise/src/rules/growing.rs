//! Live bytes that grow without bound from one snapshot or window to the next.
//!
//! The saving is the growth, an upper bound: with a limit, a part of it stays.

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{Mode, Process, Window};
use heaptide_analysis::quantity::{bytes, count};
use heaptide_analysis::views::aggregate::by_stack;
use rustc_hash::FxHashMap;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material};
use crate::rule::{Judged, Rule};

pub(super) const RULE: Rule = Rule {
    name: "growing",
    title: "Live bytes that keep growing",
    about: "The live bytes of a line of code grow from snapshot to snapshot, or those of the \
            process from one window of a name to the next, until the end and not ever more \
            slowly. The cause can be a cache without a limit, a list that is only appended to, or a leak. \
            Bound it, or remove what is no longer needed.",
    judge,
};

/// The minimal number of points after the beginning; a slope of fewer points may be random.
const POINTS_MIN: usize = 8;
/// The fraction of the points that belongs to the beginning, when caches fill.
const WARM_UP_PART: usize = 4;
/// The minimal slope, in multiples of its standard error.
const ERRORS_MIN: f64 = 6.0;
/// The minimal slope of the second half, relative to that of the whole; a smaller one indicates a
/// bound.
const LATE_PART_MIN: f64 = 0.5;
/// The part of the points before the end over which a series must still grow.
const END_PART: usize = 4;
/// The minimal slope of the second half, relative to that of the whole, that is worth its own
/// number.
const FASTER_PART_MIN: f64 = 1.5;
/// The maximal percentage of steps in which a series falls: more frequent falls indicate a bound.
const FALLS_PERCENT_MAX: usize = 10;

/// Returns whether there are enough snapshots for the growth of each line of code.
pub(super) fn has_history(material: &Material) -> bool {
    material.history.processes.len() >= POINTS_MIN + POINTS_MIN / (WARM_UP_PART - 1)
}

fn judge(material: &Material) -> Judged {
    let process = material.process;
    let (history, times) = (&material.history.processes, &material.history.times_ns);
    let mut findings = Vec::new();
    let has_history = has_history(material);
    if has_history && process.mode == Mode::Stacks {
        findings.extend(by_owner(material, history, times));
    }
    let mut has_windows = false;
    if process.identity.images == 1 {
        for (name, windows) in by_name(&process.time.windows) {
            has_windows |= windows.len() >= POINTS_MIN;
            findings.extend(by_window(material, name, &windows));
        }
    }
    if !has_history && !has_windows {
        return Judged::Needs(
            "ten snapshots (`heaptide run --snapshot-every 10s`), or windows of one name",
        );
    }
    Judged::Found(findings)
}

/// A regression line.
struct Trend {
    slope: f64,
    error: f64,
}

/// Growth until the end of a series: the trend of all its points after the beginning, and that of
/// the second half of them.
struct Growth {
    trend: Trend,
    late: Trend,
}

impl Growth {
    /// Returns the slope at the end of the series.
    fn slope_at_end(&self) -> f64 {
        if self.is_faster() { self.late.slope } else { self.trend.slope }
    }

    fn is_faster(&self) -> bool {
        self.late.slope > FASTER_PART_MIN * self.trend.slope
    }

    /// States the slope, a number of bytes for each `unit`.
    fn rate(&self, unit: &str) -> String {
        let rate = |trend: &Trend| {
            format!("{} ± {} {unit}", bytes(trend.slope as u64), bytes(trend.error.ceil() as u64))
        };
        if self.is_faster() {
            format!("{}, in the second half {}", rate(&self.trend), rate(&self.late))
        } else {
            format!("{}, until the end", rate(&self.trend))
        }
    }
}

/// Fits a line with least squares; `None` for fewer than three points, or if all `x` are equal.
fn fit(points: &[(f64, f64)]) -> Option<Trend> {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    if points.len() < 3 || spread <= 0.0 {
        return None;
    }
    let slope = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum::<f64>() / spread;
    let rest = |(x, y): &(f64, f64)| (y - y_mean - slope * (x - x_mean)).powi(2);
    let residuals: f64 = points.iter().map(rest).sum();
    Some(Trend { slope, error: (residuals / (n - 2.0) / spread).sqrt() })
}

/// Fits the slope of a series that grows until its end, excluding its beginning.
fn endless(points: &[(f64, f64)]) -> Option<Growth> {
    let points = &points[points.len() / WARM_UP_PART..];
    if points.len() < POINTS_MIN {
        return None;
    }
    let trend = fit(points)?;
    let late = fit(&points[points.len() / 2..])?;
    let falls = points.windows(2).filter(|pair| pair[1].1 < pair[0].1).count();
    let (last, before) = (points.last()?, points[points.len() - 1 - points.len() / END_PART]);
    let grows = trend.slope > 0.0
        && trend.slope >= ERRORS_MIN * trend.error
        && late.slope >= LATE_PART_MIN * trend.slope
        && last.1 - before.1 >= LATE_PART_MIN * trend.slope * (last.0 - before.0)
        && falls * 100 <= (points.len() - 1) * FALLS_PERCENT_MAX;
    grows.then_some(Growth { trend, late })
}

/// A line of code in each process of a recording: function name, file, line.
pub(super) type Name<'a> = (&'a str, Option<&'a str>, Option<u32>);

/// Returns the line of code that owns the blocks of a stack.
pub(super) fn name_of<'a>(
    process: &'a Process,
    owners: &Owners,
    stack: heaptide_analysis::model::StackId,
) -> Option<Name<'a>> {
    let frame = &process.tables.frames[owners.frame(process, stack)?.0 as usize];
    Some((frame.function.as_deref()?, frame.file.as_deref(), frame.line))
}

/// Returns findings for lines of code whose live bytes grow over snapshots.
fn by_owner(material: &Material, history: &[Process], times_ns: &[u64]) -> Vec<Finding> {
    let mut live: FxHashMap<Name, Vec<u64>> = FxHashMap::default();
    for (index, process) in history.iter().enumerate() {
        let owners = Owners::of(process);
        for (stack, measures) in by_stack(process).filter(|(_, m)| m.live_bytes > 0) {
            let Some(name) = name_of(process, &owners, stack) else { continue };
            let values = live.entry(name).or_insert_with(|| vec![0; history.len()]);
            values[index] = values[index].saturating_add(measures.live_bytes);
        }
    }
    let finding = |group: &Group| {
        let frame = material.frame(group.frame);
        let name = (frame.function.as_deref()?, frame.file.as_deref(), frame.line);
        let values = live.get(&name)?;
        let seconds = times_ns.iter().map(|&time| time as f64 / 1e9);
        let points: Vec<(f64, f64)> = seconds.zip(values.iter().map(|&v| v as f64)).collect();
        let growth = endless(&points)?;
        let last = *values.last()?;
        let first = values[values.len() / WARM_UP_PART];
        let grown = last.saturating_sub(first);
        if !material.is_much(grown) {
            return None;
        }
        // Some programs free all of it when they end.
        let at_end = group.measures.live_bytes;
        let freed = if at_end < last / 2 { "; freed after the last snapshot" } else { "" };
        let saves = Saves { live_bytes: grown.min(at_end), ..Saves::default() };
        let saves = if freed.is_empty() { saves } else { Saves { peak_bytes: grown, ..saves } };
        Some(Finding {
            rule: RULE.name,
            place: material.place(&group.rows, |m| m.live_bytes.max(m.at_peak_bytes)),
            what: format!(
                "has {} more live every minute",
                bytes((growth.slope_at_end() * 60.0) as u64)
            ),
            evidence: vec![format!(
                "the last {} of {} snapshots: live bytes grow from {} to {}, by {}{freed}",
                count((values.len() - values.len() / WARM_UP_PART) as u64),
                count(values.len() as u64),
                bytes(first),
                bytes(last),
                growth.rate("per second"),
            )],
            advice: "Bound what it keeps, or remove what is no longer needed.".to_owned(),
            saves,
            certainty: Certainty::Likely,
        })
    };
    material.groups.iter().filter_map(finding).collect()
}

/// Returns finished windows by name, in order of their first start.
fn by_name(windows: &[Window]) -> Vec<(&str, Vec<&Window>)> {
    let mut all: Vec<(&str, Vec<&Window>)> = Vec::new();
    let mut indices: FxHashMap<&str, usize> = FxHashMap::default();
    for window in windows.iter().filter(|window| !window.open) {
        let index = *indices.entry(&window.name).or_insert_with(|| {
            all.push((&window.name, Vec::new()));
            all.len() - 1
        });
        all[index].1.push(window);
    }
    all
}

/// Returns a finding for windows of one name, each of which leaves more live memory.
fn by_window(material: &Material, name: &str, windows: &[&Window]) -> Option<Finding> {
    let mut live = 0i64;
    let points: Vec<(f64, f64)> = windows
        .iter()
        .zip(1u32..)
        .map(|(window, number)| {
            live = live.saturating_add(window.live_bytes);
            (f64::from(number), live as f64)
        })
        .collect();
    let growth = endless(&points)?;
    let beginning = &windows[..windows.len() / WARM_UP_PART];
    let before = beginning.iter().fold(0i64, |sum, of| sum.saturating_add(of.live_bytes));
    let grown = u64::try_from(live.saturating_sub(before)).unwrap_or(0);
    // Memory that was freed outside of the windows does not count as growth.
    let stayed = grown.min(material.process.totals.live_bytes.max(last_sample(material.process)));
    if !material.is_much(stayed) {
        return None;
    }
    Some(Finding {
        rule: RULE.name,
        place: None,
        what: format!(
            "has {} more live after each window {name}",
            bytes(growth.slope_at_end() as u64)
        ),
        evidence: vec![format!(
            "{} windows: {}, {} in total",
            count(windows.len() as u64),
            growth.rate("each"),
            bytes(grown)
        )],
        advice: "Take a snapshot before and after some windows; `heaptide diff REC@1 REC@2` lists \
                 the owners."
            .to_owned(),
        saves: Saves { live_bytes: stayed, ..Saves::default() },
        certainty: Certainty::Likely,
    })
}

/// Returns live bytes at the last sample within the last window.
fn last_sample(process: &Process) -> u64 {
    let end = process.time.windows.iter().map(|window| window.end_time_ns).max().unwrap_or(0);
    let at = process.time.samples.partition_point(|sample| sample.time_ns <= end);
    process.time.samples[..at].last().map_or(0, |sample| sample.live_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a series with one point per second grows without bound.
    fn grows(value: impl Fn(u32) -> f64, count: u32) -> bool {
        let points: Vec<(f64, f64)> = (0..count).map(|x| (f64::from(x), value(x))).collect();
        endless(&points).is_some()
    }

    #[test]
    fn unbounded_growth_is_steady_and_continues() {
        assert!(grows(|x| f64::from(x) * 10.0, 20));
        assert!(grows(|x| f64::from(x) * 10.0 + f64::from(x % 2) * 5.0, 40));
        assert!(!grows(|x| f64::from(x) * 10.0, 9), "too few points");
        assert!(!grows(|_| 500.0, 40), "a level");
        assert!(!grows(|x| f64::from(x.min(20)) * 10.0, 40), "it levels off");
        assert!(!grows(|x| f64::from(x.min(33)) * 10.0, 40), "it levels off at the end");
        assert!(!grows(|x| 1000.0 - 1000.0 * (-f64::from(x) / 50.0).exp(), 400), "a limit");
        assert!(!grows(|x| f64::from(x % 10) * 10.0 + f64::from(x), 40), "a saw");
        assert!(!grows(|x| f64::from(40 - x), 40), "it shrinks");
    }

    #[test]
    fn a_rate_that_rises_is_stated_for_the_end() {
        let growth = |value: fn(u32) -> f64| {
            let points: Vec<(f64, f64)> = (0..40).map(|x| (f64::from(x), value(x))).collect();
            endless(&points).expect("growth")
        };
        let even = growth(|x| f64::from(x) * 1024.0);
        assert_eq!(even.slope_at_end() as u64, 1024);
        assert_eq!(even.rate("each"), "1.00 KiB ± 0 B each, until the end");
        let late = growth(|x| f64::from(x.saturating_sub(22)) * 1024.0);
        assert_eq!(late.slope_at_end() as u64, 1024);
        let rate = late.rate("per second");
        assert!(rate.contains(" per second, in the second half 1.00 KiB"), "{rate}");
    }

    #[test]
    fn a_fitted_line_has_its_error() {
        let points = [(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)];
        let Trend { slope, error } = fit(&points).expect("a line");
        assert!((slope - 2.0).abs() < 1e-9 && error < 1e-9);
        let Trend { slope, error } = fit(&[(0.0, 0.0), (1.0, 3.0), (2.0, 0.0)]).expect("a line");
        assert!(slope.abs() < 1e-9 && (error - 3.0f64.sqrt()).abs() < 1e-9, "{error}");
        assert!(fit(&points[..2]).is_none() && fit(&[(1.0, 1.0); 3]).is_none());
    }
}
