//! The libraries of deepbind.c: with the C library's malloc, and with one of its own.
#include "guest.h"

#ifdef OWN_MALLOC
#include <sys/mman.h>

// Blocks are taken from the end of a mapping and never reused. Their size is in front of them.
static char *memory;
static size_t used;
enum { MEMORY = 1 << 21, HEAD = 16 };

NOINLINE void *malloc(size_t size)
{
    if (!memory)
        memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t all = (size + HEAD + 15) & ~(size_t)15;
    CHECK(memory != MAP_FAILED && used + all <= MEMORY);
    char *block = memory + used + HEAD;
    used += all;
    ((size_t *)block)[-1] = size;
    return keep(block);
}
NOINLINE void free(void *block)
{
    CHECK(!block || ((size_t *)block)[-1] > 0);
    stay();
}
NOINLINE void *calloc(size_t count, size_t size)
{
    return memset(keep(malloc(count * size)), 0, count * size);
}
NOINLINE void *realloc(void *old, size_t size)
{
    void *block = keep(malloc(size));
    if (old)
        memcpy(block, old, ((size_t *)old)[-1]);
    return block;
}
#endif

__attribute__((constructor)) static void at_load(void)
{
    for (int i = 0; i < 5; i++)
        keep(malloc(500)); // stay live
}
static NOINLINE void in_library(void)
{
    for (int i = 0; i < 50; i++) {
        void *block = keep(malloc(500));
        block = keep(realloc(block, 1500));
        free(block);
        free(keep(calloc(10, 100)));
        keep(malloc(1000));
        free(keep(malloc(1000)));
    }
    stay();
}
void work(void (*back)(void))
{
    in_library();
    back();
    stay();
}
