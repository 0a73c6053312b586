//! The peak with realloc: a block that moves counts twice briefly, one that grows in place counts
//! only the difference.
#include "guest.h"

static size_t live, peak, moved, in_place;

static void now(size_t bytes)
{
    if (bytes > peak)
        peak = bytes;
}
static NOINLINE void *start(size_t n) { return keep(malloc(n)); }
static NOINLINE void *resize(void *p, size_t n) { return keep(realloc(p, n)); }

int main(void)
{
    void *p = start(64);
    live = malloc_usable_size(p);
    now(live);
    for (size_t size = 100; size < 90000; size += size / 3) {
        size_t before = malloc_usable_size(p);
        void *old = p;
        void *wall = size % 2 ? start(40) : NULL;  // sometimes a block in the way
        live += wall ? malloc_usable_size(wall) : 0;
        now(live);
        p = resize(p, size);
        size_t after = malloc_usable_size(p);
        now(p == old ? live - before + after : live + after);
        live = live - before + after;
        p == old ? in_place++ : moved++;
        now(live);
    }
    CHECK(moved > 0);
    say("known function:main at_peak_bytes=%zu live_bytes=%zu\n", peak, live);
    size_t calls = moved + in_place;
    say("known leaf:resize reallocations=%zu allocations=%zu\n", calls, calls);
    return 0;
}
