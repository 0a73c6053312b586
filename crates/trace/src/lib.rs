//! Every event of a program in a few bytes: the packed form of traces, for the recorder that writes
//! it and for readers.
//!
//! A record is packed against what came before it in the same extent: clock and address as
//! differences, a site as its place among those seen lately, a size as the one that site had last.
//!
//! ```text
//!            bits 0 1   2 3    4 5      6 7
//! byte 0     kind       clock  address  site      kind 0 allocated, 1 freed, 2 moving, 3 other
//! byte 1     size       usable realloc  0 0 0     of kind 0 only
//! then       clock, address, site, requested, usable: as many bytes as these say
//! ```
//!
//! - clock: ticks since the last record, 1 to 3 bytes (0 to 2).
//! - address: zigzag of the difference to the last address, in 8 bytes, 1 to 4 bytes (0 to 3).
//! - site: 0 that of the last allocation, 1 its slot (1 byte), 2 its id (3 bytes), 3 its id (4).
//! - size: 0 as last from the slot, else 1, 2 or 4 bytes.
//! - site of kinds 1 and 2: 0 not stored, 1 the slot of the block's site, which had its usable size
//!   last (1 byte), 2 its id and the usable size (4 bytes each).
//! - usable: 0 what glibc gives for the size, 1 as last from the slot, else 1 or 4 bytes more than
//!   requested.
//!
//! A record of these kinds has 16 bytes at most. What does not fit, and all that is rare, is of
//! kind 3: bits 2 to 7 say what, and its fields follow whole.

#![no_std]
#![forbid(unsafe_code)]

mod decode;
mod encode;
mod packing;
mod record;

pub use decode::{Decoder, Fault};
pub use encode::{Encoder, LONGEST};
pub use record::{Block, Record};
