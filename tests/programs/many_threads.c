//! 2000 threads alive at once, each with its own blocks.
//
// expect function:in_thread allocations=20000 frees=20000 requested_bytes=200000 live_blocks=0
// expect recording lanes>=1000
// order: varies
// build: -pthread
#include "guest.h"
#include <pthread.h>

static pthread_barrier_t all_alive, all_done;

static NOINLINE void *in_thread(void) { return keep(malloc(10)); }
static void *work(void *unused)
{
    void *blocks[10];
    for (int i = 0; i < 10; i++)
        blocks[i] = in_thread();
    pthread_barrier_wait(&all_alive);
    for (int i = 0; i < 10; i++)
        free(blocks[i]);
    pthread_barrier_wait(&all_done);
    return unused;
}

int main(void)
{
    static pthread_t threads[2000];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 * 1024);
    pthread_barrier_init(&all_alive, NULL, 2001);
    pthread_barrier_init(&all_done, NULL, 2001);
    for (int i = 0; i < 2000; i++)
        CHECK(pthread_create(&threads[i], &attributes, work, NULL) == 0);
    pthread_barrier_wait(&all_alive);
    pthread_barrier_wait(&all_done);
    for (int i = 0; i < 2000; i++)
        pthread_join(threads[i], NULL);
    say("2000 threads\n");
    return 0;
}
