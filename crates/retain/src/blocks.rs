//! The live blocks, and an index that finds the block at an address.
//!
//! The index is a bitmap of the starts of blocks with the number of earlier starts beside each word
//! (Jacobson's rank, 1989): one cache line for a pointer to the start of a block, 2 bytes a block.

use heaptide_attach::picture::Picture;
use heaptide_format::live_blocks::size_of_number;

use crate::graph::Target;
use crate::objects::{HEAD_BYTES, LINK_BYTES, Objects};
use crate::window::Window;

/// Blocks whose headers are read to see whether they are glibc's.
const PROBES: usize = 4096;
/// The least percentage of them that must be plausible.
const PLAUSIBLE_PERCENT_MIN: usize = 95;
/// Bytes for each bit of the index: allocators align to 8 at least.
const GRAIN_BITS: u32 = 3;
/// Bytes for each word of the index.
const WORD_BITS: u32 = GRAIN_BITS + 6;
/// Bytes for each chunk of the index.
const CHUNK_BITS: u32 = 26;
const CHUNK_WORDS: usize = 1 << (CHUNK_BITS - WORD_BITS);
/// Bits of user addresses on any processor.
const ADDRESS_BITS: u32 = 48;
/// No chunk.
const NONE: u32 = u32::MAX;

/// A word of the index.
#[derive(Clone, Copy, Default)]
struct Word {
    /// A bit for each address at which a block starts.
    starts: u64,
    /// Number of blocks before this word.
    before: u32,
}

/// The live blocks in order of address.
pub(crate) struct Blocks {
    starts: Vec<u64>,
    /// Bytes from the start to the end of a block, in units of 8; of a block whose size is not
    /// known, the most that it can have.
    eighths: Vec<u32>,
    sources: Vec<Source>,
    /// Where the object begins in a block that CPython's garbage collector lists, in units of 8
    /// bytes: behind the links and other words of the interpreter. 0 for other blocks.
    objects: Vec<u8>,
    sites: Vec<u32>,
    chunks: Vec<u32>,
    words: Vec<Word>,
    /// Blocks that extend beyond their chunk.
    long: Vec<u32>,
    /// Blocks with an object of Python of a type of which freed ones are kept for reuse, and those
    /// that are freed, in ascending order.
    reused: Vec<u32>,
    pub(crate) freed: Vec<u32>,
    /// Whether any block has an object of Python.
    has_objects: bool,
    /// Whether the headers of blocks are those of glibc.
    has_headers: bool,
    /// Number of blocks whose size is an average of their site.
    pub(crate) estimated: usize,
}

/// Words that can be pointers to blocks, each with the number of the block that contains it.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) words: Vec<(u32, u64)>,
    places: Vec<Option<(usize, bool)>>,
}

/// Where the size of a block is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// glibc's header.
    Header,
    /// The recorder's table.
    Table,
    /// Nothing but its site.
    Site,
}

/// What the profile knows about the blocks of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Mean usable bytes.
    pub mean_bytes: u64,
    /// The largest request in bytes.
    pub largest_bytes: u64,
}

impl Blocks {
    /// Reads the live blocks of a picture. `facts` returns those of a site.
    ///
    /// `has_python`: whether objects of CPython are blocks.
    pub(crate) fn of(picture: &Picture, has_python: bool, facts: impl Fn(u32) -> Facts) -> Blocks {
        let starts = picture.live.iter().map(|(start, _)| *start).collect();
        let sites = picture.live.iter().map(|(_, site)| *site).collect();
        let mut blocks = Blocks::without_sizes(starts, sites);
        blocks.has_headers = blocks.have_headers(picture);
        let objects = has_python.then(|| Objects::of(picture));
        blocks.find_sizes(picture, objects, facts);
        blocks.find_long();
        blocks
    }

    fn without_sizes(starts: Vec<u64>, sites: Vec<u32>) -> Blocks {
        let mut blocks = Blocks {
            eighths: Vec::with_capacity(starts.len()),
            sources: Vec::with_capacity(starts.len()),
            objects: Vec::with_capacity(starts.len()),
            starts,
            sites,
            chunks: Vec::new(),
            words: Vec::new(),
            long: Vec::new(),
            reused: Vec::new(),
            freed: Vec::new(),
            has_objects: false,
            has_headers: false,
            estimated: 0,
        };
        blocks.build_index();
        blocks
    }

