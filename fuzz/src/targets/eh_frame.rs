//! Any bytes as `.eh_frame_hdr` and `.eh_frame`: the result is a step or none, and each step can be
//! packed.
//!
//! An input consists of the header's length in two bytes, the header, and the frames.

use heaptide_unwind::rule::{Rule, Step};
use heaptide_unwind::table::{Sections, frames_address, step_at};

/// The load address of the header, and of the frames if the header does not have their address.
const HEADER: u64 = 0x10_0000;
const FRAMES: u64 = 0x20_0000;
/// Offsets into each function, in bytes.
const OFFSETS: [u64; 4] = [0, 1, 7, 255];

/// Evaluates the tables at some addresses, including those in the header.
pub fn eh_frame(input: &[u8]) -> bool {
    let Some((&length, rest)) = input.split_first_chunk::<2>() else {
        return false;
    };
    let (header, frames) = rest.split_at(rest.len().min(u16::from_le_bytes(length).into()));
    let frames_address = frames_address(header, HEADER).unwrap_or(FRAMES);
    let sections = Sections { header, header_address: HEADER, frames, frames_address };
    let absolute = header.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word));
    let relative = header.as_chunks().0.iter().map(|&word| {
        HEADER.wrapping_add_signed(i32::from_le_bytes(word).into()) //
    });
    let inside =
        absolute.chain(relative).flat_map(|start| OFFSETS.map(|offset| start.wrapping_add(offset)));
    let steps = inside.chain([0, u64::MAX]).filter_map(|pc| step_at(&sections, pc));
    let stored = steps.map(|step| {
        let stored = Rule::new(step, 1).step();
        assert!(stored == step || stored == Step::Unknown, "{step:?} is stored as {stored:?}");
        stored
    });
    stored.filter(|&step| step != Step::Unknown).count() > 0
}
