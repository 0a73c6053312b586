//! A library of inlined.c, with an allocator like jemalloc: callers that were compiled with it
//! inline the fast paths of `malloc` and `free`, which continue in `malloc_default` and
//! `free_default` if they fail.
#include "guest.h"
#include <sys/mman.h>

enum { SMALL = 4096, MEMORY = 32 << 20 };
// Blocks are taken from the end of a mapping; only the last small one is used again.
static char *memory;
static size_t used;
static void *cached;

#define EXPORTED NOINLINE
EXPORTED void *PREFIX(malloc_default)(size_t size)
{
    if (!memory)
        memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size = (size + 31) & ~(size_t)15; // its size is before each block
    CHECK(memory != MAP_FAILED && used + size <= MEMORY);
    used += size;
    size_t *start = (size_t *)(memory + used - size);
    start[1] = size - 16;
    return keep(start + 2);
}
EXPORTED size_t PREFIX(malloc_usable_size)(void *block) { return ((size_t *)block)[-1]; }
EXPORTED void PREFIX(free_default)(void *block)
{
    if (PREFIX(malloc_usable_size)(block) == SMALL)
        cached = block;
    keep(block);
}
static inline __attribute__((always_inline)) void *fast_malloc(size_t size)
{
    void *block = cached;
    if (size != SMALL || !block)
        return PREFIX(malloc_default)(size);
    cached = NULL;
    return block;
}
static inline __attribute__((always_inline)) void fast_free(void *block)
{
    if (PREFIX(malloc_usable_size)(block) == SMALL && !cached)
        cached = block;
    else
        PREFIX(free_default)(block);
}
EXPORTED void *PREFIX(malloc)(size_t size) { return fast_malloc(size); }
EXPORTED void PREFIX(free)(void *block) { fast_free(block); }
EXPORTED void *PREFIX(realloc)(void *block, size_t size)
{
    void *moved = keep(fast_malloc(size));
    memcpy(moved, block, PREFIX(malloc_usable_size)(block));
    fast_free(block);
    return moved;
}
EXPORTED void *PREFIX(mallocx)(size_t size, int flags)
{
    return flags ? NULL : fast_malloc(size);
}
EXPORTED void PREFIX(sdallocx)(void *block, size_t size, int flags)
{
    if (size && !flags)
        fast_free(block);
}
EXPORTED size_t PREFIX(nallocx)(size_t size, int flags) { return flags < 0 ? 0 : size; }
EXPORTED int PREFIX(mallctl)(const char *name, void *old, size_t *length, void *new, size_t bytes)
{
    return name && !old && !length && !new && !bytes ? 0 : ENOENT;
}

// As in DuckDB: the symbols of functions that inline the fast paths.
EXPORTED void *allocate(void *allocator, size_t size) __asm__(
    "_ZN6duckdb9Allocator15DefaultAllocateEPNS_20PrivateAllocatorDataEm");
EXPORTED void release(void *allocator, void *block, size_t size) __asm__(
    "_ZN6duckdb9Allocator11DefaultFreeEPNS_20PrivateAllocatorDataEPhm");
EXPORTED void *resize(void *allocator, void *block, size_t old, size_t size) __asm__(
    "_ZN6duckdb9Allocator17DefaultReallocateEPNS_20PrivateAllocatorDataEPhmm");
void *allocate(void *allocator, size_t size) { return allocator ? NULL : keep(fast_malloc(size)); }
void release(void *allocator, void *block, size_t size)
{
    if (size && !allocator)
        fast_free(keep(block));
}
void *resize(void *allocator, void *block, size_t old, size_t size)
{
    return allocator || !old ? NULL : keep(PREFIX(realloc)(block, size));
}

NOINLINE void in_calls(void)
{
    for (int i = 0; i < 10; i++)
        PREFIX(free)(keep(PREFIX(malloc)(SMALL)));
    keep(PREFIX(malloc)(1000)); // 1008, stays live
    stay();
}
#ifdef INLINED
NOINLINE void in_inlined(void)
{
    for (int i = 0; i < 100; i++)
        fast_free(keep(fast_malloc(SMALL)));
    for (int i = 0; i < 3; i++) {
        void *block = keep(fast_malloc(1 << 20));
        if (i < 2)
            fast_free(block);
    }
    stay();
}
#endif
NOINLINE void in_callers(void)
{
    for (int i = 0; i < 20; i++) {
        void *block = keep(allocate(NULL, SMALL));
        block = resize(NULL, block, SMALL, 3 << 17);
        release(NULL, block, 3 << 17);
    }
    keep(allocate(NULL, 1 << 20)); // stays live
    stay();
}
void work(void)
{
    in_calls();
#ifdef INLINED
    in_inlined();
#endif
    in_callers();
}
