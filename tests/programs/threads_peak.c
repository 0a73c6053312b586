//! The peak with threads: two of them make large reallocations; the error never exceeds the bound.
//
// expect function:grows reallocations=200 frees=200
// expect function:small allocations=200000 frees=200000 live_bytes=0
// order: varies
// build: -pthread
#include "guest.h"
#include <pthread.h>

static NOINLINE void *small(size_t n) { return keep(malloc(n)); }
static NOINLINE void *grows(void *p, size_t n) { return keep(realloc(p, n)); }

static void *work(void *unused)
{
    for (int round = 0; round < 10; round++) {
        char *p = (char *)keep(malloc(1000));
        for (size_t i = 1; i <= 10; i++) {
            p = (char *)grows(p, i * i * 300000);
            for (size_t k = 0; k < 1000; k++)
                free(small(k));
        }
        free(p);
    }
    return unused;
}

int main(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    say("grown\n");
    return 0;
}
