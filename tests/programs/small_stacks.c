//! Threads with the smallest possible stacks, 16 KiB: they suffice for the program and the
//! recorder.
//
// expect function:deep allocations=6400 frees=6400
// order: varies
// build: -pthread
#include "guest.h"
#include <limits.h>
#include <pthread.h>

static NOINLINE void *deep(int depth, size_t size)
{
    return depth ? keep(deep(depth - 1, size)) : keep(malloc(size));
}
static void *work(void *unused)
{
    for (int i = 0; i < 100; i++)
        free(deep(i % 40, (size_t)i));
    return unused;
}

int main(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstacksize(&attributes, 16384) == 0);
    for (int round = 0; round < 8; round++) {
        pthread_t threads[8];
        for (int i = 0; i < 8; i++)
            CHECK(pthread_create(&threads[i], &attributes, work, NULL) == 0);
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
    }
    say("small\n");
    return 0;
}
