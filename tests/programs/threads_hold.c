//! Sixty-four threads hold blocks at the same time, each in total less than the change of live
//! bytes that a thread publishes at once. The threads start one after another.
//
// 64 threads hold 300 blocks of 104 usable bytes each: 1,996,800 bytes, plus what the C library
// allocates for a thread, which is at most 1 KiB. All of it is live when the last thread has
// started.
// expect function:hold allocations=19200 frees=19200 live_blocks=0
// order: varies
// build: -pthread
#include "guest.h"
#include <pthread.h>

enum { THREADS = 64, BLOCKS = 300 };

static pthread_barrier_t holds, done;

static NOINLINE void *hold(void) { return keep(malloc(104)); }

static void *work(void *unused)
{
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = hold();
    pthread_barrier_wait(&holds);
    pthread_barrier_wait(&done);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return unused;
}

int main(void)
{
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&holds, NULL, 2) == 0);
    CHECK(pthread_barrier_init(&done, NULL, THREADS + 1) == 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
        pthread_barrier_wait(&holds);
    }
    pthread_barrier_wait(&done);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
