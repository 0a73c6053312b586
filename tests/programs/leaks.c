//! Leaks by function: twenty blocks of the first, none of the second, every third block of the
//! third.
//
// expect function:leaky allocations=20 frees=0 live_blocks=20 requested_bytes=4560
// expect function:clean allocations=50 frees=50 live_blocks=0 live_bytes=0
// expect function:forgetful allocations=30 frees=20 live_blocks=10 requested_bytes=3000
// expect function:grows allocations=10 reallocations=9 frees=9 live_blocks=1
// expect function:main live_blocks=31
#include "guest.h"

static NOINLINE void *leaky(size_t n) { return keep(malloc(n)); }
static NOINLINE void *clean(void) { return keep(malloc(333)); }
static NOINLINE void *forgetful(void) { return keep(calloc(10, 10)); }
static NOINLINE void *grows(void)
{
    char *p = (char *)keep(malloc(16));
    for (size_t n = 2; n <= 10; n++)
        p = (char *)keep(realloc(p, n * 1000));
    return p;
}

int main(void)
{
    size_t leaked = 0;
    for (size_t i = 0; i < 20; i++)
        leaked += malloc_usable_size(leaky(i * 24));
    for (int i = 0; i < 50; i++)
        free(clean());
    size_t forgotten = 0;
    for (int i = 0; i < 30; i++) {
        void *p = forgetful();
        if (i % 3)
            free(p);
        else
            forgotten += malloc_usable_size(p);
    }
    size_t grown = malloc_usable_size(grows());
    say("known function:leaky live_bytes=%zu\n", leaked);
    say("known function:forgetful live_bytes=%zu\n", forgotten);
    say("known function:grows live_bytes=%zu\n", grown);
    say("known function:main live_bytes=%zu\n", leaked + forgotten + grown);
    return 0;
}
