//! Which pages of a process exist. Reading one that does not takes long in a large mapping, and
//! makes it in shared memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use nix::unistd::Pid;

const PAGE: u64 = 4096;
/// Bytes of the description of a page.
const ENTRY: usize = 8;
/// Pages whose descriptions are read together.
const PART: u64 = 1 << 14;
/// The page is in memory, or in swap.
const EXISTS: u64 = 3 << 62;

/// The description of the pages of a process.
#[derive(Debug)]
pub struct Pages(File);

impl Pages {
    /// Opens it.
    ///
    /// Errors: the process has ended, or it may not be traced.
    pub fn open(pid: Pid) -> io::Result<Pages> {
        Ok(Pages(File::open(format!("/proc/{pid}/pagemap"))?))
    }

    /// Sets the flags of pages from a first one on that exist, or whose description cannot be read.
    fn mark(&self, first: u64, pages: &mut [bool]) {
        let mut entries = vec![0; pages.len() * ENTRY];
        let is_read = self.0.read_exact_at(&mut entries, first * ENTRY as u64).is_ok();
        let (entries, _) = entries.as_chunks::<ENTRY>();
        for (page, entry) in pages.iter_mut().zip(entries) {
            *page |= !is_read || u64::from_ne_bytes(*entry) & EXISTS != 0;
        }
    }
}

/// Returns the parts of a range of addresses whose pages exist in one of the processes, in order.
/// All of it without descriptions.
pub fn existing(of: &[Pages], range: Range<u64>) -> Vec<Range<u64>> {
    if of.is_empty() || range.is_empty() {
        return vec![range];
    }
    let mut found: Vec<Range<u64>> = Vec::new();
    let (mut first, end) = (range.start / PAGE, range.end.div_ceil(PAGE));
    while first < end {
        let count = (end - first).min(PART);
        let mut pages = vec![false; count as usize];
        of.iter().for_each(|of| of.mark(first, &mut pages));
        for (page, _) in (first..).zip(pages).filter(|(_, exists)| *exists) {
            let low = (page * PAGE).max(range.start);
            let high = ((page + 1) * PAGE).min(range.end);
            match found.last_mut().filter(|last| last.end == low) {
                Some(last) => last.end = high,
                None => found.push(low..high),
            }
        }
        first += count;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(of: &[Pages], low: u64, high: u64) -> Vec<(u64, u64)> {
        existing(of, low..high).into_iter().map(|range| (range.start, range.end)).collect()
    }

    /// Of new memory, two pages are written.
    #[test]
    fn pages_that_were_not_touched_do_not_exist() {
        let own = [Pages::open(Pid::this()).expect("its description")];
        let mut memory: Vec<u8> = Vec::with_capacity(64 << 20);
        let low = (memory.as_ptr() as u64 + (32 << 20)).next_multiple_of(2 << 20) + PAGE;
        let begin = (low - memory.as_ptr() as u64) as usize;
        let room = memory.spare_capacity_mut();
        room[begin + PAGE as usize].write(1);
        room[begin + 2 * PAGE as usize].write(1);
        let of = found(&own, low + 8, low + 4 * PAGE);
        // Huge pages make their neighbours, too.
        assert!(
            of == [(low + PAGE, low + 3 * PAGE)] || of == [(low + 8, low + 4 * PAGE)],
            "{of:?}"
        );
        let part = (low + PAGE + 16, low + PAGE + 32);
        assert_eq!(found(&own, part.0, part.1), [part]);
        assert_eq!(found(&own, low - (4 << 20), low - (4 << 20) + PAGE), []);
        assert_eq!(found(&[], low, low + 8), [(low, low + 8)]);
    }
}
