//! Calls abort, with a handler that allocates.
//
// expect function:work allocations=30 live_blocks=30
// expect function:on_abort allocations=1
#include "guest.h"
#include <signal.h>

static NOINLINE void *work(void) { return keep(malloc(10)); }
static NOINLINE void on_abort(int number) { (void)number; keep(malloc(44)); }

int main(void)
{
    signal(SIGABRT, on_abort);
    for (int i = 0; i < 30; i++)
        work();
    say("aborting\n");
    abort();
}
