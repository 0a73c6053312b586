//! A program that confines itself by seccomp may be killed for a system call that it does not make:
//! from then on the recorder makes none.

use crate::Preload;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_recorder::event::process::{State, process};
use heaptide_recorder::event::start::start_early;
use heaptide_recorder::event::{threads, trace_extents};
use heaptide_recorder::store::profile;
use heaptide_recorder::sys::confined::{CONFINED, NO_COUNTER};
use heaptide_recorder::sys::memory;

/// Room in the profile that is taken before, for all that comes after: bytes.
const AHEAD: u64 = 4 << 20;

/// How things were before.
pub struct Before {
    confined: u32,
    no_counter: bool,
    clock: u32,
}

/// The program is about to confine itself. `strict`: not even memory can be mapped afterwards.
pub fn begin(strict: bool) -> Before {
    let p = process();
    let before = Before {
        confined: CONFINED.load(Relaxed),
        no_counter: NO_COUNTER.load(Relaxed),
        clock: trace_extents::clock(),
    };
    start_early::<Preload>(); // a forked child, which could not make its profile later
    if p.state() == State::Active {
        profile::reserve_ahead(p, AHEAD);
        memory::prepare_ahead();
        threads::learn_stack::<Preload>();
    }
    if strict {
        NO_COUNTER.store(true, Relaxed); // older kernels forbid it with all else
        trace_extents::stop_clock();
    }
    CONFINED.fetch_max(if strict { 2 } else { 1 }, Relaxed);
    before
}

impl Before {
    /// It could not: programs try out whether they could.
    pub fn take_back(self) {
        CONFINED.store(self.confined, Relaxed);
        NO_COUNTER.store(self.no_counter, Relaxed);
        trace_extents::set_clock(self.clock);
    }
}
