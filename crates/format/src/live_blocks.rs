//! The recorder's table of live blocks, in the memory of the program: readers that have stopped its
//! threads find the blocks there, and the numbers of their sites.
//!
//! A table consists of two words at a known address: the address of its first level, and the mask
//! of an index into that. The first level has two entries of 8 bytes for each region of the address
//! space, one for blocks aligned to 16 and one for other blocks. An entry refers to a leaf with a
//! 4-byte number for each 16 bytes of its region; 0: no block begins there.

/// The size of a region is 2 to the power of this number of bytes.
pub const REGION_BITS: u32 = 22;
/// Numbers in a leaf.
pub const LEAF_WORDS: usize = 1 << (REGION_BITS - 4);
/// Bytes of the first level for each region.
pub const REGION_ENTRY_BYTES: u64 = 16;

const PAGE_BITS: u32 = 12;
/// Larger sizes are stored in pages, with this bit set.
const IN_PAGES: u32 = 1 << 31;

/// Returns the entry of a region for a leaf at an address. An entry holds the region's number,
/// because a short first level has one entry for several regions, of which only the first gets a
/// leaf. `address_bits`: bits of the processor's user addresses.
#[inline(always)]
pub const fn leaf_entry(region: u64, leaf: u64, address_bits: u32) -> u64 {
    region << (address_bits - PAGE_BITS) | leaf >> PAGE_BITS
}

/// Returns the address of the leaf that an entry refers to, if it is that of this region.
#[inline(always)]
pub const fn leaf_of(entry: u64, region: u64, address_bits: u32) -> Option<u64> {
    let page_bits = address_bits - PAGE_BITS;
    let page = entry & ((1 << page_bits) - 1);
    // An empty entry has the number of the lowest region.
    if page != 0 && entry >> page_bits == region { Some(page << PAGE_BITS) } else { None }
}

/// Returns the number that stands for a usable size in a table of sizes; never 0: no bytes are no
/// pages.
#[inline(always)]
pub fn number_of_size(usable: u64) -> u32 {
    let bytes = u32::try_from(usable).ok().filter(|&bytes| bytes != 0 && bytes & IN_PAGES == 0);
    bytes.unwrap_or(IN_PAGES | (usable >> PAGE_BITS) as u32)
}

/// Returns the usable size that a number stands for; `None` for 0.
#[inline(always)]
pub fn size_of_number(number: u32) -> Option<u64> {
    let pages = (number & !IN_PAGES) as u64;
    let bytes = if number & IN_PAGES != 0 { pages << PAGE_BITS } else { pages };
    (number != 0).then_some(bytes)
}
