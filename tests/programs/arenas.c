//! Threads of which each frees what it allocated, in an arena of its own, except for the first
//! block, which keeps the arena's memory: it is free in the allocator.
//
// expect totals allocations>=804 live_bytes>=40000
// build: -pthread
#include "guest.h"
#include <pthread.h>

#define THREADS 4
#define BLOCKS 200
#define BYTES 50000

static pthread_barrier_t all;

static void *work(void *first)
{
    char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BYTES);
        CHECK(blocks[i]);
        memset(blocks[i], 1, BYTES);
    }
    pthread_barrier_wait(&all);
    *(char **)first = malloc(BYTES);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    static char *kept[THREADS];
    CHECK(pthread_barrier_init(&all, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, &kept[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return kept[THREADS - 1] == NULL;
}
