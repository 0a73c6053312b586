//! The strings of a profile.

use heaptide_format as format;
use heaptide_format::StringHeader;
use zerocopy::FromBytes;

use super::extents::Range;
use crate::text;

/// The strings of a file; a reference is valid only into a committed part of a strings extent.
pub(crate) struct Strings<'a> {
    pub(super) bytes: &'a [u8],
    /// In ascending order.
    pub(super) ranges: Vec<Range>,
}

impl<'a> Strings<'a> {
    pub(crate) fn raw(&self, reference: u32) -> &'a [u8] {
        self.find(reference).unwrap_or_default()
    }

    pub(super) fn get(&self, reference: u32) -> Option<String> {
        Some(text::from_bytes(self.find(reference)?))
    }

    fn find(&self, reference: u32) -> Option<&'a [u8]> {
        let offset = u64::from(reference) * format::STRING_GRANULE;
        let next = self.ranges.partition_point(|range| range.offset <= offset);
        let range = self.ranges.get(next.checked_sub(1)?)?;
        let at = usize::try_from(offset - range.offset).ok()?.checked_add(range.start)?;
        let (head, rest) = StringHeader::read_from_prefix(self.bytes.get(at..range.end)?).ok()?;
        let length = usize::try_from(head.length).ok().filter(|&l| l <= format::STRING_MAX)?;
        rest.get(..length)
    }
}
