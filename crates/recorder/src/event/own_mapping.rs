//! Blocks that are a mapping of their own in glibc's malloc. `realloc` moves such a block by
//! `mremap`: the pages move, so the old and the new block never exist at the same time.

/// Bytes of a chunk's header: the size of what precedes the chunk, and its own size.
const HEADER: u64 = 16;

/// The three low bits of a chunk's own size, of which a mapping has only this one.
const FLAGS: u64 = 7;
const MAPPING: u64 = 2;

/// The smallest page of any system.
const PAGE: u64 = 4096;

/// Returns whether a live block with this many bytes is a mapping of its own. The test is the one
/// that `free` in glibc makes: the chunk, with what precedes it, is whole pages. It holds for
/// blocks of other allocators only if their bytes before the block happen to say the same.
#[inline(always)]
pub fn is_own_mapping(block: *const u8, bytes: u64) -> bool {
    let offset = block as u64 % PAGE;
    // The header is on the page of the block, which is readable.
    offset >= HEADER && offset.is_multiple_of(8) && has_header_of_mapping(block, bytes)
}

fn has_header_of_mapping(block: *const u8, bytes: u64) -> bool {
    let header = block.cast::<u64>();
    // SAFETY: aligned, and on the page of a live block, as the caller has checked.
    let (before, size) = unsafe { (*header.wrapping_sub(2), *header.wrapping_sub(1)) };
    let (chunk, whole) = (block as u64 - HEADER, size & !FLAGS);
    size & FLAGS == MAPPING
        && chunk.wrapping_sub(before).is_multiple_of(PAGE)
        && before.wrapping_add(whole).is_multiple_of(PAGE)
        && bytes.checked_add(HEADER).is_some_and(|needed| needed <= whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(4096))]
    struct Pages([u64; 1024]);

    /// Returns whether the block at this byte of two pages, whose words before it are these, is a
    /// mapping.
    fn says(at: usize, words: [u64; 2], bytes: u64) -> bool {
        let mut pages = Pages([0; 1024]);
        pages.0[at / 8 - 2..at / 8].copy_from_slice(&words);
        is_own_mapping(pages.0[at / 8..].as_ptr().cast(), bytes)
    }

    #[test]
    fn mappings_of_glibc_are_whole_pages() {
        assert!(says(16, [0, 4096 | 2], 4080));
        assert!(says(16, [0, 4096 | 2], 100));
        // From aligned_alloc(64): 48 bytes before the chunk belong to the mapping.
        assert!(says(64, [48, (8192 - 48) | 2], 8000));
    }

    #[test]
    fn other_blocks_are_no_mappings() {
        assert!(!says(16, [0, 4096 | 1], 4080), "a chunk of the heap");
        assert!(!says(16, [0, 4096 | 2], 4081), "smaller than the block");
        assert!(!says(32, [0, 4096 | 2], 100), "not at the start of a page");
        assert!(!says(16, [0, 4112 | 2], 100), "not whole pages");
        assert!(!says(16, [0, 0], 0));
        assert!(!says(4096, [0, 4096 | 2], 100), "the header is on another page");
    }
}
