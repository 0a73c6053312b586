//! Random mutations of inputs.

use heaptide_fixtures::Random;

/// The most mutations of one input.
const CHANGES: u64 = 8;
/// The most bytes that one mutation copies or removes.
const PART: usize = 64;
/// The most bytes of an input.
const LENGTH: usize = 1 << 16;

/// Returns a mutation of one of the inputs; it may include parts of the others.
pub fn mutated(random: &mut Random, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = inputs[random.index(inputs.len())].clone();
    for _ in 0..random.geometric(3, CHANGES) {
        let other = &inputs[random.index(inputs.len())];
        change(random, &mut bytes, other);
    }
    bytes.truncate(LENGTH);
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = random.index(bytes.len());
    match random.below(6) {
        0 => insert(bytes, at, &random.bytes(8)),
        1 => insert(bytes, at, part(random, other)),
        2 => {
            let same = part(random, bytes).to_vec();
            insert(bytes, at, &same);
        }
        3 => drop(bytes.drain(at..(at + random.index(PART)).min(bytes.len()))),
        4 => {
            let extreme = random.one(&[0, 1, 0x7f, 0xff, 0x7fff, 0xffff_ffff, u64::MAX]);
            let width = random.one(&[1, 2, 4, 8]).min(bytes.len() - at);
            bytes[at..at + width].copy_from_slice(&extreme.to_le_bytes()[..width]);
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    bytes.splice(at..at, new.iter().copied());
}

fn part<'a>(random: &mut Random, bytes: &'a [u8]) -> &'a [u8] {
    let at = random.index(bytes.len());
    &bytes[at..(at + random.index(PART)).min(bytes.len())]
}
