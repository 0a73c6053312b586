//! Counters of a site of a running program.

use heaptide_format as format;

use crate::model::{Counted, SiteKind};
use crate::tables::site_counters::{self, LiveOfSite};

/// Counters of a site, or their sum over several sites.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Usable bytes live.
    pub live_bytes: u64,
    /// Blocks live.
    pub live_blocks: u64,
    /// Usable bytes live at peak.
    pub at_peak_bytes: u64,
    /// Successful allocations.
    pub allocations: u64,
    /// Usable bytes allocated.
    pub allocated_bytes: u64,
    /// Blocks moved here by a label, which are in `allocations` of two sites.
    pub moved_blocks: u64,
    /// Usable bytes of these blocks.
    pub moved_bytes: u64,
    /// The kind of memory.
    pub kind: SiteKind,
}

impl Counts {
    /// Adds the counters of a site to a sum over sites that counts each block once: see
    /// [`crate::model::Sum`].
    #[inline]
    pub fn add(&mut self, site: &Counts) {
        match site.kind.counted() {
            Counted::All => {
                self.add_label(site);
                self.allocations = self.allocations.saturating_sub(site.moved_blocks);
                self.allocated_bytes = self.allocated_bytes.saturating_sub(site.moved_bytes);
            }
            Counted::LiveBytes => {
                self.live_bytes = self.live_bytes.saturating_add(site.live_bytes);
                self.at_peak_bytes = self.at_peak_bytes.saturating_add(site.at_peak_bytes);
            }
            Counted::Nothing => {}
        }
    }

    /// Adds the counters of a site to the sum of one label, for any kind of memory, including the
    /// blocks that labelling moved here.
    #[inline]
    pub fn add_label(&mut self, site: &Counts) {
        let sum = u64::saturating_add;
        self.live_bytes = sum(self.live_bytes, site.live_bytes);
        self.live_blocks = sum(self.live_blocks, site.live_blocks);
        self.at_peak_bytes = sum(self.at_peak_bytes, site.at_peak_bytes);
        self.allocations = sum(self.allocations, site.allocations);
        self.allocated_bytes = sum(self.allocated_bytes, site.allocated_bytes);
    }

    /// Returns the counters of a record; `epoch` is the number of the current peak.
    pub(super) fn of(record: &format::Site, epoch: u32) -> Counts {
        let LiveOfSite { live, at_peak } = site_counters::live_of_site(record, epoch);
        Counts {
            live_bytes: live.1,
            live_blocks: live.0,
            at_peak_bytes: at_peak.1,
            allocations: record.allocations,
            allocated_bytes: record.usable_bytes,
            ..Counts::default()
        }
    }
}
