//! The recorder around an allocator that does not use malloc: a static buffer from which blocks are
//! cut one after the other without gaps.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const BYTES: usize = 64 << 20;

#[repr(align(4096))]
struct Arena {
    memory: UnsafeCell<[u8; BYTES]>,
    used: AtomicUsize,
}

// SAFETY: each byte of the memory is handed out once.
unsafe impl Sync for Arena {}

// SAFETY: blocks are aligned, within the memory, and do not overlap.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let cut = |used: usize| {
            let start = used.next_multiple_of(layout.align());
            start.checked_add(layout.size()).filter(|end| *end <= BYTES)
        };
        match self.used.fetch_update(Relaxed, Relaxed, cut) {
            // SAFETY: within the memory, as `cut` ensures.
            Ok(used) => unsafe {
                self.memory.get().cast::<u8>().add(used.next_multiple_of(layout.align()))
            },
            Err(_) => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: heaptide::Recorder<Arena> = heaptide::Recorder::new(Arena {
    memory: UnsafeCell::new([0; BYTES]),
    used: AtomicUsize::new(0),
});

fn main() {
    guest::main();
}
