//! `heaptide advise`: a buffer of 32 MiB is live for a short time, in addition to 1 MiB. With
//! -DALIKE it is live for half of the run.
//
//   sort_all  one block
#include "guest.h"

enum { TICKS = 100, TICK_US = 2000, TICK_BYTES = 300000, BUFFER = 32 << 20 };

static NOINLINE void *tick(void) { return keep(malloc(TICK_BYTES)); }
static NOINLINE void *sort_all(void) { return keep(memset(malloc(BUFFER), 1, BUFFER)); }

static void work(int ticks)
{
    for (int i = 0; i < ticks; i++) {
        free(tick());
        usleep(TICK_US);
    }
}

int main(void)
{
    void *base = keep(malloc(1 << 20)), *buffer;
    work(TICKS);
    buffer = sort_all();
#ifdef ALIKE
    work(TICKS);
#endif
    free(buffer);
    work(TICKS);
    free(base);
    return 0;
}
