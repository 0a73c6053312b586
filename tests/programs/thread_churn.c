//! 70 000 consecutive threads, more than can exist at once, share a few lanes; nothing is lost.
//
// expect function:in_thread allocations=140000 frees=70000 requested_bytes=2100000
// expect function:in_thread live_blocks=70000
// expect recording lanes<=8
// order: varies
// build: -pthread
#include "guest.h"
#include <pthread.h>

static NOINLINE void *in_thread(void *unused)
{
    keep(malloc(20));
    free(keep(malloc(10)));
    return unused;
}

int main(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 32 * 1024);
    for (int i = 0; i < 70000; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, &attributes, in_thread, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    say("70000 threads\n");
    return 0;
}
