//! A monitor that aborts the program, or takes a snapshot of its profile, at a request within a
//! range of sizes, or when live memory first exceeds a limit.
//!
//! `heaptide run --monitor ./libthreshold.so:min=1M,skip=3 -- PROGRAM` aborts at the fourth request
//! of 1 MiB or more, for a debugger or a core file; `live=500M,action=snapshot` takes a snapshot
//! when 500 MiB are exceeded. `max=BYTES` limits the range from above.

#![allow(clippy::print_stderr)] // prints messages

use heaptide::{Monitor, OptionsError};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

#[derive(Clone, Copy, PartialEq)]
enum Action {
    Abort,
    Snapshot,
}

struct Threshold {
    /// The range of sizes of requests that count; `None` if only `live` is given.
    sizes: Option<(u64, u64)>,
    /// The limit of live bytes; 0: no limit.
    live_limit: i64,
    /// The number of hits of a limit to ignore before acting.
    skip: u64,
    action: Action,
    requests: AtomicU64,
    live: AtomicI64,
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
        let requested = requested as u64;
        if self.sizes.is_some_and(|(min, max)| (min..=max).contains(&requested)) {
            self.reached(self.requests.fetch_add(1, Relaxed) + 1, "request", requested);
        }
        if self.live_limit > 0 {
            // Exactly one thread sees live memory cross the limit upwards.
            let before = self.live.fetch_add(usable as i64, Relaxed);
            let now = before + usable as i64;
            if before <= self.live_limit && now > self.live_limit {
                let count = self.crossings.fetch_add(1, Relaxed) + 1;
                self.reached(count, "live total", now as u64);
            }
        }
    }

    fn freed(&self, _block: *mut u8, usable: usize) {
        if self.live_limit > 0 {
            self.live.fetch_sub(usable as i64, Relaxed);
        }
    }
}

fn create(options: &str) -> Result<Threshold, OptionsError> {
    let (mut min, mut max, mut live_limit, mut skip) = (None, None, 0, 0);
    let mut action = Action::Abort;
    for (name, value) in heaptide::options(options) {
        let number = heaptide::option_number(value);
        match (name, number, value) {
            ("min", Some(bytes), _) => min = Some(bytes),
            ("max", Some(bytes), _) => max = Some(bytes),
            ("live", Some(bytes), _) => live_limit = bytes.min(i64::MAX as u64) as i64,
            ("skip", Some(count), _) => skip = count,
            ("action", _, "abort") => action = Action::Abort,
            ("action", _, "snapshot") => action = Action::Snapshot,
            _ => {
                let expected = "min=BYTES,max=BYTES,live=BYTES,skip=COUNT,action=abort|snapshot";
                return Err(OptionsError::new(format!("`{name}={value}`: expected {expected}")));
            }
        }
    }
    if min.is_none() && max.is_none() && live_limit == 0 {
        return Err(OptionsError::new("no limit in the options: expected min=, max= or live="));
    }
    let given = min.is_some() || max.is_some();
    let sizes = given.then(|| (min.unwrap_or(0), max.unwrap_or(u64::MAX)));
    let (requests, live, crossings) = (AtomicU64::new(0), AtomicI64::new(0), AtomicU64::new(0));
    Ok(Threshold { sizes, live_limit, skip, action, requests, live, crossings })
}

heaptide::plugin!(create);
