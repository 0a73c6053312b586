//! Decides when a polled value triggers a snapshot. A value that stays near its limit triggers only
//! one.

use std::collections::VecDeque;
use std::time::Duration;

/// A value is off its limit if it is below it by this fraction.
const OFF_PART: u64 = 10;
/// A value that has risen by this fraction since the last snapshot triggers another one.
const HIGHER_PART: u64 = 4;
/// Least time after a snapshot before a value that returns to its limit triggers another one.
const DISTANCE: Duration = Duration::from_secs(10);
/// Pressure is over after this time without a sign of it.
const CALM: Duration = Duration::from_secs(60);
/// The span of a growth is divided into this many parts.
const PARTS: u32 = 64;

/// A limit on a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Level {
    limit: u64,
    /// Whether the value was off its limit since the last snapshot.
    was_off: bool,
    /// Values from this on always trigger a snapshot.
    next: u64,
    /// Time of the last snapshot.
    last: Option<Duration>,
}

impl Level {
    pub(crate) fn new(limit: u64) -> Level {
        Level { limit, was_off: true, next: limit, last: None }
    }

    /// Observes the value at a time since a fixed start. Returns whether to take a snapshot: if the
    /// value reaches its limit for the first time, or again after it was off it and some time after
    /// the last snapshot, or if it has risen by a fraction since the last one.
    pub(crate) fn see(&mut self, value: u64, now: Duration) -> bool {
        if value < self.limit - self.limit / OFF_PART {
            self.was_off = true;
        }
        let is_late = self.last.is_none_or(|last| now.saturating_sub(last) >= DISTANCE);
        let due = value >= self.limit && (value >= self.next || (self.was_off && is_late));
        if due {
            (self.was_off, self.next, self.last) = (false, higher(value), Some(now));
        }
        due
    }
}

/// Returns the least value that triggers a snapshot after one at this value.
fn higher(value: u64) -> u64 {
    value.saturating_add(value / HIGHER_PART).max(value.saturating_add(1))
}

/// A limit on the growth of a value within a time span.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Growth {
    bytes: u64,
    span: Duration,
    /// The lowest value in each part of the span since the last snapshot, by the number of the
    /// part.
    lowest: VecDeque<(u64, u64)>,
}

impl Growth {
    pub(crate) fn new(bytes: u64, span: Duration) -> Growth {
        Growth { bytes, span, lowest: VecDeque::new() }
    }

    /// Observes the value at a time since a fixed start. Returns whether to take a snapshot: if the
    /// value exceeds the lowest one of the span, or since the last snapshot, by the growth.
    pub(crate) fn see(&mut self, value: u64, now: Duration) -> bool {
        let part = (self.span / PARTS).max(Duration::from_nanos(1));
        let part = u64::try_from(now.as_nanos() / part.as_nanos()).unwrap_or(u64::MAX);
        while self.lowest.front().is_some_and(|&(old, _)| old + u64::from(PARTS) < part) {
            self.lowest.pop_front();
        }
        match self.lowest.back_mut() {
            Some((last, lowest)) if *last == part => *lowest = value.min(*lowest),
            _ => self.lowest.push_back((part, value)),
        }
        let lowest = self.lowest.iter().map(|&(_, lowest)| lowest).min().unwrap_or(value);
        let due = value - lowest >= self.bytes;
        if due {
            self.lowest.clear();
            self.lowest.push_back((part, value));
        }
        due
    }
}

/// An alarm on memory pressure, for one program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Alarm {
    /// Time of the last sign.
    last: Option<Duration>,
    /// Live bytes from which another snapshot is taken while the pressure lasts.
    next: u64,
}

impl Alarm {
    /// Observes a sign of pressure at a time since a fixed start. Returns whether to take a
    /// snapshot: at the first sign, at the first one after a calm period, or if live bytes have
    /// risen by a fraction since the last snapshot.
    pub(crate) fn sound(&mut self, live: u64, now: Duration) -> bool {
        let is_new = self.last.is_none_or(|last| now.saturating_sub(last) >= CALM);
        self.last = Some(now);
        let due = is_new || live >= self.next;
        if due {
            self.next = higher(live);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Returns the values at which a level triggers snapshots; values are one second apart.
    fn taken(limit: u64, values: &[u64]) -> Vec<u64> {
        let mut level = Level::new(limit);
        let seen = values.iter().zip(0..).filter(|&(&value, at)| level.see(value, seconds(at)));
        seen.map(|(&value, _)| value).collect()
    }

    #[test]
    fn a_level_is_reached_once_and_again_a_quarter_higher() {
        assert_eq!(taken(100, &[50, 99, 100, 101, 124, 124, 125, 126, 156, 157]), [100, 125, 156]);
        assert_eq!(taken(100, &[1000, 1249, 1250]), [1000, 1250]);
        assert_eq!(taken(1, &[0, 1, 1, 2, 2, 3]), [1, 2, 3]);
    }

    #[test]
    fn a_value_that_hovers_at_its_limit_is_worth_one_snapshot() {
        let hovering: Vec<u64> = (0..1000).map(|n| if n % 2 == 0 { 105 } else { 91 }).collect();
        assert_eq!(taken(100, &hovering), [105]);
    }

    #[test]
    fn a_value_that_was_off_its_limit_is_worth_another_one_some_time_later() {
        assert_eq!(taken(100, &[100, 89, 100, 100, 89, 102]), [100], "within ten seconds");
        let mut level = Level::new(100);
        assert!(level.see(100, seconds(0)) && !level.see(89, seconds(1)));
        assert!(!level.see(100, seconds(9)) && level.see(101, seconds(10)));
        assert!(!level.see(100, seconds(30)), "it was not off since");
    }

    #[test]
    fn growth_is_above_the_lowest_value_of_its_time() {
        let mut growth = Growth::new(100, seconds(64));
        assert!(!growth.see(50, seconds(0)) && !growth.see(20, seconds(10)));
        assert!(!growth.see(119, seconds(20)) && growth.see(120, seconds(21)));
        // Afterwards, growth is measured from that value.
        assert!(!growth.see(219, seconds(22)) && growth.see(220, seconds(23)));
        // A lower value becomes the new base.
        assert!(!growth.see(5, seconds(24)) && growth.see(105, seconds(25)));
    }

    #[test]
    fn what_grows_slowly_does_not_grow_in_its_time() {
        let mut growth = Growth::new(100, seconds(64));
        assert!(!(0..10_000).any(|at| growth.see(at, seconds(at))), "64 in its time");
        assert!(growth.lowest.len() <= PARTS as usize + 1);
        let mut growth = Growth::new(100, seconds(64));
        let taken = (0..640).filter(|&at| growth.see(at * 2, seconds(at))).count();
        assert_eq!(taken, 12, "each 50 seconds");
    }

    #[test]
    fn pressure_is_worth_a_snapshot_when_it_begins_and_when_more_is_live() {
        let mut alarm = Alarm::default();
        assert!(alarm.sound(100, seconds(0)));
        assert!(!(1..100).any(|at| alarm.sound(120, seconds(at))), "it lasts");
        assert!(alarm.sound(125, seconds(100)) && !alarm.sound(130, seconds(101)));
        assert!(alarm.sound(10, seconds(161)), "after a minute without");
    }
}
