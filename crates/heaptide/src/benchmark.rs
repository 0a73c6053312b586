//! Allocations of an iteration as a measurement for criterion.

use criterion::Throughput;
use criterion::measurement::{Measurement, ValueFormatter};

use crate::figures::Figures;
use crate::measure::thread_figures;

/// Measures allocations or bytes, instead of time, of the thread that runs the benchmark.
///
/// ```
/// use criterion::{Criterion, black_box};
/// use heaptide::Allocated;
///
/// let mut criterion = Criterion::default().without_plots().with_measurement(Allocated::Blocks);
/// # if false {
/// criterion.bench_function("to_string", |b| b.iter(|| black_box(12).to_string()));
/// # }
/// ```
///
/// The benchmark must run with the recorder: `heaptide run -- cargo bench`. Without it, or if an
/// iteration allocates nothing, criterion reports that the measurement is zero. Disable plots:
/// criterion 0.8 panics when it plots the comparison of two runs with equal counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocated {
    /// Blocks allocated, including by realloc.
    Blocks,
    /// Bytes requested.
    Bytes,
}

impl Allocated {
    fn of(self, figures: &Figures) -> u64 {
        match self {
            Allocated::Blocks => figures.allocations,
            Allocated::Bytes => figures.requested_bytes,
        }
    }
}

impl Measurement for Allocated {
    type Intermediate = u64;
    type Value = u64;

    fn start(&self) -> u64 {
        self.of(&thread_figures())
    }

    fn end(&self, start: u64) -> u64 {
        self.of(&thread_figures()).saturating_sub(start)
    }

    fn add(&self, a: &u64, b: &u64) -> u64 {
        a.saturating_add(*b)
    }

    fn zero(&self) -> u64 {
        0
    }

    fn to_f64(&self, value: &u64) -> f64 {
        *value as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        self
    }
}

impl ValueFormatter for Allocated {
    fn scale_values(&self, _typical: f64, _values: &mut [f64]) -> &'static str {
        self.unit()
    }

    fn scale_throughputs(
        &self,
        _typical: f64,
        throughput: &Throughput,
        values: &mut [f64],
    ) -> &'static str {
        let (amount, unit) = match (throughput, self) {
            (Throughput::Elements(n), Allocated::Blocks) => (*n, "blocks/element"),
            (Throughput::Elements(n), Allocated::Bytes) => (*n, "B/element"),
            (Throughput::Bytes(n), Allocated::Blocks) => (*n, "blocks/byte"),
            (Throughput::Bytes(n), Allocated::Bytes) => (*n, "B/byte"),
            _ => return self.unit(),
        };
        values.iter_mut().for_each(|value| *value /= amount.max(1) as f64);
        unit
    }

    fn scale_for_machines(&self, _values: &mut [f64]) -> &'static str {
        self.unit()
    }
}

impl Allocated {
    fn unit(self) -> &'static str {
        match self {
            Allocated::Blocks => "blocks",
            Allocated::Bytes => "B",
        }
    }
}
