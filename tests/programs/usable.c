//! Programs that use all bytes that malloc_usable_size reports: they own all of them.
//
// expect function:whole allocations=2000 frees=2000
#include "guest.h"

static NOINLINE void *whole(size_t n) { return keep(malloc(n)); }

int main(void)
{
    size_t sum = 0;
    CHECK(malloc_usable_size(NULL) == 0);
    for (size_t n = 0; n < 2000; n++) {
        char *p = (char *)whole(n * 13);
        size_t usable = malloc_usable_size(p);
        CHECK(usable >= n * 13);
        memset(p, 0x5a, usable);
        for (size_t i = 0; i < usable; i++)
            CHECK(p[i] == 0x5a);
        sum += usable;
        free(p);
    }
    say("known function:whole usable_bytes=%zu freed_bytes=%zu live_bytes=0\n", sum, sum);
    return 0;
}
