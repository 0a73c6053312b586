//! Signals interrupt an intercepted allocator with its own function names at any instruction,
//! including the moved starts of its functions, and their handlers allocate from it. If a handler
//! interrupts the recorder, its calls count as internal to the allocator, and are not recorded.
//
// expect recording lost_events=0
// expect leaf:in_main allocations=300000 frees=300000 requested_bytes=30000000
// build: -rdynamic
// order: varies
#include "guest.h"
#include <signal.h>
#include <sys/time.h>

// Blocks are slots of a ring, used in turn, without metadata.
enum { BLOCK = 128, BLOCKS = 4096 };
static char ring[BLOCKS][BLOCK] __attribute__((aligned(BLOCK)));
static unsigned next_block;

NOINLINE void *je_malloc(size_t size)
{
    CHECK(size <= BLOCK);
    return ring[__atomic_fetch_add(&next_block, 1, __ATOMIC_RELAXED) % BLOCKS];
}
NOINLINE void je_free(void *block) { CHECK((uintptr_t)block % BLOCK == 0); }
NOINLINE size_t je_malloc_usable_size(const void *block) { return keep(block) ? BLOCK : 0; }

static volatile unsigned long handled;

static NOINLINE void in_handler(void)
{
    void *block = keep(je_malloc(50));
    je_free(block);
    handled++;
    stay();
}
static void tick(int number)
{
    (void)number;
    in_handler();
}
static NOINLINE void in_main(void)
{
    void *block = keep(je_malloc(100));
    je_free(block);
    stay();
}

int main(void)
{
    struct sigaction action = {.sa_handler = tick};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    for (int i = 0; i < 300000; i++)
        in_main();
    while (handled < 100)
        usleep(1000);
    setitimer(ITIMER_REAL, &never, NULL);
    say("weathered\n");
    return 0;
}
