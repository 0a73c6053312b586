//! A Rust program: its allocator calls malloc, realloc and posix_memalign with known sizes.
//
// expect function:collections::grows allocations=4 reallocations=3 frees=4 requested_bytes=3840
// expect function:collections::boxes allocations=100 frees=90 requested_bytes=6400 live_blocks=10
// expect function:collections::aligned allocations=1 frees=1 requested_bytes=4096
use std::alloc::{Layout, alloc, dealloc};
use std::hint::black_box;

#[inline(never)]
fn grows() -> usize {
    let mut v: Vec<u64> = Vec::with_capacity(32);
    for i in 0..256 {
        v.push(black_box(i));
    }
    black_box(&v).len()
}

#[inline(never)]
fn boxes(kept: &mut [Option<Box<[u8; 64]>>; 10]) {
    for i in 0..100 {
        let b = black_box(Box::new([i as u8; 64]));
        if i < 10 {
            kept[i] = Some(b);
        }
    }
}

#[inline(never)]
fn aligned() {
    let layout = Layout::from_size_align(4096, 512).unwrap();
    // SAFETY: the layout has a size; the block is freed with the same layout.
    unsafe {
        let p = black_box(alloc(layout));
        assert_eq!(p as usize % 512, 0);
        dealloc(p, layout);
    }
}

fn main() {
    let mut kept = [const { None }; 10];
    assert_eq!(grows(), 256);
    boxes(&mut kept);
    aligned();
    std::mem::forget(kept);
    std::process::exit(17);
}
