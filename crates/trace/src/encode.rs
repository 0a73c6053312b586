//! Encodes events as records.

use crate::packing::{ALLOCATED, Context, FREED, MOVING, OTHER, Slot, end, other, usual_size};
use crate::record::{Block, Record};

/// The most bytes of a record.
pub const LONGEST: usize = 41;

/// The writer's side of one extent.
///
/// ```
/// use heaptide_trace::{Block, Decoder, Encoder, LONGEST, Record};
/// let (mut encoder, mut room) = (Encoder::new(), [0; LONGEST]);
/// encoder.begin(1000);
/// let block = Block { address: 4096, site: 7, requested: 30, usable: 40, ..Block::default() };
/// let length = encoder.allocated(&mut room, 1002, &block);
/// let mut decoder = Decoder::new(1000, &room[..length]);
/// assert_eq!(decoder.next(), Some(Ok((1002, Record::Allocated(block)))));
/// assert_eq!(decoder.next(), None);
/// ```
pub struct Encoder(Context);

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

/// Stores the low `bytes` bytes of a number at `at`, and advances `at`. It always writes eight
/// bytes; the next field overwrites the excess.
#[inline(always)]
fn put(out: &mut [u8; LONGEST], at: &mut usize, value: u64, bytes: u32) {
    if let Some(room) = out.get_mut(*at..).and_then(|rest| rest.first_chunk_mut::<8>()) {
        *room = value.to_le_bytes();
    }
    *at += bytes as usize;
}

/// Returns the number of bytes that a number needs, at least 1.
fn bytes_of(value: u64) -> u32 {
    (71 - (value | 1).leading_zeros()) / 8
}

fn zigzag(difference: i64) -> u64 {
    (difference << 1 ^ difference >> 63).cast_unsigned()
}

impl Encoder {
    /// Creates an encoder without history.
    pub const fn new() -> Encoder {
        Encoder(Context::new())
    }

    /// Starts a new extent at this time.
    pub fn begin(&mut self, ticks: u64) {
        self.0.restart(ticks);
    }

    /// Encodes an allocation. Returns the length of the record in bytes. Ticks before those of the
    /// last record count as equal to them.
    #[inline]
    pub fn allocated(&mut self, out: &mut [u8; LONGEST], ticks: u64, block: &Block) -> usize {
        let context = &mut self.0;
        let ticks = ticks.max(context.ticks);
        let clock = ticks - context.ticks;
        let away = distance(context, block.address);
        let slot = Context::slot_of(block.site);
        let known = *context.slot(slot);
        let (site, site_bytes) = match known.site == block.site {
            // Without a branch, because the next site is hard to predict.
            true => (u64::from(slot), u32::from(slot != context.last)),
            false if block.site < 1 << 24 => (u64::from(block.site), 3),
            false => (u64::from(block.site), 4),
        };
        let (size_code, size_bytes) = size(&known, block.requested);
        let (more, usable_code, more_bytes) = usable(&known, block);
        let (clock_bytes, away_bytes) = (bytes_of(clock), bytes_of(away));
        let all = 2 + clock_bytes + away_bytes + site_bytes + size_bytes + more_bytes;
        let fits = clock_bytes <= 3 && away_bytes <= 4 && size_bytes <= 4 && more_bytes <= 4;
        context.ticks = ticks;
        context.address = block.address;
        context.note(slot, block);
        if !fits || all > 16 || !block.address.is_multiple_of(8) || block.remapped {
            return whole(out, other::ALLOCATED, ticks, block);
        }
        let site_code = site_bytes.saturating_sub(u32::from(site_bytes > 1));
        let first =
            u32::from(ALLOCATED) | (clock_bytes - 1) << 2 | (away_bytes - 1) << 4 | site_code << 6;
        let second = size_code | usable_code << 2 | u32::from(block.reallocated) << 4;
        let mut at = 0;
        put(out, &mut at, u64::from(first | second << 8), 2);
        put(out, &mut at, clock, clock_bytes);
        put(out, &mut at, away, away_bytes);
        put(out, &mut at, site, site_bytes);
        put(out, &mut at, block.requested, size_bytes);
        put(out, &mut at, more, more_bytes);
        at
    }

