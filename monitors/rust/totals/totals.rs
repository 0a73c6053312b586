//! A monitor that prints at exit the requested bytes, the peak of usable bytes, and the calls.
//!
//! `heaptide run --monitor libtotals.so -- PROGRAM`

use heaptide::{Monitor, OptionsError, Report};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

#[derive(Default)]
struct Totals {
    requested: AtomicU64,
    /// Live usable bytes. Can be negative, because blocks older than the monitor are freed, too.
    used: AtomicI64,
    max_used: AtomicI64,
    allocations: AtomicU64,
    frees: AtomicU64,
    report: Report,
}

impl Monitor for Totals {
    fn allocated(&self, _block: *mut u8, requested: usize, usable: usize) {
        self.allocations.fetch_add(1, Relaxed);
        self.requested.fetch_add(requested as u64, Relaxed);
        let used = self.used.fetch_add(usable as i64, Relaxed) + usable as i64;
        self.max_used.fetch_max(used, Relaxed);
    }

    fn freed(&self, _block: *mut u8, usable: usize) {
        self.frees.fetch_add(1, Relaxed);
        self.used.fetch_sub(usable as i64, Relaxed);
    }
}

impl Drop for Totals {
    /// The recorder drops a monitor when the process exits.
    fn drop(&mut self) {
        let Totals { requested, used, max_used, allocations, frees, report } = self;
        report.say(&format!(
            "totals: total memory requested: {}\n\
             totals: max memory used: {}\n\
             totals: presently used: {}\n\
             totals: # allocations calls: {}\n\
             totals: # deallocations calls: {}",
            requested.get_mut(),
            max_used.get_mut(),
            used.get_mut(),
            allocations.get_mut(),
            frees.get_mut(),
        ));
    }
}

fn create(options: &str) -> Result<Totals, OptionsError> {
    match options {
        "" => Ok(Totals::default()),
        other => Err(OptionsError::new(format!("`{other}`: it has no options"))),
    }
}

heaptide::plugin!(create);
