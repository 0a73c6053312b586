//! A monitor that prints at exit the numbers of blocks by requested, usable and freed size.
//
//     cc -O2 -shared -fPIC -I include -o libhistogram.so monitors/c/histogram.c
//     heaptide run --monitor ./libhistogram.so -- PROGRAM
//
// The rows are powers of two: 0, 1, 2 and 3, 4 to 7, … The counters are striped: each thread adds
// to one of 16 copies, so that threads rarely share a cache line, and the copies are summed at the
// end. The number of copies is fixed, because one per thread would take much memory with 100 000
// short threads.

#include "heaptide.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { CLASSES = 65, STRIPES = 16 };

struct stripe {
    uint64_t requested[CLASSES], usable[CLASSES], freed[CLASSES];
} __attribute__((aligned(64)));

static struct stripe stripes[STRIPES];
static unsigned threads;

// This thread's stripe, chosen at its first call; 0 before. With the initial-exec model, reading it
// does not call the loader, which could allocate.
static __thread unsigned own_stripe __attribute__((tls_model("initial-exec")));

// The descriptor of the report: a copy of stderr, because programs may close that before the
// monitor ends, as `ls` does at exit. Its number does not conflict with the program's own
// descriptors.
static int report = 2;

static struct stripe *stripe(void)
{
    if (own_stripe == 0)
        own_stripe = 1 + __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) % STRIPES;
    return &stripes[own_stripe - 1];
}

// Returns the number of significant bits.
static unsigned size_class(size_t bytes)
{
    return bytes ? 64 - (unsigned)__builtin_clzll(bytes) : 0;
}

static void count(uint64_t *classes, size_t bytes)
{
    __atomic_fetch_add(&classes[size_class(bytes)], 1, __ATOMIC_RELAXED);
}

static void on_allocated(void *context, void *block, size_t requested, size_t usable)
{
    struct stripe *own = stripe();
    (void)context, (void)block;
    count(own->requested, requested);
    count(own->usable, usable);
}

static void on_freed(void *context, void *block, size_t usable)
{
    (void)context, (void)block;
    count(stripe()->freed, usable);
}

static void on_destroy(void *context)
{
    int class, i;
    (void)context;
    dprintf(report, "%20s %14s %14s %14s\n", "size from", "requested", "usable", "freed");
    for (class = 0; class < CLASSES; class++) {
        uint64_t requested = 0, usable = 0, freed = 0;
        uint64_t from = class ? (uint64_t)1 << (class - 1) : 0;
        for (i = 0; i < STRIPES; i++) {
            requested += stripes[i].requested[class];
            usable += stripes[i].usable[class];
            freed += stripes[i].freed[class];
        }
        if (requested || usable || freed)
            dprintf(report, "%20" PRIu64 " %14" PRIu64 " %14" PRIu64 " %14" PRIu64 "\n", from,
                    requested, usable, freed);
    }
    if (report != 2)
        close(report);
}

static void create(char *options)
{
    struct heaptide_monitor monitor = {
        .version = HEAPTIDE_MONITOR_VERSION,
        .size = sizeof monitor,
        .name = "histogram",
        .allocated = on_allocated,
        .freed = on_freed,
        .destroy = on_destroy,
    };
    if (*options) {
        fprintf(stderr, "histogram: `%s`: it has no options\n", options);
        return;
    }
    report = fcntl(2, F_DUPFD_CLOEXEC, 200);
    if (report < 0)
        report = 2;
    if (!heaptide_register(&monitor))
        fprintf(stderr, "histogram: not registered: no room for another monitor\n");
}

HEAPTIDE_MONITOR_PLUGIN("libhistogram.so", create);