    fn build_index(&mut self) {
        self.chunks = vec![NONE; 1 << (ADDRESS_BITS - CHUNK_BITS)];
        for &start in &self.starts {
            let chunk = (start >> CHUNK_BITS) as usize;
            if self.chunks[chunk] == NONE {
                self.chunks[chunk] = (self.words.len() / CHUNK_WORDS) as u32;
                self.words.resize(self.words.len() + CHUNK_WORDS, Word::default());
            }
            let at = self.word_at(start).unwrap_or_default();
            self.words[at].starts |= 1 << (start >> GRAIN_BITS & 63);
        }
        // Chunks were added in order of address.
        let mut before = 0;
        for word in &mut self.words {
            word.before = before;
            before += word.starts.count_ones();
        }
    }

    fn find_long(&mut self) {
        let chunk = |address: u64| address >> CHUNK_BITS;
        let is_long = |block: &usize| {
            let start = self.starts[*block];
            chunk(start) != chunk(start + self.extent(*block))
        };
        self.long = (0..self.len()).filter(is_long).map(|block| block as u32).collect();
    }

    #[inline]
    fn word_at(&self, address: u64) -> Option<usize> {
        let chunk = *self.chunks.get((address >> CHUNK_BITS) as usize)?;
        let word = (address >> WORD_BITS) as usize & (CHUNK_WORDS - 1);
        (chunk != NONE).then(|| chunk as usize * CHUNK_WORDS + word)
    }

    /// Returns the block that can contain an address, the last one that starts at or before it, and
    /// whether it starts there.
    #[inline]
    fn last_before(&self, address: u64) -> Option<(usize, bool)> {
        let Some(word) = self.word_at(address) else {
            let after = self.long.partition_point(|&long| self.starts[long as usize] <= address);
            return Some((*self.long[..after].last()? as usize, false));
        };
        let word = self.words[word];
        let bit = (address >> GRAIN_BITS & 63) as u32;
        let until = word.starts << (63 - bit);
        let count = word.before + until.count_ones();
        let is_start = until >> 63 != 0 && address.trailing_zeros() >= GRAIN_BITS;
        Some((count.checked_sub(1)? as usize, is_start))
    }

    /// Returns whether there can be objects of Python that are kept for reuse.
    pub(crate) fn has_reused(&self) -> bool {
        !self.reused.is_empty()
    }

    /// Returns whether a block has a freed object.
    pub(crate) fn is_freed(&self, block: u32) -> bool {
        self.freed.binary_search(&block).is_ok()
    }

    /// Returns whether a block has an object of a type of which freed ones are kept for reuse.
    pub(crate) fn is_reused(&self, block: u32) -> bool {
        self.reused.binary_search(&block).is_ok()
    }

    /// Returns the block that contains an address, and to what of it the address leads.
    #[inline]
    pub(crate) fn find(&self, address: u64) -> Option<(u32, Target)> {
        self.target(address, self.last_before(address)?)
    }

    /// Returns the result of [`Blocks::find`] for an address in memory with blocks, given that of
    /// [`Blocks::last_before`].
    #[inline]
    fn target(&self, address: u64, (block, is_start): (usize, bool)) -> Option<(u32, Target)> {
        let offset = if is_start { 0 } else { address - self.starts[block] };
        if !is_start && offset >= self.extent(block) {
            return None;
        }
        if is_start && !self.has_objects {
            return Some((block as u32, Target::Start));
        }
        let target = match (u64::from(self.objects[block]) * 8, offset) {
            (0, 0) => Target::Start,
            (0, _) => Target::Inside,
            (object, _) if offset == object => Target::Start,
            (object, _) if offset + LINK_BYTES == object => Target::Link,
            _ => Target::Inside,
        };
        Some((block as u32, target))
    }

    /// Finds the blocks of several words, each with a number, and passes them on. The reads of all
    /// words from one part of the index follow each other, so that the processor waits for many at
    /// once.
    pub(crate) fn find_all(&self, batch: &mut Batch, mut found: impl FnMut(u32, (u32, Target))) {
        batch.places.clear();
        let words = batch.words.iter();
        batch.places.extend(words.map(|(_, word)| self.last_before(*word)));
        for ((number, word), place) in batch.words.drain(..).zip(&batch.places) {
            if let Some(found_there) = place.and_then(|place| self.target(word, place)) {
                found(number, found_there);
            }
        }
    }

    /// Returns whether an address is in memory near blocks; other words are no pointers to them.
    #[inline]
    pub(crate) fn is_near(&self, address: u64) -> bool {
        let chunk = self.chunks.get((address >> CHUNK_BITS) as usize);
        // A long block can extend to chunks without starts.
        chunk.is_some_and(|chunk| *chunk != NONE || !self.long.is_empty())
    }

