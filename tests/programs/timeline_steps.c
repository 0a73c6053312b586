//! Large blocks are allocated, shrunk and freed, also by another thread, and the program sleeps
//! after each step: live bytes over time are 0, 8, 0, 6, 3 and 0 MiB, each for 60 ms.
//
// build: -pthread
// clock: set
// expect totals allocations>=3
#include "clock.h"
#include <pthread.h>

#define MIB (1 << 20)

static void *freeing(void *block)
{
    free(block);
    return NULL;
}

static NOINLINE void *hold(size_t bytes)
{
    return memset(keep(malloc(bytes)), 1, bytes);
}

static void rest(void) { pass_us(60000); }

int main(void)
{
    pthread_t thread;
    rest();
    char *block = hold(8 * MIB);
    rest();
    free(block);
    rest();
    block = hold(6 * MIB);
    rest();
    block = keep(realloc(block, 3 * MIB));
    rest();
    CHECK(pthread_create(&thread, NULL, freeing, block) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    rest();
    return 0;
}
