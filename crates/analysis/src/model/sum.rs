//! Sums over sites: what a process did, each block once.

use super::measure::Measures;
use super::tables::{Moved, Site, SiteKind};

/// Adds sites up to what the process did: a block that was labelled is one block, memory that is
/// not from the allocator is left out, and so is what pools give out, but for the live bytes that
/// were taken off the pool's chunks for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    all: Measures,
    moved: Moved,
}

impl Sum {
    /// The sum over sites.
    pub fn over<'a, S: 'a>(sites: impl IntoIterator<Item = &'a Site<S>>) -> Measures {
        let mut sum = Sum::default();
        sites.into_iter().for_each(|site| sum.add(site));
        sum.total()
    }

    /// Adds a site.
    pub fn add<S>(&mut self, site: &Site<S>) {
        let Site { kind, moved, ref measures, .. } = *site;
        match kind {
            SiteKind::Outside | SiteKind::OutsidePoolBlock | SiteKind::OutsidePoolChunk => {}
            SiteKind::PoolBlock => self.all.add(&Measures {
                live_bytes: measures.live_bytes,
                at_peak_bytes: measures.at_peak_bytes,
                ..Measures::default()
            }),
            SiteKind::Heap | SiteKind::PoolChunk | SiteKind::Mapped(_) => {
                // What a label says is no request.
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

    /// The sum.
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
    /// Whether all its blocks came by labelling, so that its requests are what labels say.
    pub(crate) fn is_only_labelled(&self) -> bool {
        self.moved.blocks > 0 && self.moved.blocks >= self.measures.allocations
    }
}
