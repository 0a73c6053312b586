//! Pools: allocators of the program that hand out parts of larger chunks.

use crate::interface;

/// A pool: an allocator that hands out parts of chunks that it gets elsewhere.
///
/// Its blocks are counted like the allocator's, and are subtracted from its chunks. So no byte is
/// counted twice, and the idle space of the pool is visible. Two pools with one name are the same
/// pool.
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
    /// Returns the pool of this name.
    pub fn new(name: &str) -> Pool {
        Pool(interface::pool(name))
    }

    /// Adds memory that the pool hands out in parts: a heap block, a mapping, a static. Returns
    /// whether there was space to store it.
    pub fn add(self, chunk: *const u8, bytes: usize) -> bool {
        interface::pool_add(self.0, chunk, bytes)
    }

    /// Removes a chunk from the pool. Returns whether the pool had it. Freeing a heap block implies
    /// it.
    pub fn remove(self, chunk: *const u8) -> bool {
        interface::pool_remove(chunk)
    }

    /// Reports that the pool handed out a block of `usable` bytes for a request of `requested`
    /// bytes.
    pub fn allocated(self, block: *const u8, requested: usize, usable: usize) -> bool {
        interface::pool_allocated(self.0, block, requested, usable)
    }

    /// Reports that a block returned to the pool. Call it before the memory can be handed out
    /// again.
    pub fn freed(self, block: *const u8) -> bool {
        interface::pool_freed(block)
    }

    /// Reports that a block of the pool changed its address, or its size in place.
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
