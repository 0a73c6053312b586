//! A library of prefixed.c with functions that are named like those of an allocator, and call that
//! of the C library.
#include "guest.h"

#define OWN __attribute__((visibility("hidden"))) NOINLINE
OWN void *xx_malloc(size_t size) { return keep(malloc(size)); }
OWN void *xx_mallocx(size_t size, int flags)
{
    CHECK(flags == 0);
    return keep(malloc(size));
}
OWN void xx_free(void *block)
{
    free(block);
    stay();
}
OWN size_t xx_malloc_usable_size(void *block) { return malloc_usable_size(block); }

void work(void (*back)(void))
{
    for (int i = 0; i < 100; i++) {
        char *block = keep(xx_malloc(100));
        CHECK(xx_malloc_usable_size(block) >= 100);
        xx_free(block);
    }
    for (int i = 0; i < 50; i++)
        xx_free(keep(xx_mallocx(100, 0)));
    back();
    stay();
}
