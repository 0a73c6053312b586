//! One stack allocates blocks of 3000 sizes, some of which another thread frees. It has one site,
//! also in a sampled recording.
//
// expect function:sized allocations=3000 frees=1500 cross_thread_frees=1000
// expect function:sized live_blocks=1500 requested_bytes=4501500
// expect lane:taker frees_here>=1000
// build: -pthread
#include "guest.h"
#include <pthread.h>

enum { SIZES = 3000, OF_OTHER = 1000, OWN = 500 };
static void *blocks[SIZES];

static NOINLINE void *sized(size_t n) { return keep(malloc(n)); }

static void *taker(void *unused)
{
    pthread_setname_np(pthread_self(), "taker");
    for (int i = 0; i < OF_OTHER; i++)
        free(blocks[i]);
    return unused;
}

int main(void)
{
    pthread_t thread;
    for (int i = 0; i < SIZES; i++)
        blocks[i] = sized((size_t)i + 1);
    pthread_create(&thread, 0, taker, 0);
    pthread_join(thread, 0);
    for (int i = OF_OTHER; i < OF_OTHER + OWN; i++)
        free(blocks[i]);
    return 0;
}
