//! The extended interface of jemalloc: every call is one event of the right size.
//
// expect leaf:made allocations=1 frees=1 requested_bytes=1000
// expect leaf:made_aligned allocations=1 frees=1 requested_bytes=300
// expect leaf:resized allocations=1 reallocations=1 frees=1 requested_bytes=90000
// expect function:main live_blocks=0 live_bytes=0
// expect function:extends allocations=0 failed=0
#include "guest.h"

void *mallocx(size_t, int);
void *rallocx(void *, size_t, int);
size_t xallocx(void *, size_t, size_t, int);
size_t sallocx(const void *, int);
void dallocx(void *, int);
void sdallocx(void *, size_t, int);

static NOINLINE void *made(void) { return keep(mallocx(1000, 0)); }
static NOINLINE void *made_aligned(void) { return keep(mallocx(300, 8)); }
static NOINLINE void *resized(void *p) { return keep(rallocx(p, 90000, 0)); }
static NOINLINE size_t extends(void *p) { return keep(xallocx(p, 1000, 0, 0)); }

int main(void)
{
    void *p = made(), *q = made_aligned();
    CHECK((uintptr_t)q % 256 == 0);
    CHECK(sallocx(p, 0) >= 1000 && extends(p) >= 1000);
    p = resized(p);
    dallocx(p, 0);
    sdallocx(q, 300, 8);
    say("extended\n");
    return 0;
}
