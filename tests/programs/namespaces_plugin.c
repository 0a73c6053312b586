//! The library of namespaces.c.
#include "guest.h"
#include <pthread.h>

__attribute__((constructor)) static void at_load(void)
{
    for (int i = 0; i < 5; i++)
        keep(malloc(500)); // stay live
}
static NOINLINE void in_namespace(void)
{
    for (int i = 0; i < 200; i++) {
        void *block = keep(malloc(1000));
        void *other = keep(calloc(10, 100));
        if (i % 2)
            free(block);
        else
            free(other);
    }
    void *aligned;
    CHECK(posix_memalign(&aligned, 256, 1000) == 0 && (uintptr_t)aligned % 256 == 0);
    free(aligned);
    CHECK(malloc_usable_size(keep(malloc(500))) >= 500);
    free(keep(memalign(64, 500)));
    keep(aligned_alloc(64, 0));
    stay();
}
static NOINLINE void *in_thread(void *argument)
{
    for (int i = 0; i < 50; i++)
        free(keep(malloc(100)));
    return argument;
}
void work(void (*back)(void))
{
    pthread_t thread;
    in_namespace();
    CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    back();
    stay();
}
