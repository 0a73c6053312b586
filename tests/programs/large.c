//! Blocks of 2 GiB and more, and sizes beyond 2^39: no counter is truncated to 32 bits.
//
// expect leaf:three allocations=1 frees=1 requested_bytes=3221225472 largest_bytes=3221225472
// expect leaf:five allocations=1 reallocations=1 frees=1 requested_bytes=5368709120
// expect leaf:zeroed allocations=1 frees=1 requested_bytes=4294967296
// expect leaf:beyond allocations=0 failed=1
// expect function:main live_blocks=0 live_bytes=0
#include "guest.h"

static volatile size_t gib = (size_t)1 << 30;

static NOINLINE void *three(void) { return keep(malloc(3 * gib)); }
static NOINLINE void *five(void *p) { return keep(realloc(p, 5 * gib)); }
static NOINLINE void *zeroed(void) { return keep(calloc(4, gib)); }
static NOINLINE void *beyond(void) { return keep(malloc(gib << 30)); }

int main(void)
{
    char *p = (char *)three();
    CHECK(p != NULL);
    p[3 * gib - 1] = 1;
    say("known leaf:three usable_bytes=%zu\n", malloc_usable_size(p));
    p = (char *)five(p);
    CHECK(p != NULL && p[3 * gib - 1] == 1);
    size_t peak = malloc_usable_size(p);
    free(p);
    char *q = (char *)zeroed();
    CHECK(q != NULL && q[4 * gib - 1] == 0);
    free(q);
    CHECK(beyond() == NULL);
    say("known totals peak_bytes>=%zu\n", peak);
    return 0;
}
