//! Large blocks of glibc are mappings of their own, which realloc moves by mremap: the old and the
//! new block never exist at once, in contrast to one that is copied.
//
// expect leaf:resize allocations=3 reallocations=3 requested_bytes=209764352
// expect leaf:refused allocations=0 failed=1
// expect leaf:copied allocations=1 reallocations=1 requested_bytes=100663296
#include "guest.h"
#include <sys/mman.h>

static volatile size_t mib = 1 << 20;

static NOINLINE char *start(size_t n) { return keep(malloc(n)); }
static NOINLINE char *aligned(size_t n) { return keep(aligned_alloc(64, n)); }
static NOINLINE char *resize(char *p, size_t n) { return keep(realloc(p, n)); }
static NOINLINE char *copied(char *p, size_t n) { return keep(realloc(p, n)); }

static NOINLINE char *refused(char *p, size_t n) { return keep(realloc(p, n)); }

// Forbids that a block grows in place.
static void wall(char *p)
{
    uintptr_t end = ((uintptr_t)p + malloc_usable_size(p) + 4095) & ~(uintptr_t)4095;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    mmap((void *)end, 4096, PROT_NONE, flags, -1, 0);  // fails if something is there already
}

int main(void)
{
    CHECK(mallopt(M_MMAP_THRESHOLD, 128 << 10));
    char *held = start(100 * mib);
    char *p = start(100 * mib);
    wall(p);
    char *old = p;
    p[5] = 7;
    p = resize(p, 150 * mib);
    CHECK(p != old && p[5] == 7);
    CHECK(refused(p, mib << 40) == NULL && p[5] == 7);
    char *q = aligned(40 * mib);
    CHECK((uintptr_t)q % 4096 == 64);
    wall(q);
    old = q;
    q[5] = 8;
    q = resize(q, 50 * mib);
    CHECK(q != old && q[5] == 8);
    say("known function:main at_peak_bytes=%zu\n",
        malloc_usable_size(held) + malloc_usable_size(p) + malloc_usable_size(q));
    free(q);
    // From a mapping to the heap: copied.
    char *r = resize(start(40000), 49152);
    size_t small = malloc_usable_size(r);
    free(p);
    CHECK(mallopt(M_MMAP_THRESHOLD, 128 << 10));
    r = copied(r, 96 * mib);
    CHECK(small < malloc_usable_size(r));
    free(r);
    free(held);
    return 0;
}
