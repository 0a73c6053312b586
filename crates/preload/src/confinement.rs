//! Support for programs that confine themselves with seccomp: a system call that they do not make
//! themselves may kill them, so the recorder makes none from then on.

use crate::Preload;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_recorder::event::process::{State, process};
use heaptide_recorder::event::start::start_early;
use heaptide_recorder::event::{threads, trace_extents};
use heaptide_recorder::store::file;
use heaptide_recorder::store::shared::store;
use heaptide_recorder::sys::confined::{CONFINED, NO_COUNTER};
use heaptide_recorder::sys::memory;

/// Bytes to reserve in the profile for everything after the confinement.
const AHEAD: u64 = 4 << 20;

/// The state before the confinement.
pub struct Before {
    confined: u32,
    no_counter: bool,
    clock: u32,
}

/// Prepares for the confinement of the program. `strict`: not even mapping memory is allowed
/// afterwards.
pub fn begin(strict: bool) -> Before {
    let p = process();
    let before = Before {
        confined: CONFINED.load(Relaxed),
        no_counter: NO_COUNTER.load(Relaxed),
        clock: trace_extents::clock(),
    };
    start_early::<Preload>(); // a forked child could not create its profile later
    if p.state() == State::Active {
        file::reserve_ahead(store(), AHEAD);
        memory::prepare_ahead();
        threads::learn_stack::<Preload>();
    }
    if strict {
        NO_COUNTER.store(true, Relaxed); // older kernels forbid it together with everything else
        trace_extents::stop_clock();
    }
    CONFINED.fetch_max(if strict { 2 } else { 1 }, Relaxed);
    before
}

impl Before {
    /// Reverts the preparation after a failure: programs try whether they could.
    pub fn take_back(self) {
        CONFINED.store(self.confined, Relaxed);
        NO_COUNTER.store(self.no_counter, Relaxed);
        trace_extents::set_clock(self.clock);
    }
}
