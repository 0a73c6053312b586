//! The library of family.c, with an allocator whose functions have their own names and are not
//! exported, like jemalloc in libraries written in Rust.
#include "guest.h"
#include <sys/mman.h>

// Blocks are taken from the end of a mapping and never reused.
static char *memory;
static size_t used;
enum { MEMORY = 1 << 20 };

static NOINLINE void *take(size_t alignment, size_t size)
{
    if (!memory)
        memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    used = (used + alignment - 1) & ~(alignment - 1);
    CHECK(memory != MAP_FAILED && used + size <= MEMORY);
    used += size;
    return memory + used - size;
}

#define OWN __attribute__((visibility("hidden"))) NOINLINE
OWN void *_rjem_malloc(size_t size) { return keep(take(16, size)); }
OWN void *_rjem_calloc(size_t count, size_t size)
{
    return memset(_rjem_malloc(count * size), 0, count * size);
}
OWN void *_rjem_mallocx(size_t size, int flags)
{
    return keep(take((size_t)1 << (flags & 63), size));
}
OWN void *_rjem_rallocx(void *block, size_t size, int flags)
{
    void *moved = _rjem_mallocx(size, flags);
    return memmove(moved, block, 100); // the tests keep only larger blocks
}
OWN void _rjem_sdallocx(void *block, size_t size, int flags)
{
    CHECK(block && size && flags >= 0);
    *(volatile char *)block = 0;
}

static NOINLINE void in_library(void)
{
    for (int i = 0; i < 100; i++) {
        void *block = keep(_rjem_malloc(1000)); // 1024
        block = keep(_rjem_rallocx(block, 3000, 4)); // 3072
        _rjem_sdallocx(block, 3000, 4);
    }
    for (int i = 0; i < 7; i++)
        CHECK(*(char *)keep(_rjem_calloc(10, 10)) == 0); // 112 each, stay live
    for (int i = 0; i < 3; i++)
        CHECK((uintptr_t)keep(_rjem_mallocx(200, 8)) % 256 == 0); // 256 each, stay live
}
__attribute__((constructor)) static void at_load(void)
{
    for (int i = 0; i < 5; i++)
        keep(_rjem_malloc(500)); // 512 each, stay live
}
void work(void (*back)(void))
{
    in_library();
    back();
    stay();
}
