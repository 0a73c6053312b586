//! Blocks freed by a different thread than the allocating one, and threads with names.
//
// expect function:made allocations=50000 frees=50000 cross_thread_frees=50000
// expect function:made temporary=0 live_blocks=0
// expect function:own allocations=1000 frees=1000 cross_thread_frees=0 temporary=1000
// expect lane:maker allocations>=51000
// expect lane:taker frees_here>=50000
// order: varies
// build: -pthread
#include "guest.h"
#include <pthread.h>

enum { BLOCKS = 50000 };
static void *ring[BLOCKS];
static volatile int filled;

static NOINLINE void *made(size_t n) { return keep(malloc(n)); }
static NOINLINE void own(void) { free(keep(malloc(8))); stay(); }

static void *maker(void *unused)
{
    pthread_setname_np(pthread_self(), "maker");
    for (int i = 0; i < BLOCKS; i++) {
        ring[i] = made((size_t)(i % 100));
        __atomic_store_n(&filled, i + 1, __ATOMIC_RELEASE);
    }
    for (int i = 0; i < 1000; i++)
        own();
    return unused;
}
static void *taker(void *unused)
{
    pthread_setname_np(pthread_self(), "taker");
    for (int i = 0; i < BLOCKS; i++) {
        while (__atomic_load_n(&filled, __ATOMIC_ACQUIRE) <= i)
            continue;
        free(ring[i]);
    }
    return unused;
}

int main(void)
{
    pthread_t threads[2];
    CHECK(pthread_create(&threads[0], NULL, maker, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, taker, NULL) == 0);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    say("crossed\n");
    return 0;
}
