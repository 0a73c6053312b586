//! A segmentation fault of the program has its normal effect.
//
// expect function:work allocations=30 live_blocks=30
#include "guest.h"

static NOINLINE void *work(void) { return keep(malloc(10)); }

int main(void)
{
    for (int i = 0; i < 30; i++)
        work();
    say("crashing\n");
    static volatile uintptr_t nowhere = 8;
    *(volatile int *)nowhere = 1;
    return 0;
}
