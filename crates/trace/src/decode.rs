//! Decodes records to events. The bytes are untrusted.

use crate::packing::{ALLOCATED, Context, FREED, MOVING, OTHER, end, other, usual_size};
use crate::record::{Block, Record};

/// The reader's side of one extent. `B` may own the bytes or borrow them.
#[derive(Clone)]
pub struct Decoder<B> {
    context: Context,
    bytes: B,
    at: usize,
}

/// Bytes that form no valid record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The offset of the invalid record.
    pub at: usize,
}

/// The longest short record, padded so that a word can be read at the start of each of its fields.
type Window = [u8; SHORT_MAX + 8];

/// The most bytes of a short record, whose fields are packed.
const SHORT_MAX: usize = 16;

/// Returns the field of up to four bytes that starts at a byte of a short record.
#[inline(always)]
fn field(window: &Window, at: u32, bytes: u32) -> u64 {
    // A field that starts after the last byte is empty.
    let at = at as usize % SHORT_MAX;
    let word = window[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    word & ((1 << (8 * bytes)) - 1)
}

impl<B: AsRef<[u8]>> Decoder<B> {
    /// Creates a decoder for these bytes, with clock differences relative to `ticks`.
    pub fn new(ticks: u64, bytes: B) -> Decoder<B> {
        let mut context = Context::new();
        context.ticks = ticks;
        Decoder { context, bytes, at: 0 }
    }

    /// Returns the number of bytes decoded so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns the next record and its time, or `None` at the end. A fault ends the iteration.
    #[expect(clippy::should_implement_trait, reason = "an iterator could not be cloned as cheaply")]
    #[inline(always)]
    pub fn next(&mut self) -> Option<Result<(u64, Record), Fault>> {
        let Decoder { context, bytes, at } = self;
        let rest = bytes.as_ref().get(*at..)?;
        if let Some(window) = rest.first_chunk()
            && let Some((record, length)) = context.short(window)
        {
            *at += length;
            return Some(Ok((context.ticks, record)));
        }
        self.next_of_any_length()
    }

    /// Like `next`, for records that may be long or near the end of the bytes.
    #[cold]
    fn next_of_any_length(&mut self) -> Option<Result<(u64, Record), Fault>> {
        let Decoder { context, bytes, at } = self;
        let rest = bytes.as_ref().get(*at..).filter(|rest| !rest.is_empty())?;
        let mut window: Window = [0; _];
        window.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let record = context.short(&window).or_else(|| context.long(rest));
        let Some((record, length)) = record.filter(|&(_, length)| length <= rest.len()) else {
            let fault = Fault { at: *at };
            *at += rest.len();
            return Some(Err(fault));
        };
        *at += length;
        Some(Ok((context.ticks, record)))
    }
}

impl Context {
    /// Decodes a short record, which may extend past the end of the bytes; `None` if it is invalid.
    #[inline(always)]
    fn short(&mut self, window: &Window) -> Option<(Record, usize)> {
        let first = window[0];
        let (clock_bytes, away_bytes) =
            (u32::from(first >> 2 & 3) + 1, u32::from(first >> 4 & 3) + 1);
        if clock_bytes > 3 {
            return None;
        }
        match first & 3 {
            ALLOCATED => self.block(window, clock_bytes, away_bytes),
            kind @ (FREED | MOVING) if first >> 6 == end::NOTHING => {
                let length = self.advance(window, 1, clock_bytes, away_bytes) as usize;
                let (address, freed) = (self.address, kind == FREED);
                let record =
                    if freed { Record::Freed { address } } else { Record::Moving { address } };
                Some((record, length))
            }
            kind @ (FREED | MOVING) if first >> 6 <= end::WHOLE => {
                let at = self.advance(window, 1, clock_bytes, away_bytes);
                Some(self.known_end(window, at, (kind == MOVING, first >> 6 == end::SLOT)))
            }
            _ => None,
        }
    }

    /// The end of a block whose site and usable size begin in this byte, or the slot that has them.
    fn known_end(
        &self,
        window: &Window,
        at: u32,
        (moving, has_slot): (bool, bool),
    ) -> (Record, usize) {
        let known = *self.slot(field(window, at, 1) as u8);
        let (site, usable, length) = if has_slot {
            (known.site, known.usable, at + 1)
        } else {
            (field(window, at, 4) as u32, field(window, at + 4, 4), at + 8)
        };
        (Record::Ended { address: self.address, site, usable, moving }, length as usize)
    }

    /// Decodes the ticks, which start at byte `at`, and the address. Returns the start of the next
    /// field.
    #[inline(always)]
    fn advance(&mut self, window: &Window, at: u32, clock_bytes: u32, away_bytes: u32) -> u32 {
        self.ticks = self.ticks.wrapping_add(field(window, at, clock_bytes));
        let away = field(window, at + clock_bytes, away_bytes);
        let difference = (away >> 1) ^ (away & 1).wrapping_neg();
        self.address = (self.address >> 3).wrapping_add(difference) << 3;
        at + clock_bytes + away_bytes
    }

    #[inline(always)]
    fn block(
        &mut self,
        window: &Window,
        clock_bytes: u32,
        away_bytes: u32,
    ) -> Option<(Record, usize)> {
        let [first, second, ..] = *window;
        let (size_code, usable_code) = (second & 3, second >> 2 & 3);
        let site_bytes = [0, 1, 3, 4][usize::from(first >> 6)];
        let size_bytes = [0, 1, 2, 4][usize::from(size_code)];
        let more_bytes = [0, 0, 1, 4][usize::from(usable_code)];
        let length = 2 + clock_bytes + away_bytes + site_bytes + size_bytes + more_bytes;
        if length as usize > SHORT_MAX || second >> 5 != 0 {
            return None;
        }
        let at = self.advance(window, 2, clock_bytes, away_bytes);
        let site = field(window, at, site_bytes) as u32;
        let slot = match site_bytes {
            0 => self.last,
            1 => site as u8,
            _ => Context::slot_of(site),
        };
        let known = *self.slot(slot);
        let size = field(window, at + site_bytes, size_bytes);
        let more = field(window, at + site_bytes + size_bytes, more_bytes);
        let requested = if size_code == 0 { known.requested } else { size };
        let usable = match usable_code {
            0 => usual_size(requested),
            1 => known.usable,
            _ => requested.wrapping_add(more),
        };
        let block = Block {
            address: self.address,
            site: if site_bytes > 1 { site } else { known.site },
            requested,
            usable,
            reallocated: second & 16 != 0,
            remapped: false,
        };
        self.note(slot, &block);
        Some((Record::Allocated(block), length as usize))
    }

    /// Decodes a long record, which has whole fields.
    #[cold]
    fn long(&mut self, rest: &[u8]) -> Option<(Record, usize)> {
        let (first, rest) = rest.split_first()?;
        if first & 3 != OTHER {
            return None;
        }
        let what = first >> 2;
        let half = |at: usize| rest.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
        let word = |at: usize| rest.get(8 * at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
        let context = match what {
            other::SCOPE => Some(Record::Scope(half(0)?)),
            other::THREAD => Some(Record::Thread(half(0)?)),
            other::NODE => Some(Record::Node(half(0)?)),
            other::ELEMENT => Some(Record::Element(half(0)?)),
            _ => None,
        };
        if let Some(record) = context {
            return Some((record, 5));
        }
        if what == other::SCOPE_LATER {
            let (id, later) = (half(0)?, half(4)?);
            self.ticks = self.ticks.wrapping_add(later.into());
            return Some((Record::Scope(id), 9));
        }
        let ticks = word(0)?;
        let block = || {
            let (address, requested, usable) = (word(1)?, word(2)?, word(3)?);
            let (site, flags) = (half(32)?, half(36)?);
            let (reallocated, remapped) = (flags & 1 != 0, flags & 2 != 0);
            Some(Block { address, site, requested, usable, reallocated, remapped })
        };
        let (record, length) = match what {
            other::ALLOCATED => (Record::Allocated(block()?), 41),
            other::FREED => (Record::Freed { address: word(1)? }, 17),
            other::MOVING => (Record::Moving { address: word(1)? }, 17),
            other::STILL_THERE => (Record::StillThere, 9),
            other::RELEASED => (Record::Released, 9),
            other::FAILED => (Record::Failed { site: half(8)? }, 13),
            other::RELABELLED => (Record::Relabelled(block()?), 41),
            other::UNLABELLED => (Record::Unlabelled { address: word(1)?, site: half(16)? }, 21),
            other::OPENED => (Record::Opened(block()?), 41),
            other::CLOSED => (Record::Closed { address: word(1)?, site: half(16)? }, 21),
            other::SCOPE_AT => (Record::Scope(half(8)?), 13),
            other::MARK => (Record::Mark { number: half(8)? }, 13),
            other::LABELLED => (Record::Labelled { uid: word(1)?, shape: half(16)? }, 21),
            other::ENDED => {
                let (address, usable) = (word(1)?, word(2)?);
                let (site, moving) = (half(24)?, half(28)? & 1 != 0);
                (Record::Ended { address, site, usable, moving }, 33)
            }
            _ => return None,
        };
        self.ticks = ticks;
        match record {
            Record::Allocated(block) => {
                self.address = block.address;
                self.note(Context::slot_of(block.site), &block);
            }
            Record::Freed { address }
            | Record::Moving { address }
            | Record::Ended { address, .. } => {
                self.address = address;
            }
            _ => {}
        }
        Some((record, length))
    }
}