    /// Encodes a free.
    #[inline]
    pub fn freed(&mut self, out: &mut [u8; LONGEST], ticks: u64, address: u64) -> usize {
        self.ended(out, ticks, address, [FREED, other::FREED])
    }

    /// Encodes the start of a reallocation.
    #[inline]
    pub fn moving(&mut self, out: &mut [u8; LONGEST], ticks: u64, address: u64) -> usize {
        self.ended(out, ticks, address, [MOVING, other::MOVING])
    }

    /// Packs an end that holds the site and the usable size of its block.
    fn ended_known(
        &mut self,
        out: &mut [u8; LONGEST],
        ticks: u64,
        (address, site, usable, moving): (u64, u32, u64, bool),
    ) -> usize {
        let context = &mut self.0;
        let ticks = ticks.max(context.ticks);
        let clock = ticks - context.ticks;
        let away = distance(context, address);
        let (clock_bytes, away_bytes) = (bytes_of(clock), bytes_of(away));
        (context.ticks, context.address) = (ticks, address);
        let slot = Context::slot_of(site);
        let known = *context.slot(slot);
        let is_short = clock_bytes <= 3 && away_bytes <= 4 && address.is_multiple_of(8);
        if !is_short || usable >> 32 != 0 {
            return fields(out, other::ENDED, [ticks, address, usable], [site, moving.into()]);
        }
        let is_known = known.site == site && known.usable == usable;
        let code = if is_known { end::SLOT } else { end::WHOLE };
        let kind = if moving { MOVING } else { FREED };
        let first = u32::from(kind) | (clock_bytes - 1) << 2 | (away_bytes - 1) << 4;
        let mut at = 0;
        put(out, &mut at, u64::from(first | u32::from(code) << 6), 1);
        put(out, &mut at, clock, clock_bytes);
        put(out, &mut at, away, away_bytes);
        if is_known {
            put(out, &mut at, slot.into(), 1);
        } else {
            put(out, &mut at, site.into(), 4);
            put(out, &mut at, usable, 4);
        }
        at
    }

    #[inline(always)]
    fn ended(
        &mut self,
        out: &mut [u8; LONGEST],
        ticks: u64,
        address: u64,
        [kind, whole]: [u8; 2],
    ) -> usize {
        let context = &mut self.0;
        let ticks = ticks.max(context.ticks);
        let clock = ticks - context.ticks;
        let away = distance(context, address);
        let (clock_bytes, away_bytes) = (bytes_of(clock), bytes_of(away));
        (context.ticks, context.address) = (ticks, address);
        if clock_bytes > 3 || away_bytes > 4 || !address.is_multiple_of(8) {
            return fields(out, whole, [ticks, address], []);
        }
        let first =
            u64::from(kind) | u64::from(clock_bytes - 1) << 2 | u64::from(away_bytes - 1) << 4;
        let bits = first | clock << 8 | away << (8 + 8 * clock_bytes);
        if let Some(room) = out.first_chunk_mut::<8>() {
            *room = bits.to_le_bytes();
        }
        (1 + clock_bytes + away_bytes) as usize
    }

