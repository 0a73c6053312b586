//! A map from the sampled blocks that are live to their sites.
//!
//! The table of all blocks ([`crate::store::shadow`]) has memory for each piece of the heap in
//! which a block was ever recorded. A process that is sampled for months would fill it. The memory
//! used here is bounded by the number of sampled blocks that are live at once.
//!
//! Frees check a *filter* first. It counts the sampled blocks that begin in each page of 4 KiB, by
//! the lower 32 bits of the page's address. The count is 0 for nearly all pages.

use crate::sys::memory::{self, InChild};
use crate::sys::wiped::Wiped;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

/// The lowest bit of an address that the filter depends on.
const PAGE_BITS: u32 = 12;
/// Counts of the filter: one for each page of 4 GiB.
const PAGES: usize = 1 << (u32::BITS - PAGE_BITS);
/// A count that has reached this no longer changes, since the number of blocks is no longer known.
const MANY: u8 = u8::MAX;

/// Blocks per bucket: as many as fit in a cache line.
const PER_BUCKET: usize = 5;
/// Logarithm of the number of buckets of the first table (64 KiB); each further table has four
/// times as many.
const BUCKETS_FIRST_BITS: u32 = 10;
/// Number of tables. Together they have room for 7 million blocks; with a sample per 512 KiB, these
/// stand for 3 TiB of heap.
const TABLES: usize = 6;

/// Blocks with the same hash. All zeros: none.
#[repr(C, align(64))]
struct Bucket {
    blocks: [AtomicU64; PER_BUCKET],
    sites: [AtomicU32; PER_BUCKET],
}

/// Tables of buckets. A block for which a table has no place is in the next one. All zeros: none
/// yet.
pub struct SampledBlocks {
    filter: AtomicPtr<AtomicU8>,
    tables: [AtomicPtr<Bucket>; TABLES],
}

// SAFETY: all zeros is a valid value: no blocks.
#[unsafe(link_section = ".bss.wiped")]
static BLOCKS: Wiped<SampledBlocks> = unsafe { Wiped::new() };

/// Returns the sampled blocks of this process.
#[inline(always)]
pub fn sampled_blocks() -> &'static SampledBlocks {
    BLOCKS.get()
}

/// Makes forked children start without blocks.
pub fn wipe_in_children() {
    BLOCKS.wipe_in_children();
}

/// Returns whether a block may be sampled; false for most blocks that are not.
///
/// # Safety
/// `filter` was returned by [`SampledBlocks::filter`] and is not null.
#[inline(always)]
pub unsafe fn may_hold(filter: *const AtomicU8, block: u64) -> bool {
    // SAFETY: the filter has a count for each value of these bits.
    let count = unsafe { &*filter.add((block as u32 >> PAGE_BITS) as usize) };
    count.load(Relaxed) != 0
}

impl SampledBlocks {
    /// Allocates the filter. Returns none if there is no memory.
    pub fn create(&self) -> Option<()> {
        let filter = memory::take(PAGES, InChild::Nothing);
        self.filter.store(filter.cast(), Release);
        (!filter.is_null()).then_some(())
    }

    /// Returns the filter, for [`may_hold`]; null before it is created.
    pub fn filter(&self) -> *const AtomicU8 {
        self.filter.load(Acquire)
    }

    /// Stores the site of a block. Returns false if there is no room.
    pub fn put(&self, block: *const u8, site: u32) -> bool {
        let block = block as u64;
        // The block got another label, or the free of a former block there was missed.
        if let Some((_, its_site)) = self.find(block) {
            its_site.store(site, Relaxed);
            return true;
        }
        let Some(count) = self.count(block) else {
            return false;
        };
        for level in 0..TABLES {
            let Some(bucket) = self.bucket_or_new(level, block) else {
                return false;
            };
            let is_free = |known: &AtomicU64| {
                known.load(Relaxed) == 0
                    && known.compare_exchange(0, block, AcqRel, Relaxed).is_ok()
            };
            if let Some(place) = bucket.blocks.iter().position(is_free) {
                bucket.sites[place].store(site, Relaxed);
                let more = |count: u8| (count != MANY).then(|| count + 1);
                let _ = count.fetch_update(Relaxed, Relaxed, more);
                return true;
            }
        }
        false
    }

    /// Returns whether a block is sampled.
    #[inline(never)]
    pub fn holds(&self, block: *const u8) -> bool {
        self.find(block as u64).is_some()
    }

    /// Returns the site of a block, or 0 if it is not sampled.
    pub fn get(&self, block: u64) -> u32 {
        self.find(block).map_or(0, |(_, site)| site.load(Relaxed))
    }

