//! Reallocations of every kind: moved, in place, failed, to size 0, of NULL, of another thread's
//! block; each block of a chain has its own uid.
//
// Events of the main thread in order; `a>b` is an allocation and the free before it, at the same
// time.
//
//   moved      small(10)=1, wall(100)=2, 1>grown(100000)=3, free 3, free 2
//   in place   large(1000)=4, 4>shrunk(990)=5, 5>shrunk(980)=6, free 6
//   failed     kept(50)=7, too_much fails, free 7
//   nothing    empty(30)=8, free 8 by realloc(p, 0)
//   from NULL  anew(70)=9, free 9
//   chain      small(1)=10, 10>chained(2)=11 … 19>chained(1024)=20 in or out of place, free 20
//
// expect leaf:small allocations=2 frees=2 requested_bytes=11 temporary=0
// expect leaf:wall allocations=1 frees=1 requested_bytes=100
// expect leaf:grown allocations=1 frees=1 reallocations=1 requested_bytes=100000
// expect leaf:large allocations=1 frees=1 requested_bytes=1000
// expect leaf:shrunk allocations=2 frees=2 reallocations=2 requested_bytes=1970
// expect leaf:kept allocations=1 frees=1 requested_bytes=50
// expect leaf:too_much allocations=0 failed=1
// expect leaf:empty allocations=1 frees=1 requested_bytes=30
// expect leaf:to_nothing allocations=0 failed=0
// expect leaf:anew allocations=1 frees=1 reallocations=0 requested_bytes=70
// expect leaf:chained allocations=10 frees=10 reallocations=10 requested_bytes=2046
// expect leaf:theirs allocations=1 frees=1 requested_bytes=500 cross_thread_frees=1
// expect leaf:took allocations=1 frees=1 reallocations=1 requested_bytes=50000
// order: varies
// build: -pthread
#include "guest.h"
#include <pthread.h>

static volatile size_t huge = (size_t)PTRDIFF_MAX + 1;
static void *handed;

static NOINLINE void *small(size_t n) { return keep(malloc(n)); }
static NOINLINE void *wall(void) { return keep(malloc(100)); }
static NOINLINE void *grown(void *p) { return keep(realloc(p, 100000)); }
static NOINLINE void *large(void) { return keep(malloc(1000)); }
static NOINLINE void *shrunk(void *p, size_t n) { return keep(realloc(p, n)); }
static NOINLINE void *kept(void) { return keep(malloc(50)); }
static NOINLINE void *too_much(void *p) { return keep(realloc(p, huge)); }
static NOINLINE void *empty(void) { return keep(malloc(30)); }
static NOINLINE void *to_nothing(void *p) { return keep(realloc(p, 0)); }
static NOINLINE void *anew(void) { return keep(realloc(NULL, 70)); }
static NOINLINE void *chained(void *p, size_t n) { return keep(realloc(p, n)); }
static NOINLINE void *theirs(void) { return keep(malloc(500)); }
static NOINLINE void *took(void *p) { return keep(realloc(p, 50000)); }

static void *other(void *unused)
{
    pthread_setname_np(pthread_self(), "other");
    handed = took(handed);
    return unused;
}

int main(void)
{
    void *p = small(10), *between = wall();
    p = grown(p);
    free(p);
    free(between);
    p = large();
    CHECK(shrunk(p, 990) == p && shrunk(p, 980) == p);
    free(p);
    p = kept();
    CHECK(too_much(p) == NULL && errno == ENOMEM);
    free(p);
    CHECK(to_nothing(empty()) == NULL);
    free(anew());
    p = small(1);
    for (size_t n = 2; n <= 1024; n *= 2)
        p = chained(p, n);
    free(p);
    handed = theirs();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
    pthread_join(thread, NULL);
    free(handed);
    say("moved\n");
    return 0;
}