    /// Encodes any record; frequent kinds have their own functions.
    pub fn record(&mut self, out: &mut [u8; LONGEST], ticks: u64, record: &Record) -> usize {
        let now = ticks.max(self.0.ticks);
        match *record {
            Record::Allocated(ref block) => return self.allocated(out, ticks, block),
            Record::Freed { address } => return self.freed(out, ticks, address),
            Record::Moving { address } => return self.moving(out, ticks, address),
            Record::Ended { address, site, usable, moving } => {
                return self.ended_known(out, ticks, (address, site, usable, moving));
            }
            Record::Scope(id) => return self.scope(out, now, id),
            Record::Thread(id) => return fields(out, other::THREAD, [], [id]),
            Record::Node(id) => return fields(out, other::NODE, [], [id]),
            Record::Element(bytes) => return fields(out, other::ELEMENT, [], [bytes]),
            _ => self.0.ticks = now,
        }
        match *record {
            Record::StillThere => fields(out, other::STILL_THERE, [now], []),
            Record::Released => fields(out, other::RELEASED, [now], []),
            Record::Failed { site } => fields(out, other::FAILED, [now], [site]),
            Record::Relabelled(ref block) => whole(out, other::RELABELLED, now, block),
            Record::Unlabelled { address, site } => {
                fields(out, other::UNLABELLED, [now, address], [site])
            }
            Record::Opened(ref block) => whole(out, other::OPENED, now, block),
            Record::Closed { address, site } => fields(out, other::CLOSED, [now, address], [site]),
            Record::Mark { number } => fields(out, other::MARK, [now], [number]),
            Record::Labelled { uid, shape } => fields(out, other::LABELLED, [now, uid], [shape]),
            _ => 0,
        }
    }

    fn scope(&mut self, out: &mut [u8; LONGEST], now: u64, id: u32) -> usize {
        let later = now - self.0.ticks;
        self.0.ticks = now;
        match u32::try_from(later) {
            Ok(0) => fields(out, other::SCOPE, [], [id]),
            Ok(later) => fields(out, other::SCOPE_LATER, [], [id, later]),
            Err(_) => fields(out, other::SCOPE_AT, [now], [id]),
        }
    }
}

/// Returns the distance of an address from the previous one, in units of 8 bytes.
fn distance(context: &Context, address: u64) -> u64 {
    zigzag((address >> 3).wrapping_sub(context.address >> 3).cast_signed())
}

/// Returns the code of a requested size and its number of bytes, which exceeds four if it does not
/// fit.
#[inline(always)]
fn size(known: &Slot, requested: u64) -> (u32, u32) {
    // Without branches, because sizes are hard to predict.
    let new = u32::from(requested != known.requested);
    let needed = bytes_of(requested);
    let code = needed.min(3);
    let bytes = needed.max(code + u32::from(code == 3));
    (code * new, bytes * new)
}

/// Returns the stored value of a usable size, its code, and its number of bytes.
fn usable(known: &Slot, block: &Block) -> (u64, u32, u32) {
    let more = block.usable.wrapping_sub(block.requested);
    match more {
        _ if block.usable == usual_size(block.requested) => (0, 0, 0),
        _ if block.usable == known.usable => (0, 1, 0),
        0..0x100 => (more, 2, 1),
        0x100..0x1_0000_0000 => (more, 3, 4),
        _ => (0, 3, 8),
    }
}

/// Encodes a block with whole fields.
#[cold]
fn whole(out: &mut [u8; LONGEST], what: u8, ticks: u64, block: &Block) -> usize {
    let Block { address, site, requested, usable, reallocated, remapped } = *block;
    let flags = u32::from(reallocated) | u32::from(remapped) << 1;
    fields(out, what, [ticks, address, requested, usable], [site, flags])
}

/// Encodes a record with whole fields: 8-byte words, then 4-byte half words.
#[cold]
fn fields<const N: usize, const M: usize>(
    out: &mut [u8; LONGEST],
    what: u8,
    words: [u64; N],
    halves: [u32; M],
) -> usize {
    let (first, rest) = out.split_at_mut(1);
    first.fill(OTHER | what << 2);
    let (all, _) = rest.as_chunks_mut::<4>();
    let of_words = words.into_iter().flat_map(|word| [word as u32, (word >> 32) as u32]);
    for (room, half) in all.iter_mut().zip(of_words.chain(halves)) {
        *room = half.to_le_bytes();
    }
    1 + 8 * N + 4 * M
}
