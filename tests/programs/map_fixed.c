//! MAP_FIXED over existing mappings: replaced pages are unmapped, their neighbours stay.
//
// expect recording processes=1
// mapped function:below allocations=1 frees=0 usable_bytes=65536 freed_bytes=28672 live_bytes=36864
// mapped function:inside allocations=2 frees=1 usable_bytes=24576 freed_bytes=16384 live_bytes=8192
// mapped function:over allocations=1 frees=0 live_bytes=20480
// mapped totals allocations=4 frees=1 live_bytes=65536 peak_bytes=65536 live_blocks=3
#include "guest.h"
#include <sys/mman.h>

#define PAGE 4096L

static NOINLINE char *map(char *at, size_t pages, int flags)
{
    flags |= MAP_PRIVATE | MAP_ANONYMOUS;
    return keep(mmap(at, pages * PAGE, PROT_READ, flags, -1, 0));
}
static NOINLINE char *below(void) { return keep(map(NULL, 16, 0)); }
static NOINLINE char *inside(char *at, size_t pages) { return keep(map(at, pages, MAP_FIXED)); }
static NOINLINE char *over(char *at) { return keep(map(at, 5, MAP_FIXED)); }

int main(void)
{
    char *start = below();
    CHECK(start != MAP_FAILED);
    CHECK(inside(start + 4 * PAGE, 4) == start + 4 * PAGE);
    CHECK(inside(start + 10 * PAGE, 2) == start + 10 * PAGE);
    CHECK(over(start + 4 * PAGE) == start + 4 * PAGE);  // the first mapping, and one more page
    errno = 0;
    CHECK(map(start, 1, MAP_FIXED_NOREPLACE) == MAP_FAILED && errno == EEXIST);
    return 0;
}
