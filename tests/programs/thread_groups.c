//! Concurrent threads of two kinds, each with a distinct name: `--group-threads` shows each kind as
//! one row.
//
// `io-0` and `io-1` allocate 10 blocks of 100 bytes each, `wrk-0`, `wrk-1` and `wrk-2` 20 blocks of
// 200 bytes each, in a scope `task`.
//
// expect scope:task allocations=80 requested_bytes=14000 entered=5 live_blocks=80
// order: varies
// build: -pthread
#include "api_guest.h"
#include <pthread.h>
#include <stdio.h>

enum { IO = 2, THREADS = 5 };

static pthread_barrier_t barrier;

static void *work(void *argument)
{
    long number = (long)argument;
    int is_io = number < IO;
    char name[16];
    snprintf(name, sizeof name, is_io ? "io-%ld" : "wrk-%ld", is_io ? number : number - IO);
    pthread_setname_np(pthread_self(), name);
    heaptide_begin("task");
    for (int i = 0; i < (is_io ? 10 : 20); i++)
        block(is_io ? 100 : 200);
    heaptide_end("task");
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
