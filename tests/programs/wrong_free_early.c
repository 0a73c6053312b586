//! A free of an address inside a block, aligned as a block is, before the recorder has seen enough
//! of the allocator to trust what it reads of blocks: the C library ends the program as it does
//! bare.
//
// expect function:work allocations=2 frees=0 live_blocks=2
// expect totals frees=0
#include "guest.h"

static NOINLINE char *work(void) { return keep(malloc(100)); }

int main(void)
{
    work();
    char *last = work();
    memset(last, 0x21, 100);
    volatile uintptr_t inside = (uintptr_t)last + 16;
    say("freeing\n");
    free((void *)inside);
    return 0;
}
