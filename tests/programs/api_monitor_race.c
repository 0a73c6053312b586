//! Monitors are registered and deregistered while 8 threads allocate: none is called after its end,
//! and each is destroyed once, even if it deregisters itself in a callback.
//
// expect totals allocations>=1000
// order: varies
// trace: may end
// build: -pthread
#include "api_guest.h"
#include <pthread.h>

enum { ALLOCATING = 8, REGISTERING = 2, TURNS = 300, ALIVE = 0x600d };

struct watched {
    int alive, destroyed, leaves;
    uint64_t calls, id;
};

static int stop;

static void on_allocated(void *context, void *p, size_t requested, size_t usable)
{
    struct watched *watched = (struct watched *)context;
    uint64_t id;
    (void)p, (void)requested, (void)usable;
    CHECK(__atomic_load_n(&watched->alive, __ATOMIC_RELAXED) == ALIVE);
    free(keep(malloc(3)));
    if (watched->leaves && (id = __atomic_exchange_n(&watched->id, 0, __ATOMIC_ACQ_REL)))
        CHECK(heaptide_deregister(id) == 1);
    __atomic_fetch_add(&watched->calls, 1, __ATOMIC_RELEASE);
}

static void on_freed(void *context, void *p, size_t usable)
{
    (void)p, (void)usable;
    CHECK(__atomic_load_n(&((struct watched *)context)->alive, __ATOMIC_RELAXED) == ALIVE);
}

static void on_destroy(void *context)
{
    __atomic_fetch_add(&((struct watched *)context)->destroyed, 1, __ATOMIC_RELEASE);
}

static void *allocate(void *unused)
{
    void *blocks[16] = {NULL};
    for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); i++) {
        free(blocks[i % 16]);
        blocks[i % 16] = keep(malloc(i % 300));
    }
    for (int i = 0; i < 16; i++)
        free(blocks[i]);
    return unused;
}

static void one_monitor(int leaves)
{
    struct heaptide_monitor monitor = {
        .version = HEAPTIDE_MONITOR_VERSION,
        .size = sizeof monitor,
        .name = "race",
        .allocated = on_allocated,
        .freed = on_freed,
        .destroy = on_destroy,
    };
    struct watched *watched = (struct watched *)calloc(1, sizeof *watched);
    uint64_t id;
    watched->alive = ALIVE;
    watched->leaves = leaves;
    monitor.context = watched;
    id = heaptide_register(&monitor);
    CHECK(id != 0);
    __atomic_store_n(&watched->id, id, __ATOMIC_RELEASE);
    // The other threads keep allocating, so it will be called.
    while (__atomic_load_n(&watched->calls, __ATOMIC_ACQUIRE) == 0)
        sched_yield();
    if (leaves) {
        while (__atomic_load_n(&watched->destroyed, __ATOMIC_ACQUIRE) == 0)
            sched_yield();
        CHECK(heaptide_deregister(id) == 0 && watched->destroyed == 1);
        // Its last callback may still be returning, so its memory stays.
        return;
    }
    CHECK(heaptide_deregister(id) == 1 && watched->destroyed == 1);
    watched->alive = 0;
    free(watched);
}

static void *come_and_go(void *leaves)
{
    for (int i = 0; i < TURNS; i++)
        one_monitor(i % 10 == 0 && leaves);
    return NULL;
}

int main(void)
{
    pthread_t threads[ALLOCATING + REGISTERING];
    if (!heaptide_loaded()) {
        say("raced\n");
        return 0;
    }
    for (int i = 0; i < ALLOCATING; i++)
        CHECK(pthread_create(&threads[i], NULL, allocate, NULL) == 0);
    for (int i = ALLOCATING; i < ALLOCATING + REGISTERING; i++)
        CHECK(pthread_create(&threads[i], NULL, come_and_go, (void *)(intptr_t)(i & 1)) == 0);
    for (int i = ALLOCATING; i < ALLOCATING + REGISTERING; i++)
        pthread_join(threads[i], NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < ALLOCATING; i++)
        pthread_join(threads[i], NULL);
    say("raced\n");
    return 0;
}
