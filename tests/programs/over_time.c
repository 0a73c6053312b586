//! Known numbers over time: a window in which a hundred blocks are allocated, snapshots at fifty,
//! at a hundred and at twenty blocks, with a mark between.
//
// expect leaf:held allocations=100 frees=80 live_blocks=20 at_peak_blocks=100
// expect leaf:other allocations=1 live_blocks=1
// expect mark:full count=1
#include "api_guest.h"

enum { BLOCKS = 100, SIZE = 10000 };

static NOINLINE void *held(void) { return keep(malloc(SIZE)); }
static NOINLINE void *other(void) { return keep(malloc(500)); }

int main(void)
{
    void *blocks[BLOCKS];
    size_t bytes = 0, left = 0;
    uint32_t window = heaptide_window_open("build");
    keep(other());
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = held();
        bytes += malloc_usable_size(blocks[i]);
        if (i == BLOCKS / 2 - 1)
            KNOWN(heaptide_snapshot_now("half") == 1);
    }
    KNOWN(heaptide_snapshot_now("full") == 2);
    heaptide_window_close(window, 0);
    heaptide_mark_now("full");
    for (int i = 20; i < BLOCKS; i++)
        free(blocks[i]);
    for (int i = 0; i < 20; i++)
        left += malloc_usable_size(blocks[i]);
    KNOWN(heaptide_snapshot_now("freed") == 3);
    say("known leaf:held at_peak_bytes=%zu live_bytes=%zu\n", bytes, left);
    return 0;
}
