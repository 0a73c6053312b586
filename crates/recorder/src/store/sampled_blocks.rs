//! The sampled blocks that are live: block → site.
//!
//! The table of all blocks ([`crate::store::shadow`]) has memory for each piece of the heap where a
//! block ever was recorded. A process that is sampled for months would fill it. Here memory is
//! bounded by the sampled blocks that are live at once.
//!
//! Frees look at a *filter* first: how many of them begin in each page of 4 KiB, by the lower 32
//! bits of its address. It is 0 for nearly all pages.

use crate::sys::kernel::Errno;
use crate::sys::memory::{self, InChild};
use crate::sys::wiped::Wiped;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

/// The lowest bit of an address that the filter depends on.
const PAGE_BITS: u32 = 12;
/// Counts of the filter: one for each page of 4 GiB.
const PAGES: usize = 1 << (u32::BITS - PAGE_BITS);
/// A count that came to this stays: how many blocks there are is not known any more.
const MANY: u8 = u8::MAX;

/// Blocks of a bucket: as many as a line of the cache holds.
const PER_BUCKET: usize = 5;
/// Buckets of the first table, 64 KiB of them; each further one has four times as many.
const BUCKETS_FIRST_BITS: u32 = 10;
/// Tables. All together have room for 7 million blocks: of 512 KiB for each, 3 TiB of heap.
const TABLES: usize = 6;

/// Blocks with the same hash. Zero is: none.
#[repr(C, align(64))]
struct Bucket {
    blocks: [AtomicU64; PER_BUCKET],
    sites: [AtomicU32; PER_BUCKET],
}

/// Tables of buckets: a block for which one has no place is in the next one. Zero is: none yet.
pub struct SampledBlocks {
    filter: AtomicPtr<AtomicU8>,
    tables: [AtomicPtr<Bucket>; TABLES],
}

// SAFETY: zero is a valid value of every field: there is no block.
static BLOCKS: Wiped<SampledBlocks> = unsafe { Wiped::new() };

/// The sampled blocks of this process.
#[inline(always)]
pub fn sampled_blocks() -> &'static SampledBlocks {
    BLOCKS.get()
}

/// Has a forked child find no blocks.
///
/// Errors: the kernel's.
pub fn wipe_in_children() -> Result<(), Errno> {
    BLOCKS.wipe_in_children()
}

/// Whether a block may be sampled; false for most that are not.
///
/// # Safety
/// `filter` is a [`SampledBlocks::filter`] that is not null.
#[inline(always)]
pub unsafe fn may_hold(filter: *const AtomicU8, block: u64) -> bool {
    // SAFETY: it has a count for each value of these bits.
    let count = unsafe { &*filter.add((block as u32 >> PAGE_BITS) as usize) };
    count.load(Relaxed) != 0
}

impl SampledBlocks {
    /// Takes memory for the filter; none if there is none to take.
    pub fn create(&self) -> Option<()> {
        let filter = memory::take(PAGES, InChild::Nothing);
        self.filter.store(filter.cast(), Release);
        (!filter.is_null()).then_some(())
    }

    /// The filter, for [`may_hold`]; null before it is created.
    pub fn filter(&self) -> *const AtomicU8 {
        self.filter.load(Acquire)
    }

    /// Notes the site of a block; false if there is no room.
    pub fn put(&self, block: *const u8, site: u32) -> bool {
        let block = block as u64;
        // It has another label, or the block that was there went unseen.
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

    /// Whether a block is sampled.
    #[inline(never)]
    pub fn holds(&self, block: *const u8) -> bool {
        self.find(block as u64).is_some()
    }

    /// The site of a block, or 0 if it is not sampled.
    pub fn get(&self, block: u64) -> u32 {
        self.find(block).map_or(0, |(_, site)| site.load(Relaxed))
    }

    /// The site of a block that is about to be freed, which is then forgotten; 0 if it is not
    /// sampled.
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

    /// The count of a block's page; none without a filter.
    fn count(&self, block: u64) -> Option<&AtomicU8> {
        let filter = self.filter();
        if filter.is_null() {
            return None;
        }
        // SAFETY: a filter has a count for each value of these bits, and is never unmapped.
        Some(unsafe { &*filter.add((block as u32 >> PAGE_BITS) as usize) })
    }

    /// Where a block is.
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

    /// The bucket of a block in a table; none if there is no such table.
    fn bucket(&self, level: usize, block: u64) -> Option<&Bucket> {
        let table = self.tables[level].load(Acquire);
        if table.is_null() {
            return None;
        }
        // Fibonacci hashing: the upper bits depend on all bits of the address.
        let hash = (block >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (hash >> (u64::BITS - bits(level))) as usize;
        // SAFETY: a table has so many buckets, and is never unmapped.
        Some(unsafe { &*table.add(place) })
    }

    /// The same, of a table that is made if need be; none without memory.
    fn bucket_or_new(&self, level: usize, block: u64) -> Option<&Bucket> {
        self.bucket(level, block).or_else(|| {
            let bytes = size_of::<Bucket>() << bits(level);
            let memory = memory::take(bytes, InChild::Nothing);
            if memory.is_null() {
                return None;
            }
            let (table, null) = (&self.tables[level], core::ptr::null_mut());
            if table.compare_exchange(null, memory.cast(), AcqRel, Acquire).is_err() {
                // SAFETY: nobody else saw it.
                unsafe { memory::release(memory, bytes, InChild::Nothing) };
            }
            self.bucket(level, block)
        })
    }
}

/// The logarithm of the number of buckets of a table.
fn bits(level: usize) -> u32 {
    BUCKETS_FIRST_BITS + 2 * level as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    fn none() -> Box<SampledBlocks> {
        // SAFETY: zero is a valid value of every field.
        unsafe { Box::<SampledBlocks>::new_zeroed().assume_init() }
    }

    fn block(n: usize) -> *const u8 {
        core::ptr::without_provenance(0x7f00_0000_0010 + n * 48)
    }

    fn may_hold_block(blocks: &SampledBlocks, block: *const u8) -> bool {
        // SAFETY: the tests create it.
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
