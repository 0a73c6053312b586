//! Random operations of several threads, with a log of each thread: a model of the trace. If it is
//! killed, the log lacks at most the current operations.
//
// Arguments: a directory for the logs, a seed, the number of threads, operations per thread, and
// optionally `labels`. The random numbers of a thread depend only on the seed and the thread's
// number; the blocks that it gets from others depend on scheduling.
//
// The log `N.log` of thread N has a header of 64 bytes (thread id, operations started, operations
// finished, as words) and a record of 64 bytes per operation: see `struct record`.
//
// build: -pthread
#include "api_guest.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

enum { THREADS = 8, OWN = 200, RING = 64 };

enum what { ALLOCATED = 1, FREED, MOVED, NOT_MOVED, TO_NOTHING, FAILED, LABELLED, UNLABELLED };

struct record {
    uint16_t what;    // enum what
    uint16_t label;   // of LABELLED: the label
    uint32_t scope;   // the value of the thread's scope
    uint64_t block;   // number of the new block, or else of the block concerned
    uint64_t old;     // of MOVED: number of the block that was moved
    uint64_t address; // of `block`
    uint64_t requested, usable;
    uint64_t before_ns, after_ns;
};

struct log {
    volatile uint64_t thread, begun, done;
    uint64_t unused[5];
    struct record records[];
};

struct block {
    void *start;
    uint64_t number;
    int labelled;
};

// A block that one thread passes to another.
struct ring {
    volatile unsigned filled, taken;
    struct block blocks[RING];
};

struct worker {
    struct log *log;
    uint64_t random, made;
    unsigned number, count, scope;
    struct block own[OWN];
};

