//! An executable with its own allocator, and a library whose constructor allocates from it and
//! starts a thread that does, too: the allocator is intercepted before that.
//
// expect recording lost_events=0
// expect function:in_constructor allocations=7 frees=6 requested_bytes=700 live_bytes=128
// expect function:beside allocations=1000 frees=1000 requested_bytes=16000
// plugin: early_plugin.so early_plugin.c
// build: -rdynamic -pthread %/early_plugin.so -Wl,-rpath,%
#include "guest.h"

static char memory[1 << 20] __attribute__((aligned(64)));
static size_t used;

static void *take(size_t size)
{
    size = (size + 31) & ~(size_t)31;
    size_t at = __atomic_fetch_add(&used, size + 16, __ATOMIC_RELAXED);
    CHECK(at + size + 16 <= sizeof memory);
    *(size_t *)(memory + at + 8) = size;
    return memory + at + 16;
}
NOINLINE void *malloc(size_t size) { return keep(take(size)); }
NOINLINE void *calloc(size_t count, size_t size) { return keep(take(count * size)); }
NOINLINE void free(void *block) { stay(); (void)block; }
NOINLINE size_t malloc_usable_size(void *block) { return ((size_t *)block)[-1]; }
NOINLINE void *realloc(void *block, size_t size)
{
    void *moved = keep(take(size));
    if (block) {
        size_t had = malloc_usable_size(block);
        memcpy(moved, block, had < size ? had : size);
    }
    return moved;
}

int done(void);

int main(void)
{
    CHECK(done());
    say("done\n");
    return 0;
}
