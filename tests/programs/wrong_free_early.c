//! A free of an address inside a block, aligned like a block, before the recorder has validated the
//! allocator's block headers: the C library ends the program like without the recorder.
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
