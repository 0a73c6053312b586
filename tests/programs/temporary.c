//! Temporary blocks, freed by their thread with no allocation between, and cases that are not
//! temporary.
//
// expect function:brief allocations=1000 frees=1000 temporary=1000
// expect function:zeroed_brief allocations=10 frees=10 temporary=10
// expect function:outlived allocations=100 frees=100 temporary=0
// expect function:between allocations=100 frees=100 temporary=100
// expect function:resized allocations=10 frees=10 temporary=0
// expect function:resizes allocations=10 reallocations=10 frees=10 temporary=10
// expect function:pair_first allocations=10 frees=10 temporary=0
// expect function:pair_second allocations=10 frees=10 temporary=10
// expect function:never allocations=5 frees=0 temporary=0
#include "guest.h"

static NOINLINE void *brief(size_t n) { return keep(malloc(n)); }
static NOINLINE void *zeroed_brief(void) { return keep(calloc(3, 9)); }
static NOINLINE void *outlived(void) { return keep(malloc(80)); }
static NOINLINE void *between(void) { return keep(malloc(20)); }
static NOINLINE void *resized(void) { return keep(malloc(30)); }
static NOINLINE void *resizes(void *p) { return keep(realloc(p, 5000)); }
static NOINLINE void *pair_first(void) { return keep(malloc(48)); }
static NOINLINE void *pair_second(void) { return keep(malloc(48)); }
static NOINLINE void *never(void) { return keep(malloc(11)); }

int main(void)
{
    for (size_t i = 0; i < 1000; i++)
        free(brief(i));
    for (int i = 0; i < 10; i++)
        free(zeroed_brief());
    for (int i = 0; i < 100; i++) {
        void *p = outlived();
        free(between());  // the last allocation is the other block
        free(p);
    }
    for (int i = 0; i < 10; i++) {
        void *p = resizes(resized());  // what realloc releases is not temporary, its own block is
        free(p);
    }
    for (int i = 0; i < 10; i++) {
        void *p = pair_first(), *q = pair_second();
        free(q);
        free(p);
    }
    for (int i = 0; i < 5; i++)
        keep(never());
    say("brief\n");
    return 0;
}
