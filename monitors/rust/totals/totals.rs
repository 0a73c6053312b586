//! A monitor that counts: bytes requested in all, bytes used at most, calls; printed at exit.
//!
//! `heaptide run --monitor libtotals.so -- PROGRAM`

use heaptide::{Monitor, OptionsError};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default)]
struct Totals {
    allocations: AtomicU64,
    frees: AtomicU64,
    requested: AtomicU64,
    used: AtomicU64,
    most_used: AtomicU64,
}

impl Monitor for Totals {
    fn allocated(&self, _block: *mut u8, requested: usize, usable: usize) {
        self.allocations.fetch_add(1, Relaxed);
        self.requested.fetch_add(requested as u64, Relaxed);
        let used = self.used.fetch_add(usable as u64, Relaxed) + usable as u64;
        self.most_used.fetch_max(used, Relaxed);
    }

    fn freed(&self, _block: *mut u8, usable: usize) {
        self.frees.fetch_add(1, Relaxed);
        // Blocks that are older than the monitor are freed too: what they had was never added.
        let less = |used: u64| Some(used.saturating_sub(usable as u64));
        let _ = self.used.fetch_update(Relaxed, Relaxed, less);
    }
}

impl Drop for Totals {
    /// The recorder drops a monitor when the process exits.
    fn drop(&mut self) {
        eprintln!("totals: {} bytes requested", self.requested.get_mut());
        eprintln!("totals: {} bytes used at most", self.most_used.get_mut());
        eprintln!("totals: {} bytes used at the end", self.used.get_mut());
        eprintln!("totals: {} allocations", self.allocations.get_mut());
        eprintln!("totals: {} frees", self.frees.get_mut());
    }
}

fn create(options: &str) -> Result<Totals, OptionsError> {
    match options {
        "" => Ok(Totals::default()),
        other => Err(OptionsError::new(format!("`{other}`: totals has no options"))),
    }
}

heaptide::plugin!(create);
