//! Blocks of known order, sizes and lifetimes: freed in reverse order, in order, immediately, or
//! never.
//
// A trace of this program has no other events; uids follow the C source.
//
//   uid     what           requested        freed
//   1…10    lifo           100, 200 … 1000  last first, after all ten: block i outlives 10 − i
//   11…30   fifo           10 … 29          four allocations after its own; the last four in order
//   31…50   brief          7                at once
//   51…55   kept           1, 2, 4, 8, 16   never
//   56, 57  nested         300, 30          57 first: 56 is not temporary, 57 is
//
// expect leaf:lifo allocations=10 frees=10 requested_bytes=5500 temporary=1
// expect leaf:fifo allocations=20 frees=20 requested_bytes=390 temporary=1
// expect leaf:brief allocations=20 frees=20 requested_bytes=140 temporary=20
// expect leaf:kept allocations=5 frees=0 requested_bytes=31 live_blocks=5
// expect leaf:nested allocations=2 frees=2 requested_bytes=330 temporary=1
// expect totals allocations=57 frees=52
#include "guest.h"

static NOINLINE void *lifo(size_t n) { return keep(malloc(n)); }
static NOINLINE void *fifo(size_t n) { return keep(malloc(n)); }
static NOINLINE void *brief(size_t n) { return keep(malloc(n)); }
static NOINLINE void *kept(size_t n) { return keep(malloc(n)); }
static NOINLINE void *nested(size_t n) { return keep(malloc(n)); }

int main(void)
{
    void *blocks[24] = {NULL};
    for (size_t i = 0; i < 10; i++)
        blocks[i] = lifo(100 * (i + 1));
    for (int i = 9; i >= 0; i--)
        free(blocks[i]);
    for (size_t i = 0; i < 24; i++) {
        blocks[i] = i < 20 ? fifo(10 + i) : NULL;
        if (i >= 4)
            free(blocks[i - 4]);
    }
    for (int i = 0; i < 20; i++)
        free(brief(7));
    for (int i = 0; i < 5; i++)
        kept((size_t)1 << i);
    blocks[0] = nested(300);
    free(nested(30));
    free(blocks[0]);
    say("lived\n");
    return 0;
}
