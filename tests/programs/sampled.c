//! Seven megabytes at the peak, for owners whose blocks differ in size, end and thread: estimates
//! of a sampled recording have the numbers below in their intervals, and add up to the totals.
//
//   scope     blocks
//   small     20000 of 104 bytes, live
//   large     20 of 100008 bytes, live
//   mixed     of 24, 56, 120, … to 16376 bytes, live
//   gone      30000 of 40 bytes, each freed at once
//   burst     1000 of 1000 bytes, freed at the end: live at the peak, which has a bound of 64 KiB
//   handed    4000 of 504 bytes, the first 3000 freed by another thread
//   grown     one of 1000 bytes, made larger by 1000 bytes 59 times, live
//
// expect scope:small allocations=20000 frees=0 live_bytes=2080000 at_peak_bytes=2080000
// expect scope:large allocations=20 live_bytes=2000160
// expect scope:gone allocations=30000 frees=30000 temporary=30000 usable_bytes=1200000 live_bytes=0
// expect scope:burst allocations=1000 frees=1000 usable_bytes=1000000
// expect scope:burst at_peak_bytes>=934464 at_peak_bytes<=1000000
// expect scope:handed allocations=4000 frees=3000 cross_thread_frees=3000 live_bytes=504000
// expect scope:grown allocations=60 reallocations=59 frees=59
// build: -pthread
#include "api_guest.h"
#include <pthread.h>

enum { HANDED = 4000, OF_OTHER = 3000, BURST = 1000 };
static void *handed[HANDED], *burst[BURST];

static void *frees(void *none)
{
    for (int i = 0; i < OF_OTHER; i++)
        free(handed[i]);
    return none;
}

static NOINLINE void grow(void)
{
    void *grown = block(1000);
    for (size_t bytes = 2000; bytes <= 60000; bytes += 1000)
        grown = keep(realloc(grown, bytes));
}

int main(void)
{
    pthread_t thread;
    HEAPTIDE_BEGIN("handed");
    for (int i = 0; i < HANDED; i++)
        handed[i] = block(504);
    HEAPTIDE_END("handed");
    CHECK(pthread_create(&thread, NULL, frees, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    HEAPTIDE_BEGIN("small");
    for (int i = 0; i < 20000; i++)
        block(104);
    HEAPTIDE_END("small");
    HEAPTIDE_BEGIN("gone");
    for (int i = 0; i < 30000; i++)
        free(block(40));
    HEAPTIDE_END("gone");
    HEAPTIDE_BEGIN("large");
    for (int i = 0; i < 20; i++)
        block(100008);
    HEAPTIDE_END("large");
    HEAPTIDE_BEGIN("mixed");
    for (int i = 0; i < 400; i++)
        block(((size_t)32 << i % 10) - 8);
    HEAPTIDE_END("mixed");
    HEAPTIDE_BEGIN("grown");
    grow();
    HEAPTIDE_END("grown");
    HEAPTIDE_BEGIN("burst");
    for (int i = 0; i < BURST; i++)
        burst[i] = block(1000);
    HEAPTIDE_END("burst");
    for (int i = 0; i < BURST; i++)
        free(burst[i]);
    return 0;
}
