//! `heaptide advise`: every 64th block stays live after a peak, so that the memory between cannot
//! be returned. With -DALIKE, the last blocks stay live, which does not prevent that.
//
// clock: set
//   fill  32768 blocks of 1000 bytes, of which 512 stay live for most of the run
#include "clock.h"

enum { BLOCKS = 32768, KEPT = 64, TICKS = 80, TICK_US = 10000, TICK_BYTES = 300000 };

static NOINLINE void *fill(void) { return memset(keep(malloc(1000)), 1, 1000); }
static NOINLINE void *tick(void) { return keep(malloc(TICK_BYTES)); }

// Accounts are taken when the program allocates.
static void wait_for(int ticks)
{
    for (int i = 0; i < ticks; i++) {
        free(tick());
        pass_us(TICK_US);
    }
}

int main(void)
{
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = fill();
    wait_for(TICKS / 2);
    for (int i = 0; i < BLOCKS; i++) {
#ifdef ALIKE
        int stays = i < BLOCKS / KEPT;
#else
        int stays = i % KEPT == KEPT - 1;
#endif
        if (!stays)
            free(blocks[i]);
    }
    wait_for(TICKS);
    return 0;
}