    fn find_sizes(
        &mut self,
        picture: &Picture,
        mut objects: Option<Objects>,
        facts: impl Fn(u32) -> Facts,
    ) {
        let mut window = Window::new(picture);
        let mut kept = picture.sizes.iter().peekable();
        let mut mappings = picture.mappings.iter().peekable();
        for index in 0..self.starts.len() {
            let start = self.starts[index];
            let next = self.starts.get(index + 1).copied().unwrap_or(u64::MAX);
            while mappings.next_if(|mapping| mapping.high <= start).is_some() {}
            let end = mappings.peek().map_or(start, |mapping| mapping.high);
            while kept.next_if(|(address, _)| *address < start).is_some() {}
            let known = kept.next_if(|(address, _)| *address == start);
            let known = known.and_then(|(_, number)| size_of_number(*number));
            let has_header = self.has_headers && known.is_none();
            let header = if has_header { read_header(&mut window, start, end) } else { None };
            let by_header = header.and_then(|header| usable_of_header(header, start, next, end));
            let known = known.map(|bytes| (bytes, Source::Table));
            let known = known.or_else(|| Some((by_header?, Source::Header)));
            let (bytes, source) = known.unwrap_or_else(|| {
                self.estimated += 1;
                let facts = facts(self.sites[index]);
                let most = facts.largest_bytes.max(facts.mean_bytes);
                (most.min(next.min(end) - start), Source::Site)
            });
            self.eighths.push(bytes.div_ceil(8).try_into().unwrap_or(u32::MAX));
            self.sources.push(source);
            let head = match &mut objects {
                Some(_) if bytes >= HEAD_BYTES => window.read(start, HEAD_BYTES, end),
                _ => None,
            };
            let object = objects.as_mut().zip(head).map(|(objects, head)| objects.find(head));
            let object = object.unwrap_or_default();
            self.has_objects |= object.begin != 0;
            self.objects.push(object.begin);
            let number = index as u32;
            self.reused.extend(object.is_reused.then_some(number));
            self.freed.extend(object.is_freed.then_some(number));
        }
    }

    /// Returns whether the memory before blocks, of which the size is not known otherwise, is that
    /// of glibc's headers: nearly all of some blocks, from the whole address range, are plausible.
    fn have_headers(&self, picture: &Picture) -> bool {
        let known =
            |start: u64| picture.sizes.binary_search_by_key(&start, |known| known.0).is_ok();
        let step = self.len().div_ceil(PROBES).max(1);
        let (mut probed, mut plausible) = (0, 0);
        let mut window = Window::new(picture);
        for index in (0..self.len()).step_by(step) {
            let start = self.starts[index];
            let mapped = picture.mappings.partition_point(|mapping| mapping.high <= start);
            let Some(mapping) = picture.mappings.get(mapped) else { break };
            if known(start) {
                continue;
            }
            let next = self.starts.get(index + 1).copied().unwrap_or(u64::MAX);
            let header = read_header(&mut window, start, mapping.high);
            let usable = header.and_then(|h| usable_of_header(h, start, next, mapping.high));
            probed += 1;
            plausible += usize::from(usable.is_some());
        }
        plausible * 100 >= probed * PLAUSIBLE_PERCENT_MIN
    }

