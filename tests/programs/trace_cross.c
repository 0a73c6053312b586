//! Addresses that are reused across threads: the freeing thread, its scope, and the freed block are
//! known.
//
// Two threads alternately free each other's block and get the same address again. Four others
// allocate an address that one of them has just freed, synchronized only by the allocator.
//
// expect leaf:turn allocations=20000 frees=20000 cross_thread_frees=20000 live_blocks=0
// expect leaf:contended allocations=80000 frees=80000 cross_thread_frees=0 temporary=80000
// expect scope:taking entered=2 frees_here=20000
// order: varies
// build: -pthread
#include "api_guest.h"
#include <pthread.h>
#include <sched.h>

enum { TURNS = 20000, ROUNDS = 20000, BYTES = 40, LARGE = 5000 };
static void *handed;
static volatile int turn_of;
static unsigned same;

static NOINLINE void *turn(size_t n) { return keep(malloc(n)); }
static NOINLINE void *contended(size_t n) { return keep(malloc(n)); }

// Each turn frees the block of the previous turn and allocates. The first turn only allocates; an
// additional last one only frees.
static void *by_turns(void *argument)
{
    int own = *(int *)argument;
    pthread_setname_np(pthread_self(), own ? "odd" : "even");
    heaptide_begin("taking");
    for (int i = own; i <= TURNS; i += 2) {
        for (unsigned spins = 1; __atomic_load_n(&turn_of, __ATOMIC_ACQUIRE) != i; spins++)
            if (spins % 256 == 0)
                sched_yield();
        void *before = handed;
        if (before)
            free(before);
        handed = i < TURNS ? turn(BYTES) : NULL;
        same += handed == before;
        __atomic_store_n(&turn_of, i + 1, __ATOMIC_RELEASE);
    }
    heaptide_end("taking");
    return NULL;
}
static void *at_once(void *unused)
{
    pthread_setname_np(pthread_self(), "contender");
    for (int i = 0; i < ROUNDS; i++)
        free(contended(LARGE + (size_t)i % 5));
    return unused;
}
static void run(int count, void *(*body)(void *))
{
    pthread_t threads[4];
    int numbers[4] = {0, 1, 2, 3};
    for (int i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, body, &numbers[i]) == 0);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    CHECK(mallopt(M_ARENA_MAX, 1) == 1);
    run(2, by_turns);
    CHECK(same > TURNS / 2);
    run(4, at_once);
    say("crossed\n");
    return 0;
}
