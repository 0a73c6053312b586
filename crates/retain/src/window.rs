//! Reads the memory of a picture through a window, in ascending order of addresses.

use std::ops::Range;

use heaptide_attach::picture::Picture;

/// Bytes of the window.
pub(crate) const WINDOW: u64 = 1 << 20;

const PAGE: u64 = 4096;

/// The last memory that was read.
pub(crate) struct Window<'a> {
    picture: &'a Picture,
    bytes: Vec<u8>,
    start: u64,
    length: u64,
}

impl<'a> Window<'a> {
    pub(crate) fn new(picture: &'a Picture) -> Window<'a> {
        Window { picture, bytes: vec![0; WINDOW as usize], start: 0, length: 0 }
    }

    /// Returns `bytes` bytes at an address, at most [`WINDOW`], of a mapping that ends at `end`.
    /// `None` if they cannot be read.
    pub(crate) fn read(&mut self, address: u64, bytes: u64, end: u64) -> Option<&[u8]> {
        let is_inside = address >= self.start && address + bytes <= self.start + self.length;
        if !is_inside {
            let wanted = WINDOW.min(end.saturating_sub(address));
            self.start = address;
            self.length = self.picture.read(address, &mut self.bytes[..wanted as usize]) as u64;
        }
        let from = address - self.start;
        (from + bytes <= self.length).then(|| &self.bytes[from as usize..(from + bytes) as usize])
    }
}

impl Window<'_> {
    /// Calls `each` with the address and the value of each word of a range whose page exists.
    /// Returns the number of bytes that could not be read.
    pub(crate) fn each_word(&mut self, low: u64, high: u64, mut each: impl FnMut(u64, u64)) -> u64 {
        let existing = self.picture.existing(low..high);
        existing.into_iter().map(|range| self.each_word_of(range, &mut each)).sum()
    }

    fn each_word_of(
        &mut self,
        Range { start, end }: Range<u64>,
        each: &mut dyn FnMut(u64, u64),
    ) -> u64 {
        let (low, high) = (start.next_multiple_of(8), end);
        let mut unread = 0;
        let mut at = low;
        while at + 8 <= high {
            let mut bytes = (high - at).min(WINDOW) & !7;
            if self.read(at, bytes, high).is_none() {
                // Pages that the copy does not have, one by one.
                bytes = (((at + PAGE) & !(PAGE - 1)).min(high) - at) & !7;
                bytes = bytes.max(8);
            }
            match self.read(at, bytes, at + bytes) {
                Some(read) => words(read).zip((at..).step_by(8)).for_each(|(word, address)| {
                    each(address, word);
                }),
                None => unread += bytes,
            }
            at += bytes;
        }
        unread
    }
}

/// Returns the words of bytes whose number is a multiple of eight.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
}