    /// Returns the size field of the header that glibc has before a block, in a mapping that ends
    /// at `end`; `None` if it is not glibc's block.
    pub(crate) fn header(&self, block: usize, window: &mut Window, end: u64) -> Option<u64> {
        let has_header = self.sources[block] == Source::Header;
        if has_header { read_header(window, self.starts[block], end) } else { None }
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    pub(crate) fn start(&self, block: usize) -> u64 {
        self.starts[block]
    }

    /// Returns the bytes of a block that can be in use.
    pub(crate) fn extent(&self, block: usize) -> u64 {
        u64::from(self.eighths.get(block).copied().unwrap_or(0)) * 8
    }

    pub(crate) fn end(&self, block: usize) -> u64 {
        self.start(block) + self.extent(block)
    }

    /// Returns the parts of sorted ranges in which no block is, except the words of glibc's headers
    /// between two blocks.
    pub(crate) fn gaps(&self, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
        const HEADER: u64 = 8;
        let mut gaps = Vec::new();
        for &(low, high) in ranges {
            let mut at = low;
            let first = self.starts.partition_point(|&start| start < low);
            let inside = (first..self.len()).take_while(|&block| self.starts[block] < high);
            for block in inside {
                let start = self.start(block).saturating_sub(HEADER);
                if start > at {
                    gaps.push((at, start));
                }
                at = at.max(self.end(block));
            }
            if high > at {
                gaps.push((at, high));
            }
        }
        gaps
    }

    /// Returns whether the size of a block is not known.
    pub(crate) fn is_estimated(&self, block: usize) -> bool {
        self.sources[block] == Source::Site
    }

    /// Returns the number of a block's site.
    pub(crate) fn site(&self, block: usize) -> u32 {
        self.sites[block]
    }
}

fn read_header(window: &mut Window, start: u64, end: u64) -> Option<u64> {
    let read = window.read(start - 8, 8, end)?;
    Some(u64::from_ne_bytes(read.try_into().ok()?))
}

/// glibc's block is a mapping of its own.
pub(crate) const IS_MAPPED: u64 = 2;
/// glibc's block is not in the main arena.
pub(crate) const IS_IN_ARENA: u64 = 4;
/// Bits of the size field of glibc's header that are not part of the size.
const FLAGS: u64 = 7;

/// Returns the usable bytes according to the size field of glibc's header, if it is plausible: the
/// next block begins behind it, and the mapping does not end before.
fn usable_of_header(header: u64, start: u64, next: u64, end: u64) -> Option<u64> {
    const LEAST: u64 = 32;
    let bytes = header & !FLAGS;
    let is_mapped = header & IS_MAPPED != 0;
    let usable = bytes.checked_sub(if is_mapped { 16 } else { 8 })?;
    let chunk_end = start.checked_add(bytes)?;
    // Blocks aligned to large sizes start behind the header of a mapping.
    let fits = if is_mapped { start + usable <= end } else { chunk_end - 16 <= end };
    let is_plausible = bytes >= LEAST && bytes.is_multiple_of(16) && fits && chunk_end <= next;
    (is_plausible || is_mapped && fits && start + usable <= next).then_some(usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(of: &[(u64, u64)]) -> Blocks {
        let starts = of.iter().map(|(start, _)| *start).collect();
        let mut blocks = Blocks::without_sizes(starts, vec![1; of.len()]);
        blocks.eighths = of.iter().map(|(_, bytes)| (bytes / 8) as u32).collect();
        blocks.sources = vec![Source::Header; of.len()];
        blocks.objects = vec![0; of.len()];
        blocks.find_long();
        blocks
    }

    #[test]
    fn addresses_are_found_in_their_blocks() {
        let far = 0x7f00_0000_0000;
        let blocks = blocks(&[(0x1010, 24), (0x1028, 8), (0x2000, 4096), (far + 0x10, 64)]);
        let found =
            [0x1000, 0x1010, 0x1011, 0x1027, 0x1028, 0x1030, 0x2fff, 0x3000, far, far + 0x4f]
                .map(|address| blocks.find(address));
        let expected = [
            None,
            Some((0, Target::Start)),
            Some((0, Target::Inside)),
            Some((0, Target::Inside)),
            Some((1, Target::Start)),
            None,
            Some((2, Target::Inside)),
            None,
            None,
            Some((3, Target::Inside)),
        ];
        assert_eq!(found, expected);
        assert_eq!(blocks.find(u64::MAX), None);
    }

    #[test]
    fn a_block_is_found_where_no_other_starts() {
        let blocks = blocks(&[(0x1010, 1 << 30), (0x8000_0000, 16)]);
        assert_eq!(blocks.find(0x2000_0000), Some((0, Target::Inside)));
        assert_eq!(blocks.find(0x4000_1010), None);
        assert_eq!(blocks.find(0x8000_0000), Some((1, Target::Start)));
    }

    #[test]
    fn pointers_lead_to_the_object_behind_its_links() {
        let mut blocks = blocks(&[(0x1010, 64)]);
        blocks.objects = vec![2];
        blocks.has_objects = true;
        let found = [0x1010, 0x1018, 0x1020].map(|address| blocks.find(address));
        let expected = [Target::Link, Target::Inside, Target::Start];
        assert_eq!(found, expected.map(|target| Some((0, target))));
    }

    #[test]
    fn headers_are_believed_if_they_fit() {
        let usable = |header, next, end| usable_of_header(header, 0x1010, next, end);
        assert_eq!(usable(0x21, 0x1030, 0x2000), Some(0x18));
        assert_eq!(usable(0x21, 0x1020, 0x2000), None); // the next block begins inside
        assert_eq!(usable(0x19, 0x2000, 0x2000), None); // no multiple of 16
        assert_eq!(usable(0x2002, u64::MAX, 0x3000), Some(0x1ff0)); // a mapping of its own
        assert_eq!(usable(0x5001, u64::MAX, 0x3000), None); // behind the end
    }
}
