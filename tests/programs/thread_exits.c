//! The main thread ends first, with pthread_exit; the last thread ends the process.
//
// expect function:after_main allocations=40 live_blocks=40
// order: varies
// build: -pthread
#include "guest.h"
#include <pthread.h>

static pthread_t first;

static NOINLINE void *after_main(void) { return keep(malloc(10)); }
static void *work(void *unused)
{
    pthread_join(first, NULL);
    for (int i = 0; i < 40; i++)
        after_main();
    say("last thread\n");
    return unused;
}

int main(void)
{
    pthread_t thread;
    first = pthread_self();
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    pthread_exit(NULL);
}
