//! The library's services to the recorder.

use crate::intercept::{families, notice, outcome};
use crate::{
    Preload, allocator, attachment, block_sizes, exec, next_symbol, python_wrapping, route,
    statistics,
};
use heaptide_recorder::sys::front::{Front, Platform};
use heaptide_recorder::sys::options::Options;

impl Front for Preload {
    const PLATFORM: Platform = Platform {
        find_function: |name| next_symbol::find(name).map_or(0, |found| found.address),
        usable: |block| block_sizes::size_of(block).unwrap_or_else(|| allocator::usable(block)),
        is_wanted: || {
            attachment::is_wanted()
                .unwrap_or_else(|| Options::get().is_some_and(Options::is_asked_for_or_preloaded))
        },
        find_allocator: allocator::find,
        create_tables,
        describe_image: outcome::describe,
        is_under_valgrind: allocator::is_under_valgrind,
        sees_unmapping: true,
        thread_exits: exec::give_back,
        heap_state: statistics::of_process,
        own_code: next_symbol::own_code,
        route: route::of_mode,
        python_runs: python_wrapping::renew,
    };

    #[inline(always)]
    fn usable(block: *mut u8) -> u64 {
        allocator::usable(block)
    }

    #[inline(always)]
    fn usable_of_new(block: *mut u8, requested: u64) -> u64 {
        allocator::usable_new(block, requested)
    }

    #[inline(always)]
    fn usable_at_hand(block: *mut u8) -> Option<u64> {
        allocator::usable_unmapped(block)
    }

    #[inline(always)]
    fn freed_at_hand(block: *mut u8) -> Option<u64> {
        allocator::usable_below_maybe_unmapped(block)
    }
}

/// Looks for allocators with their own function names when the recorder starts, and gets notified
/// by the loader of later ones. `None` if out of memory.
fn create_tables(scarce: bool) -> Option<()> {
    let is_first = !families::is_on();
    families::start(scarce)?;
    if is_first {
        notice::watch_at_start();
    }
    python_wrapping::start(scarce)
}
