//! Scopes of 300 threads at once, a path passed to a pool of threads, blocks freed and reallocated
//! in another thread and another scope.
//
// expect leaf:block allocations=45655 live_blocks=0
// expect leaf:grown reallocations=1 allocations=1 live_blocks=0
// expect scope:submit>task allocations=400 requested_bytes=1600 entered=401
// expect scope:idle allocations=4 requested_bytes=20 entered=4
// expect scope:maker allocations=100 frees=100 live_blocks=0 frees_here=0
// expect scope:taker allocations=0 frees=0 frees_here=99
// expect scope:grower allocations=1 frees=1 reallocations=1 frees_here=1
// expect scope:last allocations=0 frees_here=1
// order: varies
// build: -pthread
#include "api_guest.h"
#include <pthread.h>

enum { THREADS = 300, WORKERS = 4, TASKS = 100 };

static pthread_barrier_t barrier;
static uint64_t contexts[THREADS];

static void *own_scope(void *argument)
{
    long number = (long)argument;
    heaptide_begin_int("thread", number);
    contexts[number] = heaptide_context();
    pthread_barrier_wait(&barrier);
    for (long i = 0; i <= number; i++)
        free(block(8));
    pthread_barrier_wait(&barrier);
    heaptide_end_int("thread", number);
    CHECK(heaptide_context() == 0);
    return NULL;
}

static void three_hundred(void)
{
    static pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, own_scope, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        struct heaptide_figures figures = own(contexts[i]);
        KNOWN(figures.allocations == (uint64_t)i + 1 && figures.frees == (uint64_t)i + 1);
    }
}

// Work that the main thread submits counts for its path, regardless of the executing thread.
static void *worker(void *submitted)
{
    heaptide_begin("idle");
    for (int i = 0; i < TASKS; i++) {
        uint64_t before = heaptide_set_context(*(uint64_t *)submitted);
        heaptide_begin("task");
        free(block(4));
        heaptide_end("task");
        heaptide_set_context(before);
    }
    free(block(5));
    heaptide_end("idle");
    return NULL;
}

static void thread_pool(void)
{
    pthread_t threads[WORKERS];
    uint64_t submitted, task;
    heaptide_begin("submit");
    submitted = heaptide_context();
    for (int i = 0; i < WORKERS; i++)
        CHECK(pthread_create(&threads[i], NULL, worker, &submitted) == 0);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    heaptide_begin("task");
    task = heaptide_context();
    heaptide_end("task");
    heaptide_end("submit");
    KNOWN(own(task).allocations == WORKERS * TASKS);
    KNOWN(own(task).requested_bytes == 4 * WORKERS * TASKS);
    // Creating threads allocates, too, directly in the submitting scope.
    KNOWN(inclusive(submitted).allocations >= WORKERS * TASKS);
}

static void *blocks[100];

static void *make(void *unused)
{
    heaptide_begin("maker");
    for (int i = 0; i < 100; i++)
        blocks[i] = block(10);
    contexts[0] = heaptide_context();
    heaptide_end("maker");
    return unused;
}

static void *take(void *unused)
{
    heaptide_begin("taker");
    for (int i = 0; i < 99; i++)
        free(blocks[i]);
    contexts[1] = heaptide_context();
    heaptide_end("taker");
    return unused;
}

static NOINLINE void *grown(void *p) { return keep(realloc(p, 100000)); }

// Live blocks belong to the allocating thread; a block that realloc moves belongs to the
// reallocating one.
static void ledgers(void)
{
    pthread_t thread;
    struct heaptide_figures maker, taker;
    CHECK(pthread_create(&thread, NULL, make, NULL) == 0);
    pthread_join(thread, NULL);
    KNOWN(own(contexts[0]).live_blocks == 100);
    CHECK(pthread_create(&thread, NULL, take, NULL) == 0);
    pthread_join(thread, NULL);
    maker = own(contexts[0]);
    taker = own(contexts[1]);
    KNOWN(maker.allocations == 100 && maker.frees == 99 && maker.live_blocks == 1);
    KNOWN(taker.allocations == 0 && taker.frees == 0 && taker.live_bytes == 0);
    heaptide_begin("grower");
    blocks[99] = grown(blocks[99]);
    KNOWN(own(contexts[0]).frees == 100 && own(contexts[0]).live_bytes == 0);
    KNOWN(own(heaptide_context()).live_blocks == 1);
    KNOWN(own(heaptide_context()).requested_bytes == 100000);
    heaptide_end("grower");
    heaptide_begin("last");
    free(blocks[99]);
    heaptide_end("last");
}

int main(void)
{
    three_hundred();
    thread_pool();
    ledgers();
    free(block(1));
    KNOWN(heaptide_context() == 0);
    say("threads\n");
    return 0;
}
