//! Every C entry point with failures and zero sizes, each counted once with the requested size.
//
// `realloc(NULL, n)` is a malloc, as in the C standard, and no reallocation.
// expect leaf:plain allocations=2 frees=2 requested_bytes=200 largest_bytes=100 live_blocks=0
// expect leaf:zeroed allocations=1 frees=1 requested_bytes=60 failed=0
// expect leaf:zeroed_nothing allocations=2 frees=2 requested_bytes=0
// expect leaf:zeroed_overflow allocations=0 frees=0 failed=1 requested_bytes=0
// expect leaf:nothing allocations=1 frees=1 requested_bytes=0
// expect leaf:too_much allocations=0 frees=0 failed=2 requested_bytes=0
// expect leaf:memaligned allocations=1 frees=1 requested_bytes=24
// expect leaf:aligned allocations=1 frees=1 requested_bytes=384
// expect leaf:posix_aligned allocations=1 frees=1 requested_bytes=64
// expect leaf:posix_aligned_badly allocations=0 frees=0 failed=1
// expect leaf:posix_aligned_too_much allocations=0 frees=0 failed=1
// expect leaf:page_aligned allocations=1 frees=1 requested_bytes=100
// expect leaf:page_sized allocations=1 frees=1 requested_bytes=100
// expect leaf:array allocations=1 reallocations=1 frees=1 requested_bytes=4000
// expect leaf:array_overflow allocations=0 reallocations=0 frees=0 failed=1
// expect leaf:for_array allocations=1 frees=1 requested_bytes=40
// expect leaf:from_null allocations=1 reallocations=0 frees=1 requested_bytes=70
// expect leaf:for_growth allocations=1 frees=1 requested_bytes=10 live_blocks=0 temporary=0
// expect leaf:grown allocations=1 reallocations=1 frees=1 requested_bytes=100000
// expect leaf:for_place allocations=1 frees=1 requested_bytes=1000
// expect leaf:in_place allocations=1 reallocations=1 frees=1 requested_bytes=990
// expect leaf:for_zero allocations=1 frees=1 requested_bytes=30 live_blocks=0
// expect leaf:to_zero allocations=0 reallocations=0 frees=0 failed=0
// expect leaf:for_failure allocations=1 frees=1 requested_bytes=50
// expect leaf:grown_too_much allocations=0 reallocations=0 frees=0 failed=1
// expect function:main allocations=20 frees=20 live_blocks=0 live_bytes=0 reallocations=3 failed=7
// expect totals reallocations=3 failed=7
#include "guest.h"

static volatile size_t huge = (size_t)PTRDIFF_MAX + 1;
static volatile size_t half = (size_t)1 << 63;

static NOINLINE void *plain(void) { return keep(malloc(100)); }
static NOINLINE void *zeroed(void) { return keep(calloc(12, 5)); }
static NOINLINE void zeroed_nothing(void)
{
    void *a = keep(calloc(7, 0)), *b = keep(calloc(0, 7));
    free(a);
    free(b);
    stay();
}
static NOINLINE void *zeroed_overflow(void) { return keep(calloc(half, 2)); }
static NOINLINE void *nothing(void) { return keep(malloc(0)); }
static NOINLINE void too_much(void)
{
    CHECK(keep(malloc(huge)) == NULL && errno == ENOMEM);
    CHECK(keep(malloc(SIZE_MAX)) == NULL && errno == ENOMEM);
}
static NOINLINE void *memaligned(void) { return keep(memalign(256, 24)); }
static NOINLINE void *aligned(void) { return keep(aligned_alloc(128, 384)); }
static NOINLINE void *posix_aligned(void)
{
    void *p = NULL;
    CHECK(posix_memalign(&p, 128, 64) == 0);
    return keep(p);
}
static NOINLINE void posix_aligned_badly(void)
{
    void *p = &p;
    CHECK(posix_memalign(&p, 3, 64) == EINVAL && p == &p);
}
static NOINLINE void posix_aligned_too_much(void)
{
    void *p = &p;
    CHECK(posix_memalign(&p, 64, huge) == ENOMEM && p == &p);
}
static NOINLINE void *page_aligned(void) { return keep(valloc(100)); }
static NOINLINE void *page_sized(void) { return keep(pvalloc(100)); }
static NOINLINE void *for_array(void) { return keep(malloc(40)); }
static NOINLINE void *array(void *p) { return keep(reallocarray(p, 1000, 4)); }
static NOINLINE void *array_overflow(void *p) { return keep(reallocarray(p, half, 2)); }
static NOINLINE void *from_null(void) { return keep(realloc(NULL, 70)); }
static NOINLINE void *for_growth(void) { return keep(malloc(10)); }
static NOINLINE void *grown(void *p) { return keep(realloc(p, 100000)); }
static NOINLINE void *for_place(void) { return keep(malloc(1000)); }
static NOINLINE void *in_place(void *p) { return keep(realloc(p, 990)); }
static NOINLINE void *for_zero(void) { return keep(malloc(30)); }
static NOINLINE void *to_zero(void *p) { return keep(realloc(p, 0)); }
static NOINLINE void *for_failure(void) { return keep(malloc(50)); }
static NOINLINE void *grown_too_much(void *p) { return keep(realloc(p, huge)); }

static void is_aligned(void *p, size_t alignment)
{
    CHECK(p != NULL && (uintptr_t)p % alignment == 0);
    free(p);
}

int main(void)
{
    free(NULL);
    free(plain());
    char *z = (char *)zeroed();
    for (int i = 0; i < 60; i++)
        CHECK(z[i] == 0);
    free(z);
    zeroed_nothing();
    CHECK(zeroed_overflow() == NULL && errno == ENOMEM);
    void *n = nothing();
    CHECK(n != NULL);
    free(n);
    too_much();
    is_aligned(memaligned(), 256);
    is_aligned(aligned(), 128);
    is_aligned(posix_aligned(), 128);
    posix_aligned_badly();
    posix_aligned_too_much();
    is_aligned(page_aligned(), 4096);
    is_aligned(page_sized(), 4096);
    void *a = array(for_array());
    CHECK(a != NULL && array_overflow(a) == NULL);
    free(a);
    free(from_null());
    void *small = for_growth(), *wall = plain();
    (void)wall;
    free(grown(small));
    void *place = for_place();
    CHECK(in_place(place) == place);
    free(place);
    CHECK(to_zero(for_zero()) == NULL);
    char *kept = (char *)for_failure();
    memset(kept, 7, 50);
    CHECK(grown_too_much(kept) == NULL && kept[49] == 7);
    free(kept);
    free(wall);
    say("counted\n");
    return 0;
}
