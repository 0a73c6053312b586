//! Mappings before a snapshot, after it, and after a reset.
//
// expect recording processes=1
// mapped totals allocations=1 frees=1 usable_bytes=12288 freed_bytes=8192 live_bytes=36864
// mapped function:early allocations=0 frees=0 live_bytes=12288
// mapped function:middle allocations=0 frees=1 freed_bytes=8192 live_bytes=12288
// mapped function:late allocations=1 frees=0 usable_bytes=12288 live_bytes=12288
#include "guest.h"
#include "../../include/heaptide.h"
#include <sys/mman.h>

#define PAGE 4096L

static NOINLINE char *map(long pages)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *start = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(start != MAP_FAILED);
    return keep(start);
}
static NOINLINE char *early(void) { return keep(map(3)); }
static NOINLINE char *middle(long pages) { return keep(map(pages)); }
static NOINLINE char *late(void) { return keep(map(3)); }

int main(void)
{
    early();
    heaptide_snapshot_now("early");
    middle(3);
    char *gone = middle(2);
    heaptide_reset();
    late();
    CHECK(munmap(gone, 2 * PAGE) == 0);
    stay();
    return 0;
}
