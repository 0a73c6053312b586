//! The packed format of traces, with a few bytes per event, for the recorder that writes it and for
//! readers.
//!
//! A record is encoded relative to the earlier records of the same extent: clock and address as
//! differences, a site as its slot among recently used sites, a size relative to the last one of
//! that site.
//!
//! ```text
//!            bits 0 1   2 3    4 5      6 7
//! byte 0     kind       clock  address  site      kind 0 allocated, 1 freed, 2 moving, 3 other
//! byte 1     size       usable realloc  0 0 0     of kind 0 only
//! then       clock, address, site, requested, usable, with the lengths encoded above
//! ```
//!
//! - clock: ticks since the last record, 1 to 3 bytes (0 to 2).
//! - address: zigzag of the difference to the last address, in 8 bytes, 1 to 4 bytes (0 to 3).
//! - site: 0 that of the last allocation, 1 its slot (1 byte), 2 its id (3 bytes), 3 its id (4
//!   bytes).
//! - size: 0 the slot's last size, else 1, 2 or 4 bytes.
//! - site of kinds 1 and 2: 0 not stored, 1 the slot of the block's site, whose last usable size is
//!   that of the block (1 byte), 2 its id and the usable size (4 bytes each).
//! - usable: 0 glibc's usable size for the request, 1 the slot's last usable size, else the excess
//!   over the requested size in 1 or 4 bytes.
//!
//! A record of these kinds has at most 16 bytes. Values that do not fit, and rare events, use kind
//! 3: bits 2 to 7 hold the event, and its fields follow unpacked.

#![no_std]
#![forbid(unsafe_code)]

mod decode;
mod encode;
mod packing;
mod record;

pub use decode::{Decoder, Fault};
pub use encode::{Encoder, LONGEST};
pub use record::{Block, Record};
