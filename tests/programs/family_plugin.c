//! The library of family.c, with an allocator whose functions have their own names and are not
//! exported, like jemalloc in libraries written in Rust. Libraries of prefixed.c have the same with
//! other names, and with the functions that prove that it is a jemalloc.
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

#ifndef PREFIX
#define PREFIX(name) _rjem_##name
#endif
#ifdef EXPORTED
#define OWN NOINLINE
#define LOCAL NOINLINE // its name is that of an exported function
#else
#define LOCAL static NOINLINE
#define OWN __attribute__((visibility("hidden"))) NOINLINE
#endif
OWN void *PREFIX(malloc)(size_t size) { return keep(take(16, size)); }
OWN void *PREFIX(calloc)(size_t count, size_t size)
{
    return memset(PREFIX(malloc)(count * size), 0, count * size);
}
OWN void *PREFIX(mallocx)(size_t size, int flags)
{
    return keep(take((size_t)1 << (flags & 63), size));
}
OWN void *PREFIX(rallocx)(void *block, size_t size, int flags)
{
    void *moved = PREFIX(mallocx)(size, flags);
    return memmove(moved, block, 100); // the tests keep only larger blocks
}
OWN void PREFIX(sdallocx)(void *block, size_t size, int flags)
{
    CHECK(block && size && flags >= 0);
    *(volatile char *)block = 0;
}
OWN size_t PREFIX(nallocx)(size_t size, int flags) { return flags < 0 ? 0 : size; }
OWN int PREFIX(mallctl)(const char *name, void *old, size_t *length, void *new, size_t bytes)
{
    return name && !old && !length && !new && !bytes ? 0 : ENOENT;
}

LOCAL void in_library(void)
{
    for (int i = 0; i < 100; i++) {
        void *block = keep(PREFIX(malloc)(1000)); // 1024
        block = keep(PREFIX(rallocx)(block, 3000, 4)); // 3072
        PREFIX(sdallocx)(block, 3000, 4);
    }
    for (int i = 0; i < 7; i++)
        CHECK(*(char *)keep(PREFIX(calloc)(10, 10)) == 0); // 112 each, stay live
    for (int i = 0; i < 3; i++)
        CHECK((uintptr_t)keep(PREFIX(mallocx)(200, 8)) % 256 == 0); // 256 each, stay live
}
__attribute__((constructor)) static void at_load(void)
{
    for (int i = 0; i < 5; i++)
        keep(PREFIX(malloc)(500)); // 512 each, stay live
}
void work(void (*back)(void))
{
    in_library();
    back();
    stay();
}
