//! Sums over sites that count each block once.

use super::measure::Measures;
use super::tables::{Counted, Moved, Site};

/// Sums up sites. A labelled block counts once. Memory that is not from the allocator is excluded,
/// and so are the blocks of pools, except for their live bytes, which were subtracted from the
/// pool's chunks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    all: Measures,
    moved: Moved,
}

impl Sum {
    /// Returns the sum over sites.
    pub fn over<'a, S: 'a>(sites: impl IntoIterator<Item = &'a Site<S>>) -> Measures {
        let mut sum = Sum::default();
        sites.into_iter().for_each(|site| sum.add(site));
        sum.total()
    }

    /// Adds a site.
    pub fn add<S>(&mut self, site: &Site<S>) {
        let Site { kind, moved, ref measures, .. } = *site;
        match kind.counted() {
            Counted::Nothing => {}
            Counted::LiveBytes => self.all.add(&Measures {
                live_bytes: measures.live_bytes,
                at_peak_bytes: measures.at_peak_bytes,
                ..Measures::default()
            }),
            Counted::All => {
                // The size that a label states is not a request.
                let largest_bytes =
                    if site.is_only_labelled() { 0 } else { measures.largest_bytes };
                self.all.add(&Measures { largest_bytes, ..*measures });
                let sum = u64::saturating_add;
                self.moved = Moved {
                    blocks: sum(self.moved.blocks, moved.blocks),
                    usable_bytes: sum(self.moved.usable_bytes, moved.usable_bytes),
                    requested_bytes: sum(self.moved.requested_bytes, moved.requested_bytes),
                };
            }
        }
    }

    /// Returns the sum.
    pub fn total(&self) -> Measures {
        let Sum { all, moved } = self;
        Measures {
            allocations: all.allocations.saturating_sub(moved.blocks),
            frees: all.frees.saturating_sub(moved.blocks),
            requested_bytes: all.requested_bytes.saturating_sub(moved.requested_bytes),
            usable_bytes: all.usable_bytes.saturating_sub(moved.usable_bytes),
            freed_bytes: all.freed_bytes.saturating_sub(moved.usable_bytes),
            ..*all
        }
    }
}

impl<S> Site<S> {
    /// Returns whether labelling moved all its blocks here, so that their requested sizes are those
    /// that labels state.
    pub(crate) fn is_only_labelled(&self) -> bool {
        self.moved.blocks > 0 && self.moved.blocks >= self.measures.allocations
    }
}
