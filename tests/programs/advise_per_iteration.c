//! `heaptide advise`: each iteration of a loop allocates and frees the same blocks. With -DALIKE,
//! block sizes differ between iterations; with -DKEPT, the blocks stay live.
//
//   step  in each of 100 iterations 40 blocks of 4096 bytes and 1 of 65536
#include "api_guest.h"

enum { STEPS = 100, BLOCKS = 40 };

static NOINLINE void *cells(size_t bytes) { return keep(malloc(bytes)); }
static NOINLINE void *halo(size_t bytes) { return keep(memset(malloc(bytes), 1, bytes)); }

static NOINLINE void step(int number)
{
    void *blocks[BLOCKS], *border;
#ifdef ALIKE
    size_t size = 4096 + 16 * (size_t)number;
#else
    size_t size = 4096 + 0 * (size_t)number;
#endif
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = cells(size);
    border = halo(65536);
#ifndef KEPT
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    free(border);
#endif
    keep(blocks[0]);
    keep(border);
}

int main(void)
{
    for (int number = 0; number < STEPS; number++) {
        heaptide_begin_int("iteration", number);
        step(number);
        heaptide_end_int("iteration", number);
    }
    return 0;
}
