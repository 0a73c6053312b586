//! Allocates, reallocates, frees and labels blocks of many sizes forever: THREADS plain|named PAGE.
//
// PAGE is a file that is shared with the test, whose first word counts the steps of the first
// thread. Threads free each other's blocks, and allocations beyond the available memory fail.
// `named`: in scopes, with labels, a pool per thread, marks and windows. The test kills it.
//
// build: -pthread
#include "api_guest.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

enum { THREADS_MAX = 8, SHARED = 256, OWN = 64, CHUNK = 1 << 16, SLICE = 1 << 10 };

static void *shared[SHARED];
static int named;
static volatile uint64_t *page;

struct worker {
    uint64_t random;
    char *own[OWN];
    char *chunk;
    uint32_t pool;
    uint32_t window;
};

static struct worker workers[THREADS_MAX];

static unsigned next(struct worker *w, unsigned limit)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (unsigned)(w->random >> 20) % limit;
}

// Most blocks are small, a few are large, and very few are mappings of malloc.
static size_t size(struct worker *w)
{
    unsigned kind = next(w, 1000);
    return kind == 0 ? next(w, 300000) : kind < 50 ? next(w, 20000) : next(w, 600);
}

static NOINLINE void *made(struct worker *w)
{
    return keep(branch(next(w, 256), 6, size(w)));
}

static NOINLINE void exchange(struct worker *w)
{
    free(__atomic_exchange_n(&shared[next(w, SHARED)], made(w), __ATOMIC_ACQ_REL));
}

static NOINLINE void resize(struct worker *w)
{
    char **own = &w->own[next(w, OWN)];
    *own = (char *)keep(realloc(*own, 1 + size(w)));
}

static NOINLINE void label(struct worker *w)
{
    char *block = w->own[next(w, OWN)];
    if (block && !heaptide_label_block(block, next(w, 2) ? "matrix" : "table"))
        heaptide_unlabel(block);
}

static NOINLINE void hand_out(struct worker *w)
{
    char *slice = w->chunk + SLICE * next(w, CHUNK / SLICE);
    if (!heaptide_pool_freed(slice))
        heaptide_pool_allocated(w->pool, slice, SLICE - 10, SLICE);
}

static void look(struct worker *w)
{
    heaptide_mark_now("step");
    if (w->window)
        heaptide_window_close(w->window, NULL);
    w->window = heaptide_window_open("part");
}

static void step(struct worker *w)
{
    unsigned kind = next(w, 1000);
    if (kind < 700)
        exchange(w);
    else if (kind < 850)
        resize(w);
    else if (kind < 852)
        free(keep(malloc(PTRDIFF_MAX)));
    else if (kind < 950 || !named)
        free(keep(calloc(1 + next(w, 9), 1 + size(w) / 8)));
    else if (kind < 970)
        label(w);
    else
        hand_out(w);
}

static void *work(void *argument)
{
    struct worker *w = (struct worker *)argument;
    int is_first = w == workers;
    if (named) {
        w->chunk = (char *)malloc(CHUNK);
        w->pool = heaptide_pool_named("arena");
        heaptide_pool_add(w->pool, w->chunk, CHUNK);
    }
    for (unsigned i = 0;; i++) {
        const char *scope = i & 64 ? "even" : "odd";
        if (named)
            heaptide_begin(scope);
        step(w);
        if (named)
            heaptide_end(scope);
        if (named && i % 4096 == 0)
            look(w);
        if (is_first)
            page[0]++;
    }
    return NULL;
}

int main(int count, char **words)
{
    CHECK(count == 4);
    int threads = atoi(words[1]), fd = open(words[3], O_RDWR);
    page = (volatile uint64_t *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED);
    CHECK(threads >= 1 && threads <= THREADS_MAX);
    named = !strcmp(words[2], "named");
    for (int i = 0; i < threads; i++)
        workers[i].random = 0x9e3779b97f4a7c15u * (uint64_t)(i + 1 + (int)getpid());
    for (int i = 1; i < threads; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, work, &workers[i]) == 0);
    }
    work(&workers[0]);
}
