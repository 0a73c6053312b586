//! Mappings that are unmapped in parts: each part reduces the bytes, the last one ends the mapping.
//
// expect recording processes=1
// mapped totals allocations=4 frees=2 usable_bytes=131072 freed_bytes=73728 live_bytes=57344
// mapped totals live_blocks=2 peak_bytes=73728
// mapped function:ten allocations=2 frees=1 usable_bytes=81920 freed_bytes=57344 live_bytes=24576
// mapped function:ten requested_bytes=80020
// mapped function:eight allocations=1 frees=0 live_bytes=32768 at_peak_bytes=32768
// mapped function:four allocations=1 frees=1 usable_bytes=16384 freed_bytes=16384
#include "guest.h"
#include <sys/mman.h>

#define PAGE 4096L

static NOINLINE char *map(size_t bytes)
{
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    return keep(start);
}
// Ten pages; the last one is requested partially.
static NOINLINE char *ten(void) { return keep(map(10 * PAGE - 950)); }
static NOINLINE char *eight(void) { return keep(map(8 * PAGE)); }
static NOINLINE char *four(void) { return keep(map(4 * PAGE)); }

int main(void)
{
    char *first = ten();
    CHECK(munmap(first + 4 * PAGE, 2 * PAGE) == 0);  // the middle: 8 pages are left
    CHECK(munmap(first + 4 * PAGE, 2 * PAGE) == 0);  // nothing is there
    CHECK(munmap(first, 100) == 0);                  // the first, rounded up: 7
    CHECK(munmap(first + 1, PAGE) == -1 && errno == EINVAL);
    CHECK(munmap(first, 0) == -1 && errno == EINVAL);
    CHECK(munmap(first + 7 * PAGE, 3 * PAGE) == 0);  // the end: 4
    CHECK(munmap(first, 10 * PAGE) == 0);            // the rest, and the gaps
    first = ten();
    CHECK(munmap(first + 2 * PAGE, 4 * PAGE) == 0);
    eight();
    char *last = four();
    stay();
    CHECK(munmap(last + PAGE, PAGE) == 0 && munmap(last, 4 * PAGE) == 0);
    return 0;
}
