//! Consecutive threads on a few lanes, and 200 at once: which thread allocated and freed each
//! block.
//
// Each thread writes `thread TID SIZE`: it allocated one block of this unique size and freed it,
// and one of SIZE + 100000, which main frees.
//
// expect leaf:made allocations=600 frees=600 live_blocks=0 cross_thread_frees=300
// expect recording lanes>=100
// order: varies
// build: -pthread
#include "guest.h"
#include <pthread.h>
#include <sys/syscall.h>

enum { IN_TURN = 100, AT_ONCE = 200, LATER = 100000 };

static void *later[IN_TURN + AT_ONCE];
static pthread_barrier_t barrier;

static NOINLINE void *made(size_t n) { return keep(malloc(n)); }

static void *body(void *argument)
{
    size_t size = (size_t)argument;
    void *own = made(size);
    if (size > IN_TURN)
        pthread_barrier_wait(&barrier);  // all of them have their lanes
    free(own);
    later[size - 1] = made(size + LATER);
    if (getenv("TRACE_THREADS_SAY"))
        say("thread %ld %zu\n", syscall(SYS_gettid), size);
    return NULL;
}

int main(void)
{
    static pthread_t threads[AT_ONCE];
    for (size_t i = 1; i <= IN_TURN; i++) {
        CHECK(pthread_create(&threads[0], NULL, body, (void *)i) == 0);
        pthread_join(threads[0], NULL);
    }
    pthread_barrier_init(&barrier, NULL, AT_ONCE);
    for (size_t i = 0; i < AT_ONCE; i++)
        CHECK(pthread_create(&threads[i], NULL, body, (void *)(IN_TURN + 1 + i)) == 0);
    for (size_t i = 0; i < AT_ONCE; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < IN_TURN + AT_ONCE; i++)
        free(later[i]);
    say("joined\n");
    return 0;
}
