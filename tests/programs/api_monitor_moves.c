//! A monitor that tracks addresses never gets a block at an address that it tracks already, nor the
//! free of an unknown one, while four threads move blocks with realloc among each other.
//
// expect totals reallocations>=1000
// order: varies
// build: -pthread
#include "api_guest.h"
#include <malloc.h>
#include <pthread.h>

enum { THREADS = 4, TURNS = 40000, BLOCKS = 8, PLACES = 1 << 14, LEAST = 1100 };

// The tracked blocks by address: open addressing, with its own lock.
static uintptr_t known[PLACES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int twice, unknown;

static uintptr_t *place(uintptr_t address)
{
    size_t i = (address >> 4) * 2654435761u % PLACES;
    while (known[i] && known[i] != address)
        i = (i + 1) % PLACES;
    return &known[i];
}

static void remove_from(uintptr_t *hole)
{
    size_t i = hole - known;
    *hole = 0;
    for (i = (i + 1) % PLACES; known[i]; i = (i + 1) % PLACES) {
        uintptr_t address = known[i];
        known[i] = 0;
        *place(address) = address;
    }
}

static void on_allocated(void *context, void *block, size_t requested, size_t usable)
{
    uintptr_t *at;
    (void)context, (void)requested, (void)usable;
    pthread_mutex_lock(&lock);
    at = place((uintptr_t)block);
    twice += *at != 0;
    *at = (uintptr_t)block;
    pthread_mutex_unlock(&lock);
}

static void on_freed(void *context, void *block, size_t usable)
{
    uintptr_t *at;
    (void)context, (void)usable;
    pthread_mutex_lock(&lock);
    at = place((uintptr_t)block);
    unknown += *at == 0;
    if (*at)
        remove_from(at);
    pthread_mutex_unlock(&lock);
}

static void *move_blocks(void *unused)
{
    void *blocks[BLOCKS] = {NULL};
    unsigned random = 12345 + (unsigned)(uintptr_t)&unused;
    for (int i = 0; i < TURNS; i++) {
        random = random * 1103515245u + 12345u;
        void **block = &blocks[random >> 16 & (BLOCKS - 1)];
        if (random >> 28 == 0) {
            free(*block);
            *block = NULL;
        } else {
            *block = keep(realloc(*block, LEAST + (random >> 8 & 0xfff)));
        }
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return NULL;
}

int main(void)
{
    struct heaptide_monitor monitor = {
        .version = HEAPTIDE_MONITOR_VERSION,
        .size = sizeof monitor,
        .name = "moves",
        .allocated = on_allocated,
        .freed = on_freed,
    };
    pthread_t threads[THREADS];
    uint64_t id;
    // One arena, and blocks too large for a thread's cache, so that threads reuse each other's
    // memory.
    mallopt(M_ARENA_MAX, 1);
    id = heaptide_register(&monitor);
    KNOWN(id != 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, move_blocks, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    KNOWN(heaptide_deregister(id));
    CHECK(twice == 0);
    // A few older blocks of threads that have ended are freed.
    CHECK(unknown < 100);
    say("moved\n");
    return 0;
}
