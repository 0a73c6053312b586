//! quick_exit: runs at_quick_exit functions but no destructors; the status is known.
//
// expect function:work allocations=25 live_blocks=25
// expect function:at_quick allocations=1
#include "guest.h"

static NOINLINE void *work(void) { return keep(malloc(10)); }
static NOINLINE void at_quick(void) { keep(malloc(20)); }

int main(void)
{
    at_quick_exit(at_quick);
    for (int i = 0; i < 25; i++)
        work();
    say("quick\n");
    quick_exit(21);
}