static struct ring rings[THREADS][THREADS];
static struct worker workers[THREADS];
static unsigned threads, operations;
static int with_labels;
static pthread_barrier_t barrier;
static volatile size_t huge = (size_t)PTRDIFF_MAX + 1;

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t next(struct worker *w)
{
    uint64_t z = w->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static unsigned below(struct worker *w, unsigned bound) { return (unsigned)(next(w) % bound); }

static size_t any_size(struct worker *w)
{
    switch (below(w, 20)) {
    case 0: return below(w, 300000);
    case 1: return 0;
    case 2:
    case 3:
    case 4: return below(w, 8000);
    default: return below(w, 200);
    }
}

static NOINLINE void *by_malloc(size_t n) { return keep(malloc(n)); }
static NOINLINE void *by_calloc(size_t n) { return keep(calloc(n, 1)); }
static NOINLINE void *by_memalign(size_t n) { return keep(memalign(256, n)); }
static NOINLINE void *by_posix(size_t n)
{
    void *p = NULL;
    CHECK(posix_memalign(&p, 64, n) == 0);
    return keep(p);
}
static NOINLINE void *by_realloc(void *p, size_t n) { return keep(realloc(p, n)); }
static NOINLINE void released(void *p)
{
    free(p);
    stay();
}

// Starts an operation; the preceding records of the log are complete.
static struct record *begin(struct worker *w, enum what what)
{
    struct record *r = &w->log->records[w->log->done];
    r->what = (uint16_t)what;
    r->scope = w->scope;
    w->log->begun++;
    r->before_ns = now();
    return r;
}
static void end(struct worker *w, struct record *r, uint64_t number, void *p, size_t requested,
                size_t usable)
{
    r->after_ns = now();
    r->block = number;
    r->address = (uint64_t)(uintptr_t)p;
    r->requested = requested;
    r->usable = usable;
    __atomic_store_n(&w->log->done, w->log->done + 1, __ATOMIC_RELEASE);
}
static uint64_t new_number(struct worker *w) { return ((uint64_t)w->number << 32) + ++w->made; }

static NOINLINE void operation_allocate(struct worker *w)
{
    struct block *b = &w->own[w->count++];
    size_t n = any_size(w);
    unsigned how = below(w, 6);
    struct record *r = begin(w, ALLOCATED);
    switch (how) {
    case 0: b->start = by_calloc(n); break;
    case 1: b->start = by_memalign(n); break;
    case 2: b->start = by_posix(n); break;
    case 3: b->start = by_realloc(NULL, n); break;
    default: b->start = by_malloc(n); break;
    }
    b->number = new_number(w);
    b->labelled = 0;
    end(w, r, b->number, b->start, n, malloc_usable_size(b->start));
}
static NOINLINE void operation_free(struct worker *w, unsigned which)
{
    struct block b = w->own[which];
    w->own[which] = w->own[--w->count];
    struct record *r = begin(w, FREED);
    released(b.start);
    end(w, r, b.number, b.start, 0, 0);
}
static NOINLINE void operation_move(struct worker *w, unsigned which)
{
    struct block *b = &w->own[which];
    size_t n = any_size(w);
    struct record *r;
    if (below(w, 10) == 0) {
        r = begin(w, NOT_MOVED);
        CHECK(by_realloc(b->start, huge) == NULL);
        end(w, r, b->number, b->start, huge, 0);
        return;
    }
    if (n == 0) {
        struct block gone = *b;
        r = begin(w, TO_NOTHING);
        b->start = by_realloc(gone.start, 0);
        if (b->start == NULL) {
            *b = w->own[--w->count];
            end(w, r, gone.number, gone.start, 0, 0);
            return;
        }
        r->what = MOVED;  // to size 0, as some allocators do
    } else {
        r = begin(w, MOVED);
        b->start = by_realloc(b->start, n);
    }
    r->old = b->number;
    b->number = new_number(w);
    b->labelled = 0;
    end(w, r, b->number, b->start, n, malloc_usable_size(b->start));
}
static NOINLINE void operation_fail(struct worker *w)
{
    struct record *r = begin(w, FAILED);
    CHECK(by_malloc(huge) == NULL);
    end(w, r, 0, NULL, huge, 0);
}
static NOINLINE void operation_label(struct worker *w, unsigned which)
{
    struct block *b = &w->own[which];
    unsigned label = below(w, 4);
    struct record *r = begin(w, b->labelled && label == 3 ? UNLABELLED : LABELLED);
    r->label = (uint16_t)label;
    if (r->what == UNLABELLED)
        heaptide_unlabel(b->start);
    else
        heaptide_label_block(b->start, (const char *[]){"north", "east", "south", "west"}[label]);
    b->labelled = r->what == LABELLED;
    end(w, r, b->number, b->start, 0, malloc_usable_size(b->start));
}

static void give(struct worker *w)
{
    struct ring *ring = &rings[w->number][below(w, threads)];
    if (ring->filled - __atomic_load_n(&ring->taken, __ATOMIC_ACQUIRE) == RING)
        return;
    ring->blocks[ring->filled % RING] = w->own[--w->count];
    __atomic_store_n(&ring->filled, ring->filled + 1, __ATOMIC_RELEASE);
}
static void take(struct worker *w)
{
    struct ring *ring = &rings[below(w, threads)][w->number];
    if (__atomic_load_n(&ring->filled, __ATOMIC_ACQUIRE) == ring->taken)
        return;
    w->own[w->count++] = ring->blocks[ring->taken % RING];
    __atomic_store_n(&ring->taken, ring->taken + 1, __ATOMIC_RELEASE);
}
static void change_scope(struct worker *w)
{
    if (w->scope)
        heaptide_end_int("part", w->scope);
    w->scope = below(w, 4);
    if (w->scope)
        heaptide_begin_int("part", w->scope);
}

static NOINLINE void operation(struct worker *w)
{
    unsigned what = below(w, 100);
    unsigned room = OWN - w->count;
    if (what < 2)
        return operation_fail(w);
    if (what < 4)
        return change_scope(w);
    if (what < 14 && room)
        return take(w);
    if (w->count == 0 || (what < 50 && room))
        return operation_allocate(w);
    if (what < 58)
        return operation_free(w, w->count - 1);
    if (what < 70)
        return operation_move(w, below(w, w->count));
    if (what < 80)
        return give(w);
    if (what < 84 && with_labels)
        return operation_label(w, below(w, w->count));
    operation_free(w, below(w, w->count));
}

static void *body(void *argument)
{
    struct worker *w = (struct worker *)argument;
    w->log->thread = (uint64_t)syscall(SYS_gettid);
    // All have their lanes before the first event, and no lane is reused.
    pthread_barrier_wait(&barrier);
    free(keep(malloc(1)));
    pthread_barrier_wait(&barrier);
    while (w->log->done < operations)
        operation(w);
    if (w->scope)
        heaptide_end_int("part", w->scope);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static struct log *new_log(const char *place, unsigned number)
{
    char path[4096];
    size_t size = sizeof(struct log) + (operations + 1) * sizeof(struct record);
    snprintf(path, sizeof path, "%s/%u.log", place, number);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    void *log = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(log != MAP_FAILED);
    close(fd);
    return (struct log *)log;
}

int main(int count, char **words)
{
    CHECK(count >= 5);
    threads = (unsigned)atoi(words[3]);
    operations = (unsigned)atoi(words[4]);
    with_labels = count > 5 && strcmp(words[5], "labels") == 0;
    CHECK(threads >= 1 && threads <= THREADS);
    pthread_t ids[THREADS];
    pthread_barrier_init(&barrier, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        struct worker *w = &workers[i];
        w->number = i;
        w->random = (uint64_t)atoi(words[2]) * 1000003 + i;
        w->log = new_log(words[1], i);
    }
    for (unsigned i = 0; i < threads; i++)
        CHECK(pthread_create(&ids[i], NULL, body, &workers[i]) == 0);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    return 0;
}
