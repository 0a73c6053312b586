//! Marks, snapshots and a reset by the program: the report excludes what was counted before the
//! reset, but blocks that were live then are freed after it.
//
// The whole run, since the reset, and the first snapshot:
//
// expect leaf:block allocations=3 frees=3 live_blocks=0
// expect leaf:kept allocations=1 live_blocks=1
// expect mark:half_way count=1
// since leaf:block allocations=2 frees=3 live_blocks=0
// since leaf:kept allocations=0 frees=0 live_blocks=1
// since mark:after count=1
// first leaf:block allocations=1 frees=0 live_blocks=1
// first leaf:kept allocations=1 live_blocks=1
#include "api_guest.h"

static NOINLINE void *kept(size_t size) { return keep(malloc(size)); }

int main(void)
{
    uint32_t first, second;
    void *before = block(10);
    struct heaptide_figures figures;
    keep(kept(100));
    errno = 77;
    heaptide_mark_now("half_way");
    first = heaptide_snapshot_now("first");
    second = heaptide_snapshot_now("");
    KNOWN(first == 1 && second == 2);
    CHECK(heaptide_loaded() || (first == 0 && second == 0));
    KNOWN(heaptide_reset() == 1);
    heaptide_mark_now("after");
    figures = heaptide_process_figures();
    KNOWN(figures.live_blocks >= 2);
    free(before);
    free(block(10));
    free(block(20));
    heaptide_flush();
    CHECK(errno == 77);
    say("moments\n");
    return 0;
}
