//! A monitor of a stretch of the program: from its N-th request for memory to its M-th, both
//! included. At exit it prints what was requested and freed meanwhile, and what of that is still
//! not freed: at the end of the stretch, and of the process.
//!
//! `heaptide run --monitor libwindow.so:from=1000,to=2000 -- PROGRAM`

use heaptide::{Monitor, OptionsError};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default)]
struct Stretch {
    allocations: u64,
    frees: u64,
    requested: u64,
    used: i64,
    most_used: i64,
    /// Blocks and bytes of the stretch that were not freed when it ended.
    left: Option<(usize, usize)>,
    /// Blocks of the stretch that are not freed yet, with their bytes.
    live: HashMap<usize, usize>,
}

impl Stretch {
    fn unfreed(&self) -> (usize, usize) {
        (self.live.len(), self.live.values().sum())
    }
}

struct Window {
    from: u64,
    to: u64,
    /// Requests so far: before the stretch nothing is locked.
    requests: AtomicU64,
    stretch: Mutex<Stretch>,
}

impl Window {
    /// Does something with the stretch; should another call have failed, nothing more is said.
    fn with<R>(&self, work: impl FnOnce(&mut Stretch) -> R) -> Option<R> {
        self.stretch.lock().ok().map(|mut stretch| work(&mut stretch))
    }
}

impl Monitor for Window {
    fn allocated(&self, block: *mut u8, requested: usize, usable: usize) {
        let number = self.requests.fetch_add(1, Relaxed) + 1;
        if number < self.from || number > self.to {
            return;
        }
        self.with(|stretch| {
            stretch.allocations += 1;
            stretch.requested += requested as u64;
            stretch.used += usable as i64;
            stretch.most_used = stretch.most_used.max(stretch.used);
            stretch.live.insert(block.addr(), usable);
            if number == self.to {
                stretch.left = Some(stretch.unfreed());
            }
        });
    }

    fn freed(&self, block: *mut u8, usable: usize) {
        let requests = self.requests.load(Relaxed);
        if requests < self.from {
            return;
        }
        self.with(|stretch| {
            stretch.live.remove(&block.addr());
            if requests < self.to {
                stretch.frees += 1;
                stretch.used -= usable as i64;
            }
        });
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let (from, to) = (self.from, self.to);
        let Ok(stretch) = self.stretch.get_mut() else { return };
        let end = stretch.unfreed();
        let left = stretch.left.unwrap_or(end);
        eprintln!("window: from request {from} to {to}");
        eprintln!("window: {} bytes requested", stretch.requested);
        eprintln!("window: {} bytes used at most over the start", stretch.most_used);
        eprintln!("window: {} allocations", stretch.allocations);
        eprintln!("window: {} frees", stretch.frees);
        eprintln!("window: {} blocks, {} bytes not freed when it ended", left.0, left.1);
        eprintln!("window: {} blocks, {} bytes of it not freed at exit", end.0, end.1);
    }
}

fn create(options: &str) -> Result<Window, OptionsError> {
    let (mut from, mut to) = (1, u64::MAX);
    for (name, value) in heaptide::options(options) {
        let number = value.parse().map_err(|_| {
            OptionsError::new(format!("`{name}={value}`: expected the number of a request"))
        })?;
        match name {
            "from" => from = number,
            "to" => to = number,
            _ => return Err(OptionsError::new(format!("`{name}`: expected from=N,to=M"))),
        }
    }
    if from == 0 || from > to {
        return Err(OptionsError::new(format!("from={from},to={to}: expected 1 <= N <= M")));
    }
    let (requests, stretch) = (AtomicU64::new(0), Mutex::default());
    Ok(Window { from, to, requests, stretch })
}

heaptide::plugin!(create);
