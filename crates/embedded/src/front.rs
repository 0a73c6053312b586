//! The services that the allocator provides to the recorder, and the table of block sizes.

use crate::choice::{Choice, is};
use crate::static_libc;
use heaptide_recorder::event::inside::Inside;
use heaptide_recorder::store::shadow::Table;
use heaptide_recorder::sys::front::{self, Front, HeapState, MAYBE_UNMAPPED, Platform, Route};
use heaptide_recorder::sys::range::Range;
use heaptide_recorder::sys::tls::tls;
use heaptide_recorder::sys::wiped::{self, Wiped};

/// The allocator as the recorder sees it.
pub struct Embedded;

impl Front for Embedded {
    const PLATFORM: Platform = Platform {
        find_function: static_libc::find,
        usable,
        is_wanted: || is(Choice::Record),
        find_allocator: || Ok(()),
        create_tables,
        describe_image: |_| {},
        // valgrind does not replace this allocator.
        is_under_valgrind: || false,
        sees_unmapping: false,
        thread_exits: || (),
        heap_state: HeapState::default,
        own_code: || Range::EMPTY,
        route: |_| Route::NONE,
        python_runs: || (),
    };

    #[inline(always)]
    fn usable(block: Address) -> u64 {
        usable(block)
    }

    #[inline(always)]
    fn usable_of_new(_: Address, _: u64) -> u64 {
        tls().usable.get()
    }

    #[inline(always)]
    fn usable_at_hand(_: Address) -> Option<u64> {
        Some(tls().usable.get())
    }

    #[inline(always)]
    fn freed_at_hand(_: Address) -> Option<u64> {
        Some(tls().usable.get()).filter(|&usable| usable < MAYBE_UNMAPPED)
    }
}

/// Maps blocks to sizes.
// SAFETY: all zeros are a table that was not created.
#[unsafe(link_section = ".bss.wiped")]
static SIZES: Wiped<Table> = unsafe { Wiped::new() };

fn create_tables(scarce: bool) -> Option<()> {
    SIZES.wipe_in_children();
    wiped::apply().ok()?;
    SIZES.get().create(scarce)?;
    front::set_sizes_at_hand();
    Some(())
}

pub type Address = *mut u8;

/// Sizes from here on are stored in pages, so that they fit a word of the table.
const LARGE: usize = 1 << 31;
/// Marks a word in the table of sizes whose other bits are pages.
const PAGES: u32 = 1 << 31;
const PAGE_BITS: u32 = 12;

/// Returns the usable size of a block of this requested size.
#[inline(always)]
pub fn usable_of(size: usize) -> u64 {
    if size < LARGE { size as u64 } else { (size as u64).next_multiple_of(1 << PAGE_BITS) }
}

/// Returns the usable size of a live, recorded block.
fn usable(block: Address) -> u64 {
    match SIZES.get().get(block as u64) {
        pages if pages & PAGES != 0 => ((pages & !PAGES) as u64) << PAGE_BITS,
        bytes => bytes as u64,
    }
}

/// Stores the usable size of the block in the thread's current event. Nothing else changes it
/// meanwhile, because a signal handler finds the thread inside of the recorder.
#[inline(always)]
pub fn note_usable(_: &Inside, usable: u64) {
    tls().usable.set(usable);
}

/// Keeps a block's size, where every block has a site; that is kept by who records it.
#[inline(always)]
pub fn keep_size(inside: &mut Inside, block: Address, usable: u64) {
    if !inside.lane().is_counted_by_lane() {
        let large = usable >= LARGE as u64;
        let word = if large { PAGES | (usable >> PAGE_BITS) as u32 } else { usable as u32 };
        SIZES.get().put(block, word);
    }
}
