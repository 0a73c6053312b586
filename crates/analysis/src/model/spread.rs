//! How precise the estimates of a row of a sampled recording are.

/// Effective numbers of sampled blocks behind the estimates of a row; 0 if the row is exact.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spread {
    /// Of allocated blocks.
    pub allocated: f32,
    /// Of live blocks.
    pub live: f32,
    /// Of blocks live at peak.
    pub at_peak: f32,
}

// The values are computed from counters and are never NaN.
impl Eq for Spread {}

impl Spread {
    /// Adds the effective numbers of another row.
    pub fn add(&mut self, row: &Spread) {
        self.allocated += row.allocated;
        self.live += row.live;
        self.at_peak += row.at_peak;
    }

    /// Converts from a unit of `own` bytes per sampled block to one of `mean_bytes`.
    pub(crate) fn in_units(self, own: u64, mean_bytes: u64) -> Spread {
        let scale = (own as f64 / mean_bytes.max(1) as f64).powi(2) as f32;
        Spread {
            allocated: self.allocated * scale,
            live: self.live * scale,
            at_peak: self.at_peak * scale,
        }
    }
}
