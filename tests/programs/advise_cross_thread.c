//! `heaptide advise`: one thread allocates messages and another frees them. With -DALIKE, the
//! allocating thread frees them after the other one has read them.
//
//   new_message  20,000 blocks of 100 bytes, 100 at a time
//
// build: -pthread
#include "guest.h"
#include <pthread.h>

enum { MESSAGES = 100, ROUNDS = 200 };

static void *messages[MESSAGES];
static pthread_barrier_t barrier;

static NOINLINE void *new_message(void) { return keep(malloc(100)); }
static NOINLINE void free_all(void)
{
    for (int i = 0; i < MESSAGES; i++)
        free(messages[i]);
}

static void *consume(void *unused)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < MESSAGES; i++)
            keep(*(char *)messages[i]);
#ifndef ALIKE
        free_all();
#endif
        pthread_barrier_wait(&barrier);
    }
    return unused;
}

int main(void)
{
    pthread_t consumer;
    pthread_barrier_init(&barrier, NULL, 2);
    CHECK(pthread_create(&consumer, NULL, consume, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < MESSAGES; i++)
            *(char *)(messages[i] = new_message()) = 1;
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
#ifdef ALIKE
        free_all();
#endif
    }
    CHECK(pthread_join(consumer, NULL) == 0);
    return 0;
}
