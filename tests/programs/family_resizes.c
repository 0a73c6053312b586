//! Functions that resize blocks, of allocators with their own function names; some take more than
//! three arguments. Sizes stay exact.
//
// snmalloc as called from Rust, jemalloc's xallocx, mimalloc's heaps and mi_expand, rpmalloc.
//
// expect recording lost_events=0
// expect function:snmalloc allocations=300 reallocations=100 frees=200 live_blocks=100
// expect function:snmalloc requested_bytes=90000 live_bytes=50000
// expect function:xallocated reallocations=10 live_blocks=10 live_bytes=10240
// expect function:expanded allocations=40 reallocations=30 live_blocks=10 live_bytes=9000
// expect function:realigned allocations=20 reallocations=10 frees=10 live_bytes=30000
#include "guest.h"

static char memory[8 << 20] __attribute__((aligned(4096)));
static size_t used;

static NOINLINE void *take(size_t size)
{
    size_t at = (used + 4095) & ~(size_t)4095;
    CHECK(at + size <= sizeof memory);
    used = at + size;
    return memory + at;
}

// snmalloc, with the functions of its crate.
NOINLINE void *sn_rust_alloc(size_t alignment, size_t size)
{
    return keep(alignment) ? take(size) : 0;
}
NOINLINE void sn_rust_dealloc(void *block, size_t alignment, size_t size)
{
    CHECK(block && alignment == 8 && size);
}
NOINLINE void *sn_rust_realloc(void *old, size_t alignment, size_t had, size_t size)
{
    CHECK(alignment == 8 && had == 100 && size == 500);
    return memcpy(take(size), old, had);
}

// jemalloc
NOINLINE void *je_malloc(size_t size) { return keep(take(keep(size))); }
NOINLINE void je_free(void *block) { CHECK(keep(block)); }
NOINLINE size_t je_xallocx(void *block, size_t size, size_t extra, int flags)
{
    CHECK(block && extra == 24 && flags == 64);
    return size + extra; // usable size of the block
}
NOINLINE size_t je_malloc_usable_size(const void *block)
{
    return block ? 512 : 0; // the usable size of every block of je_malloc here
}

// mimalloc
NOINLINE void *mi_malloc(size_t size) { return keep(take(keep(size))); }
NOINLINE void mi_free(void *block) { CHECK(keep(block)); }
NOINLINE void *mi_expand(void *block, size_t size) { return keep(size) == 200 ? block : NULL; }
NOINLINE void *mi_heap_realloc(void *heap, void *old, size_t size)
{
    CHECK(heap == memory);
    return memcpy(take(size), old, 200);
}
NOINLINE void *mi_heap_recalloc(void *heap, void *old, size_t count, size_t size)
{
    CHECK(heap == memory);
    return memcpy(take(count * size), old, 600);
}

// rpmalloc
NOINLINE void *rpaligned_alloc(size_t alignment, size_t size)
{
    return keep(alignment) ? take(size) : 0;
}
NOINLINE void rpfree(void *block) { CHECK(keep(block)); }
NOINLINE void *rpaligned_realloc(void *old, size_t alignment, size_t size, size_t had,
                                 unsigned flags)
{
    CHECK(alignment == 64 && had == 1000 && flags == 7);
    return memcpy(take(size), old, had);
}

static NOINLINE void snmalloc(void)
{
    for (int i = 0; i < 100; i++) {
        sn_rust_dealloc(keep(sn_rust_alloc(8, 300)), 8, 300);
        keep(sn_rust_realloc(keep(sn_rust_alloc(8, 100)), 8, 100, 500));
    }
    stay();
}
static NOINLINE void xallocated(void)
{
    for (int i = 0; i < 10; i++) {
        void *block = keep(je_malloc(500));
        CHECK(je_xallocx(block, 1000, 24, 64) == 1024);
        CHECK(je_xallocx(block, 1000, 24, 64) == 1024); // unchanged: no event
    }
    stay();
}
static NOINLINE void expanded(void)
{
    for (int i = 0; i < 10; i++) {
        void *block = keep(mi_malloc(100));
        CHECK(mi_expand(block, 1000) == NULL); // unchanged
        block = keep(mi_heap_realloc(memory, keep(mi_expand(block, 200)), 600));
        keep(mi_heap_recalloc(memory, block, 9, 100));
    }
    stay();
}
static NOINLINE void realigned(void)
{
    for (int i = 0; i < 10; i++) {
        void *block = keep(rpaligned_alloc(64, 1000));
        keep(rpaligned_realloc(block, 64, 3000, 1000, 7));
    }
    stay();
}

int main(void)
{
    snmalloc();
    xallocated();
    expanded();
    realigned();
    say("done\n");
    return 0;
}
