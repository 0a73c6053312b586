//! `heaptide advise`: vectors that are filled element by element; with the argument `alike` their
//! size is reserved.
//
//   fill  3,000 vectors of 20,000 numbers of 4 bytes: a block of 16 bytes, and 13 reallocations
use std::hint::black_box;

const VECTORS: u32 = 3000;
const NUMBERS: u32 = 20_000;

#[inline(never)]
fn fill(reserved: usize) -> Vec<u32> {
    let mut numbers = Vec::with_capacity(reserved);
    for number in 0..NUMBERS {
        numbers.push(black_box(number));
    }
    numbers
}

fn main() {
    let is_alike = std::env::args().nth(1).is_some_and(|word| word == "alike");
    let reserved = if is_alike { NUMBERS as usize } else { 0 };
    for _ in 0..VECTORS {
        black_box(fill(black_box(reserved)));
    }
}