    /// Removes a block that is about to be freed, and returns its site, or 0 if it is not sampled.
    #[inline(never)]
    pub fn take(&self, block: *const u8) -> u32 {
        let block = block as u64;
        let Some((known, site)) = self.find(block) else {
            return 0;
        };
        let site = site.load(Relaxed);
        known.store(0, Release);
        let less = |count: u8| (count != MANY && count != 0).then(|| count - 1);
        if let Some(count) = self.count(block) {
            let _ = count.fetch_update(Relaxed, Relaxed, less);
        }
        site
    }

    /// Returns the count of a block's page; none without a filter.
    fn count(&self, block: u64) -> Option<&AtomicU8> {
        let filter = self.filter();
        if filter.is_null() {
            return None;
        }
        // SAFETY: a filter has a count for each value of these bits, and is never unmapped.
        Some(unsafe { &*filter.add((block as u32 >> PAGE_BITS) as usize) })
    }

    /// Returns the words that hold a block and its site.
    fn find(&self, block: u64) -> Option<(&AtomicU64, &AtomicU32)> {
        if block == 0 || self.count(block)?.load(Relaxed) == 0 {
            return None;
        }
        (0..TABLES).find_map(|level| {
            let bucket = self.bucket(level, block)?;
            let place = bucket.blocks.iter().position(|known| known.load(Relaxed) == block)?;
            Some((&bucket.blocks[place], &bucket.sites[place]))
        })
    }

    /// Returns the bucket of a block in a table; none if the table does not exist.
    fn bucket(&self, level: usize, block: u64) -> Option<&Bucket> {
        let table = self.tables[level].load(Acquire);
        if table.is_null() {
            return None;
        }
        // Fibonacci hashing: the upper bits depend on all bits of the address.
        let hash = (block >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (hash >> (u64::BITS - bits(level))) as usize;
        // SAFETY: a table has this many buckets, and is never unmapped.
        Some(unsafe { &*table.add(place) })
    }

    /// Returns the bucket of a block in a table, and creates the table if it does not exist; none
    /// without memory.
    fn bucket_or_new(&self, level: usize, block: u64) -> Option<&Bucket> {
        self.bucket(level, block).or_else(|| {
            let bytes = size_of::<Bucket>() << bits(level);
            let memory = memory::take(bytes, InChild::Nothing);
            if memory.is_null() {
                return None;
            }
            let (table, null) = (&self.tables[level], core::ptr::null_mut());
            if table.compare_exchange(null, memory.cast(), AcqRel, Acquire).is_err() {
                // SAFETY: no other thread has seen it.
                unsafe { memory::release(memory, bytes, InChild::Nothing) };
            }
            self.bucket(level, block)
        })
    }
}

/// Returns the logarithm of the number of buckets of a table.
fn bits(level: usize) -> u32 {
    BUCKETS_FIRST_BITS + 2 * level as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    fn none() -> Box<SampledBlocks> {
        // SAFETY: all zeros is a valid value.
        unsafe { Box::<SampledBlocks>::new_zeroed().assume_init() }
    }

    fn block(n: usize) -> *const u8 {
        core::ptr::without_provenance(0x7f00_0000_0010 + n * 48)
    }

    fn may_hold_block(blocks: &SampledBlocks, block: *const u8) -> bool {
        // SAFETY: the tests create the filter.
        unsafe { may_hold(blocks.filter(), block as u64) }
    }

    #[test]
    fn many_blocks_have_their_site_until_they_are_taken() {
        const COUNT: usize = 200_000;
        let blocks = none();
        assert_eq!((blocks.get(block(0) as u64), blocks.take(block(0))), (0, 0));
        assert!(!blocks.put(block(0), 1), "without a filter");
        blocks.create().expect("memory");
        assert!(!may_hold_block(&blocks, block(3)));
        assert!((0..COUNT).all(|n| blocks.put(block(n), n as u32 + 1)));
        assert!(!blocks.tables[3].load(Acquire).is_null(), "several tables");
        assert!(blocks.put(block(7), 70), "the block that was there went unseen");
        assert_eq!((blocks.get(block(7) as u64), blocks.get(block(7) as u64 + 16)), (70, 0));
        for n in 0..COUNT {
            assert!(may_hold_block(&blocks, block(n)));
            assert_eq!(blocks.take(block(n)), if n == 7 { 70 } else { n as u32 + 1 });
            assert_eq!(blocks.take(block(n)), 0, "once");
        }
        assert!((0..COUNT).all(|n| !may_hold_block(&blocks, block(n))));
    }

    #[test]
    fn a_page_that_had_very_many_blocks_may_hold_one_for_good() {
        let blocks = none();
        blocks.create().expect("memory");
        let of_page = |n: usize| core::ptr::without_provenance(0x55_0000_1000 + n * 8);
        assert!((0..300).all(|n| blocks.put(of_page(n), 5)));
        assert!((0..300).all(|n| blocks.take(of_page(n)) == 5));
        assert!(may_hold_block(&blocks, of_page(0)));
        assert!((0..300).all(|n| blocks.take(of_page(n)) == 0));
    }
}
