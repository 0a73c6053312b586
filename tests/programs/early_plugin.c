//! The library of intercepted_early.c, whose constructor allocates and starts a thread.
#include "guest.h"
#include <pthread.h>

static pthread_t thread;
static volatile int has_begun;

static NOINLINE void *beside(void *argument)
{
    for (int i = 0; i < 1000; i++) {
        free(keep(malloc(16)));
        has_begun = 1;
    }
    return argument;
}
static NOINLINE void in_constructor(void)
{
    for (int i = 0; i < 6; i++)
        free(keep(malloc(100)));
    keep(malloc(100)); // 128, stays live
}
__attribute__((constructor)) static void start(void)
{
    in_constructor();
    CHECK(pthread_create(&thread, NULL, beside, NULL) == 0);
    while (!has_begun)
        ;
}
int done(void);
int done(void) { return pthread_join(thread, NULL) == 0; }
