//! Recording turned off and on, paused in one thread, with a threshold: the trace agrees with the
//! counters.
//
// Blocks of `seen` are recorded, those of `unseen` never. Blocks of `seen` that are freed while
// recording is off are freed in the trace, too.
//
// expect leaf:seen allocations=30 frees=20 live_blocks=10 requested_bytes=3000
// expect leaf:unseen allocations=0 frees=0
// expect leaf:large allocations=5 frees=5 requested_bytes=10000
#include "api_guest.h"

static NOINLINE void *seen(void) { return keep(malloc(100)); }
static NOINLINE void *unseen(void) { return keep(malloc(100)); }
static NOINLINE void *large(void) { return keep(malloc(2000)); }

int main(void)
{
    void *blocks[30];
    for (int i = 0; i < 20; i++)
        blocks[i] = seen();
    heaptide_turn(0);
    for (int i = 0; i < 10; i++) {
        free(blocks[i]);
        free(unseen());
    }
    heaptide_turn(1);
    for (int i = 20; i < 30; i++)
        blocks[i] = seen();
    heaptide_pause(0);
    for (int i = 10; i < 20; i++) {
        void *between = unseen();
        free(blocks[i]);
        free(between);
    }
    heaptide_resume(0);
    heaptide_threshold(1000, 0);
    for (int i = 0; i < 5; i++) {
        void *small = unseen();
        free(large());
        free(small);
    }
    heaptide_threshold(0, 0);
    say("switched\n");
    return 0;
}
