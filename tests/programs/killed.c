//! A program that kills itself: the profile is complete without any action of the program.
//
// expect function:work allocations=1000 live_blocks=900 frees=100
#include "guest.h"
#include <signal.h>

static NOINLINE void *work(void) { return keep(malloc(10)); }

int main(void)
{
    for (int i = 0; i < 1000; i++) {
        void *p = work();
        if (i % 10 == 0)
            free(p);
    }
    say("now\n");
    raise(SIGKILL);
    return 0;
}
