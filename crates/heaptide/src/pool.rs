//! Pools: what a program's own allocator does with the memory it holds.

use crate::interface;

/// A pool: an allocator that gives out parts of chunks, which it has from elsewhere.
///
/// Its blocks are counted like the allocator's; its chunks are what they are taken from, so that no
/// byte counts twice and what the pool holds idle can be seen. Two pools of one name are one.
///
/// ```
/// let arena = vec![0u8; 4096];
/// let pool = heaptide::Pool::new("arena");
/// pool.add(arena.as_ptr(), arena.len());
/// let block = &raw const arena[64];
/// pool.allocated(block, 100, 128);
/// if let Some(found) = heaptide::resolve(block) {
///     assert_eq!((found.kind, found.bytes), (heaptide::Kind::Pool, 128));
/// }
/// pool.freed(block);
/// pool.remove(arena.as_ptr());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool(u32);

impl Pool {
    /// The pool of this name.
    pub fn new(name: &str) -> Pool {
        Pool(interface::pool(name))
    }

    /// From now on the pool gives out parts of this memory: a heap block, a mapping, a static.
    /// Whether there was room to note it.
    pub fn add(self, chunk: *const u8, bytes: usize) -> bool {
        interface::pool_add(self.0, chunk, bytes)
    }

    /// The pool no longer holds this chunk; whether it did. Freeing a heap block says so too.
    pub fn remove(self, chunk: *const u8) -> bool {
        interface::pool_remove(chunk)
    }

    /// The pool gave out a block: `requested` bytes were asked for, it has `usable`.
    pub fn allocated(self, block: *const u8, requested: usize, usable: usize) -> bool {
        interface::pool_allocated(self.0, block, requested, usable)
    }

    /// The pool took a block back; call it before the memory can be given out again.
    pub fn freed(self, block: *const u8) -> bool {
        interface::pool_freed(block)
    }

    /// A block of the pool became another, or another size at the same place.
    pub fn reallocated(
        self,
        old: *const u8,
        block: *const u8,
        requested: usize,
        usable: usize,
    ) -> bool {
        interface::pool_reallocated(old, block, requested, usable)
    }
}
