//! A monitor that stops the program, or takes a snapshot of its profile, when a limit is reached:
//! at a request of a certain size, or when so much is live for the first time.
//!
//! `heaptide run --monitor libthreshold.so:min=1000000,skip=3,action=abort -- PROGRAM` aborts at
//! the fourth request of a million bytes or more; `live=500000000,action=snapshot` shows what is
//! live when 500 MB are exceeded.

use heaptide::{Monitor, OptionsError};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Clone, Copy, PartialEq)]
enum Action {
    Abort,
    Snapshot,
}

struct Threshold {
    /// Requests of these sizes count; none if only `live` is given.
    sizes: Option<(u64, u64)>,
    /// More live bytes than this; 0: no limit.
    live_limit: u64,
    /// How often a limit may be reached before something is done.
    skip: u64,
    action: Action,
    requests: AtomicU64,
    live: AtomicU64,
    crossings: AtomicU64,
}

impl Threshold {
    fn reached(&self, count: u64, what: &str, bytes: u64) {
        if count != self.skip + 1 {
            return;
        }
        eprintln!("threshold: {what} of {bytes} bytes, number {count}");
        match self.action {
            Action::Abort => std::process::abort(),
            Action::Snapshot => drop(heaptide::snapshot("threshold")),
        }
    }
}

impl Monitor for Threshold {
    fn allocated(&self, _block: *mut u8, requested: usize, usable: usize) {
        let (requested, usable) = (requested as u64, usable as u64);
        if self.sizes.is_some_and(|(min, max)| (min..=max).contains(&requested)) {
            self.reached(self.requests.fetch_add(1, Relaxed) + 1, "request", requested);
        }
        let before = self.live.fetch_add(usable, Relaxed);
        let crosses = before <= self.live_limit && before + usable > self.live_limit;
        if self.live_limit > 0 && crosses {
            let count = self.crossings.fetch_add(1, Relaxed) + 1;
            self.reached(count, "live total", before + usable);
        }
    }

    fn freed(&self, _block: *mut u8, usable: usize) {
        let less = |live: u64| Some(live.saturating_sub(usable as u64));
        let _ = self.live.fetch_update(Relaxed, Relaxed, less);
    }
}

fn create(options: &str) -> Result<Threshold, OptionsError> {
    let (mut min, mut max, mut live_limit, mut skip) = (None, None, 0, 0);
    let mut action = Action::Abort;
    for (name, value) in heaptide::options(options) {
        let number = value.parse::<u64>();
        match (name, number, value) {
            ("min", Ok(bytes), _) => min = Some(bytes),
            ("max", Ok(bytes), _) => max = Some(bytes),
            ("live", Ok(bytes), _) => live_limit = bytes,
            ("skip", Ok(count), _) => skip = count,
            ("action", _, "abort") => action = Action::Abort,
            ("action", _, "snapshot") => action = Action::Snapshot,
            _ => {
                let expected = "min=BYTES,max=BYTES,live=BYTES,skip=COUNT,action=abort|snapshot";
                return Err(OptionsError::new(format!("`{name}={value}`: expected {expected}")));
            }
        }
    }
    if min.is_none() && max.is_none() && live_limit == 0 {
        return Err(OptionsError::new("no limit: expected min=BYTES, max=BYTES or live=BYTES"));
    }
    let given = min.is_some() || max.is_some();
    let sizes = given.then(|| (min.unwrap_or(0), max.unwrap_or(u64::MAX)));
    let zero = || AtomicU64::new(0);
    let (requests, live, crossings) = (zero(), zero(), zero());
    Ok(Threshold { sizes, live_limit, skip, action, requests, live, crossings })
}

heaptide::plugin!(create);
