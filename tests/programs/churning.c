//! Allocates and frees in several threads, many times, with pauses: ROUNDS THREADS.
//
// Each thread allocates ROUNDS blocks and frees all except KEPT of them.
//
// build: -pthread
#include "guest.h"
#include <pthread.h>
#include <time.h>

enum { KEPT = 16, PAUSE_EVERY = 5000 };

static long rounds;

static NOINLINE void *made(unsigned i) { return keep(branch(i * 2654435761u, 4, i % 700)); }

static void *churn(void *argument)
{
    void *window[KEPT] = {NULL};
    for (long i = 0; i < rounds; i++) {
        free(window[i % KEPT]);
        window[i % KEPT] = made((unsigned)i + (unsigned)(size_t)argument);
        if (i % PAUSE_EVERY == 0)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return NULL;
}

int main(int count, char **words)
{
    CHECK(count == 3);
    rounds = atol(words[1]);
    int threads = atoi(words[2]);
    pthread_t ids[64];
    CHECK(threads <= 64);
    for (int i = 1; i < threads; i++)
        CHECK(pthread_create(&ids[i], NULL, churn, (void *)(size_t)i) == 0);
    churn(NULL);
    for (int i = 1; i < threads; i++)
        pthread_join(ids[i], NULL);
    return 0;
}
