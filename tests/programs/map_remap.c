//! mremap that shrinks, grows, moves, moves over another mapping, maps shared memory again, and
//! fails.
//
// expect recording processes=1
// mapped function:made allocations=2 frees=2 usable_bytes=36864 live_bytes=0
// mapped function:shared allocations=1 frees=0 live_bytes=12288
// mapped function:shrunk allocations=1 reallocations=1 usable_bytes=16384 freed_bytes=16384 frees=1
// mapped function:grown allocations=1 usable_bytes=262144 frees=1 freed_bytes=262144
// mapped function:onto allocations=1 frees=0 usable_bytes=16384 live_bytes=16384
// mapped function:again allocations=1 live_bytes=12288
// mapped class:shared live_bytes=24576
// mapped function:fails allocations=0
// mapped totals allocations=7 live_blocks=3 live_bytes=40960
#include "guest.h"
#include <sys/mman.h>

#define PAGE 4096L
#define ROOM (64 * PAGE)

static NOINLINE char *map(size_t pages, int flags)
{
    flags |= MAP_ANONYMOUS;
    char *start = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(start != MAP_FAILED);
    return keep(start);
}
static NOINLINE char *made(size_t pages) { return keep(map(pages, MAP_PRIVATE)); }
static NOINLINE char *shared(void) { return keep(map(3, MAP_SHARED)); }
static NOINLINE char *shrunk(char *p) { return keep(mremap(p, 8 * PAGE, 4 * PAGE, 0)); }
static NOINLINE char *grown(char *p) { return keep(mremap(p, 4 * PAGE, ROOM, MREMAP_MAYMOVE)); }
static NOINLINE char *onto(char *from, char *to)
{
    return keep(mremap(from, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to));
}
// Size 0 maps shared memory again.
static NOINLINE char *again(char *p) { return keep(mremap(p, 0, 3 * PAGE, MREMAP_MAYMOVE)); }
static NOINLINE char *fails(char *p) { return keep(mremap(p, PAGE, 1L << 46, MREMAP_MAYMOVE)); }

int main(void)
{
    char *first = shrunk(made(8));
    CHECK(first != MAP_FAILED);
    first = grown(first);
    CHECK(first != MAP_FAILED);
    char *second = made(1);
    errno = 0;
    CHECK(fails(second) == MAP_FAILED && errno == ENOMEM);
    CHECK(munmap(second, PAGE) == 0);
    char *third = shared();
    *third = 7;
    char *fourth = again(third);
    CHECK(fourth != MAP_FAILED && fourth != third && *fourth == 7);
    // Moves four pages of the large mapping over others of it: first these are unmapped, then the
    // four are moved.
    CHECK(onto(first, first + 32 * PAGE) == first + 32 * PAGE);
    CHECK(munmap(first + 4 * PAGE, 28 * PAGE) == 0);
    CHECK(munmap(first + 36 * PAGE, ROOM - 36 * PAGE) == 0);
    return 0;
}
