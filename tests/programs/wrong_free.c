//! A free of an address inside a block, long after the recorder started to trust block headers: the
//! C library ends the program like without the recorder, and no block counts as freed, in
//! particular none based on numbers from the middle of a block.
//
// expect function:work allocations=100 frees=0 live_blocks=100
// expect totals frees=0
#include "guest.h"

static NOINLINE char *work(void) { return keep(malloc(100)); }

int main(void)
{
    char *last = NULL;
    for (int i = 0; i < 100; i++)
        last = work();
    memset(last, 0x21, 100);
    volatile uintptr_t inside = (uintptr_t)last + 4;
    say("freeing\n");
    free((void *)inside);
    return 0;
}
