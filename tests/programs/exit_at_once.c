//! _exit with live blocks and a running thread: nothing is flushed, nothing is lost, the status is
//! known.
//
// expect function:work allocations=25 live_blocks=25
// order: varies
// build: -pthread
#include "guest.h"
#include <pthread.h>

static NOINLINE void *work(void) { return keep(malloc(10)); }
static void *forever(void *unused)
{
    for (;;)
        pause();
    return unused;
}

int main(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, forever, NULL) == 0);
    for (int i = 0; i < 25; i++)
        work();
    say("at once\n");
    _exit(22);
}
