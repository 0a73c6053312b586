//! A monitor that prints at exit how much memory the program requested, and its peak usage.
//
//     cc -O2 -shared -fPIC -I include -o libtotals.so monitors/c/totals.c
//     heaptide run --monitor ./libtotals.so -- PROGRAM
//
// The smallest possible monitor: relaxed atomic counters that any number of threads may update. A
// call costs some ns, or more if many threads allocate at once and contend for the cache line of
// the counters. histogram.c shows how to avoid that.

#include "heaptide.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static struct {
    uint64_t requested, allocations, frees;
    int64_t used, max_used; // usable bytes
} totals;

// The descriptor of the report: a copy of stderr, because programs may close that before the
// monitor ends, as `ls` does at exit. Its number does not conflict with the program's own
// descriptors.
static int report = 2;

static void on_allocated(void *context, void *block, size_t requested, size_t usable)
{
    int64_t used, max;
    (void)context, (void)block;
    __atomic_fetch_add(&totals.requested, requested, __ATOMIC_RELAXED);
    __atomic_fetch_add(&totals.allocations, 1, __ATOMIC_RELAXED);
    used = __atomic_add_fetch(&totals.used, (int64_t)usable, __ATOMIC_RELAXED);
    max = __atomic_load_n(&totals.max_used, __ATOMIC_RELAXED);
    // A failed exchange has loaded another thread's maximum into `max`.
    while (used > max && !__atomic_compare_exchange_n(&totals.max_used, &max, used, 1,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

static void on_freed(void *context, void *block, size_t usable)
{
    (void)context, (void)block;
    __atomic_fetch_add(&totals.frees, 1, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&totals.used, (int64_t)usable, __ATOMIC_RELAXED);
}

// No calls of the monitor are running or follow, so plain reads are safe.
static void on_destroy(void *context)
{
    (void)context;
    dprintf(report,
            "totals: total memory requested: %" PRIu64 "\n"
            "totals: max memory used: %" PRId64 "\n"
            "totals: presently used: %" PRId64 "\n"
            "totals: # allocations calls: %" PRIu64 "\n"
            "totals: # deallocations calls: %" PRIu64 "\n",
            totals.requested, totals.max_used, totals.used, totals.allocations, totals.frees);
    if (report != 2)
        close(report);
}

static void create(char *options)
{
    struct heaptide_monitor monitor = {
        .version = HEAPTIDE_MONITOR_VERSION,
        .size = sizeof monitor,
        .name = "totals",
        .allocated = on_allocated,
        .freed = on_freed,
        .destroy = on_destroy,
    };
    if (*options) {
        fprintf(stderr, "totals: `%s`: it has no options\n", options);
        return;
    }
    report = fcntl(2, F_DUPFD_CLOEXEC, 200);
    if (report < 0)
        report = 2;
    if (!heaptide_register(&monitor))
        fprintf(stderr, "totals: not registered: no room for another monitor\n");
}

HEAPTIDE_MONITOR_PLUGIN("libtotals.so", create);
