//! Four threads map and unmap concurrently; some ranges are unmapped by another thread.
//
// build: -pthread
// order: varies
// expect recording processes=1 lost_events=0
// mapped function:mine allocations=4000 frees=4000 usable_bytes=49152000 live_bytes=0
// mapped function:handed allocations=400 frees=300 usable_bytes=3276800 live_bytes=819200
// mapped lane:mapper allocations=4400 frees=4300
#include "guest.h"
#include <pthread.h>
#include <sys/mman.h>

#define PAGE 4096L
#define THREADS 4
#define ROUNDS 1000
#define HANDED 100

static char *handed_over[THREADS][HANDED];
static pthread_barrier_t barrier;

static NOINLINE char *map(size_t pages)
{
    char *start = mmap(NULL, pages * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    return keep(start);
}
static NOINLINE char *mine(void) { return keep(map(3)); }
static NOINLINE char *handed(void) { return keep(map(2)); }

static void *work(void *number)
{
    long me = (long)number;
    CHECK(pthread_setname_np(pthread_self(), "mapper") == 0);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < ROUNDS; i++) {
        char *start = mine();
        if (i % (ROUNDS / HANDED) == 0)
            handed_over[me][i / (ROUNDS / HANDED)] = handed();
        CHECK(munmap(start, PAGE) == 0 && munmap(start + PAGE, 2 * PAGE) == 0);
    }
    pthread_barrier_wait(&barrier);
    for (int i = 0; me > 0 && i < HANDED; i++)
        CHECK(munmap(handed_over[me - 1][i], 2 * PAGE) == 0);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
