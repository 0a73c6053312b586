//! A monitor that prints at exit the numbers of blocks by size, in classes of powers of two.
//!
//! `heaptide run --monitor libhistogram.so -- PROGRAM`

use heaptide::{Histograms, Monitor, OptionsError, Report, SIZE_CLASSES};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of one size class.
#[derive(Default)]
struct Class {
    requested: AtomicU64,
    usable: AtomicU64,
    freed: AtomicU64,
}

struct Histogram {
    classes: [Class; SIZE_CLASSES],
    report: Report,
}

impl Monitor for Histogram {
    fn allocated(&self, _block: *mut u8, requested: usize, usable: usize) {
        self.classes[Histograms::class_of(requested)].requested.fetch_add(1, Relaxed);
        self.classes[Histograms::class_of(usable)].usable.fetch_add(1, Relaxed);
    }

    fn freed(&self, _block: *mut u8, usable: usize) {
        self.classes[Histograms::class_of(usable)].freed.fetch_add(1, Relaxed);
    }
}

impl Drop for Histogram {
    fn drop(&mut self) {
        let row = |[from, requested, usable, freed]: [String; 4]| {
            format!("{from:>20} {requested:>14} {usable:>14} {freed:>14}")
        };
        let head = ["size from", "requested", "usable", "freed"];
        self.report.say(&row(head.map(str::to_owned)));
        for (bits, class) in self.classes.iter_mut().enumerate() {
            let counts = [&mut class.requested, &mut class.usable, &mut class.freed];
            let [requested, usable, freed] = counts.map(|count| *count.get_mut());
            if requested + usable + freed > 0 {
                let from = if bits == 0 { 0 } else { 1u64 << (bits - 1) };
                self.report.say(&row([from, requested, usable, freed].map(|n| n.to_string())));
            }
        }
    }
}

fn create(options: &str) -> Result<Histogram, OptionsError> {
    match options {
        "" => Ok(Histogram {
            classes: std::array::from_fn(|_| Class::default()),
            report: Report::new(),
        }),
        other => Err(OptionsError::new(format!("`{other}`: it has no options"))),
    }
}

heaptide::plugin!(create);
