//! Converts ticks to nanoseconds by linear interpolation between points at which both were
//! recorded.

use std::collections::BTreeMap;

use heaptide_format::TraceStart;

/// The known points, and the current interval between two of them.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Nanoseconds by ticks.
    moments: BTreeMap<u64, u64>,
    /// The first and the last point.
    all: Option<[(u64, u64); 2]>,
    /// The current interval, and its rate.
    from: (u64, u64),
    until: u64,
    ns_per_tick: f64,
    /// The last returned time.
    now_ns: u64,
}

impl Clock {
    /// Adds the points that an extent holds.
    pub(super) fn learn(&mut self, start: &TraceStart) {
        let told = [(start.ticks, start.time_ns), (start.last_ticks, start.last_time_ns)];
        for moment in told.into_iter().filter(|&(ticks, ns)| ticks != 0 && ns != 0) {
            let [first, last] = self.all.get_or_insert([moment; 2]);
            (*first, *last) = (moment.min(*first), moment.max(*last));
            self.moments.insert(moment.0, moment.1);
            self.until = 0;
        }
    }

    /// Returns the nanoseconds at a number of ticks, and never less than before. Ticks should
    /// increase.
    #[inline]
    pub(super) fn ns(&mut self, ticks: u64) -> u64 {
        if ticks >= self.until || ticks < self.from.0 {
            self.find(ticks);
        }
        let since = ticks.saturating_sub(self.from.0) as f64 * self.ns_per_tick;
        self.now_ns = self.from.1.saturating_add(since as u64).max(self.now_ns);
        self.now_ns
    }

    #[cold]
    fn find(&mut self, ticks: u64) {
        let before = self.moments.range(..=ticks).next_back().map(|(&at, &ns)| (at, ns));
        let after = self.moments.range(ticks.saturating_add(1)..).next().map(|(&at, &ns)| (at, ns));
        let from = before.or(after).unwrap_or((ticks, 0));
        self.until = after.map_or(u64::MAX, |after| after.0);
        self.from = from;
        self.ns_per_tick = match (before, after, self.all) {
            (Some(before), Some(after), _) => speed(before, after),
            (.., Some([first, last])) => speed(first, last),
            _ => 0.0,
        };
        if before.is_none() {
            // Extrapolate to before the first point.
            let back = from.0.saturating_sub(ticks) as f64 * self.ns_per_tick;
            self.from = (ticks, from.1.saturating_sub(back as u64));
        }
        if let Some((at, _)) = before {
            self.moments = self.moments.split_off(&at);
        }
    }
}

fn speed(before: (u64, u64), after: (u64, u64)) -> f64 {
    match after.0.saturating_sub(before.0) {
        0 => 0.0,
        ticks => after.1.saturating_sub(before.1) as f64 / ticks as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(moments: [(u64, u64); 2]) -> TraceStart {
        let [(ticks, time_ns), (last_ticks, last_time_ns)] = moments;
        TraceStart { ticks, time_ns, last_ticks, last_time_ns, ..TraceStart::default() }
    }

    #[test]
    fn time_goes_evenly_between_moments_and_never_back() {
        let mut clock = Clock::default();
        assert_eq!(clock.ns(5), 0);
        clock.learn(&start([(100, 1000), (200, 3000)]));
        assert_eq!([clock.ns(90), clock.ns(100), clock.ns(150)], [800, 1000, 2000]);
        clock.learn(&start([(160, 2500), (300, 3100)]));
        let at = [155, 160, 180, 250, 300, 400].map(|ticks| clock.ns(ticks));
        assert_eq!(at, [2375, 2500, 2750, 3050, 3100, 4150]);
        assert_eq!(clock.ns(250), 4150);
    }

    #[test]
    fn what_was_not_compared_again_stands_still() {
        let mut clock = Clock::default();
        clock.learn(&start([(100, 1000), (0, 0)]));
        assert_eq!([clock.ns(50), clock.ns(100), clock.ns(1 << 60)], [1000, 1000, 1000]);
        clock.learn(&start([(0, 7), (u64::MAX, u64::MAX)]));
        clock.ns(u64::MAX);
    }
}
