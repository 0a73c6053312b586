//! A monitor that aborts the program, or takes a snapshot of its profile, at a request within a
//! range of sizes, or when live memory exceeds a limit.
//
//     cc -O2 -shared -fPIC -I include -o libthreshold.so monitors/c/threshold.c
//     heaptide run --monitor ./libthreshold.so:min=1M,skip=3 -- PROGRAM
//     heaptide run --monitor ./libthreshold.so:live=500M,action=snapshot -- PROGRAM
//
// The first command aborts at the fourth request of 1 MiB or more, for a debugger or a core file;
// the second takes a snapshot when 500 MiB are exceeded. `max=BYTES` limits the range from above.

#include "heaptide.h"

#include <inttypes.h>
#include <stdio.h>

static uint64_t min_bytes, max_bytes = UINT64_MAX; // requests of these sizes count,
static int by_size;                                // if either was given
static uint64_t live_limit;                        // 0: none
static uint64_t skip;                              // ignores this many hits of a limit first
static int snapshot;                               // instead of an abort

static uint64_t requests, crossings;
static int64_t live;

// Only one thread gets each count, so each action happens once.
static void reached(uint64_t count, const char *what, uint64_t bytes)
{
    if (count != skip + 1)
        return;
    fprintf(stderr, "threshold: %s of %" PRIu64 " bytes, number %" PRIu64 "\n", what, bytes, count);
    if (!snapshot)
        abort();
    heaptide_snapshot_now("threshold");
}

static void on_allocated(void *context, void *block, size_t requested, size_t usable)
{
    (void)context, (void)block;
    if (by_size && requested >= min_bytes && requested <= max_bytes)
        reached(__atomic_add_fetch(&requests, 1, __ATOMIC_RELAXED), "request", requested);
    if (live_limit) {
        // Exactly one thread sees live memory cross the limit upwards.
        int64_t before = __atomic_fetch_add(&live, (int64_t)usable, __ATOMIC_RELAXED);
        int64_t now = before + (int64_t)usable;
        if (before <= (int64_t)live_limit && now > (int64_t)live_limit)
            reached(__atomic_add_fetch(&crossings, 1, __ATOMIC_RELAXED), "live total",
                    (uint64_t)now);
    }
}

static void on_freed(void *context, void *block, size_t usable)
{
    (void)context, (void)block;
    if (live_limit)
        __atomic_fetch_sub(&live, (int64_t)usable, __ATOMIC_RELAXED);
}

static int read_option(const char *name, const char *value)
{
    if (!strcmp(name, "action")) {
        snapshot = !strcmp(value, "snapshot");
        return snapshot || !strcmp(value, "abort");
    }
    if (!strcmp(name, "min") || !strcmp(name, "max")) {
        by_size = 1;
        return heaptide_option_number(value, name[1] == 'i' ? &min_bytes : &max_bytes);
    }
    if (!strcmp(name, "live"))
        return heaptide_option_number(value, &live_limit) && live_limit <= INT64_MAX;
    return !strcmp(name, "skip") && heaptide_option_number(value, &skip);
}

static int read_options(char *options)
{
    static const char expected[] =
        "expected min=BYTES,max=BYTES,live=BYTES,skip=COUNT,action=abort|snapshot";
    const char *name, *value;
    int more;
    while ((more = heaptide_next_option(&options, &name, &value)) > 0) {
        if (!read_option(name, value)) {
            fprintf(stderr, "threshold: `%s=%s`: %s\n", name, value, expected);
            return 0;
        }
    }
    if (more < 0 || (!by_size && !live_limit) || min_bytes > max_bytes) {
        fprintf(stderr, "threshold: no limit in the options: %s\n", expected);
        return 0;
    }
    return 1;
}

static void create(char *options)
{
    struct heaptide_monitor monitor = {
        .version = HEAPTIDE_MONITOR_VERSION,
        .size = sizeof monitor,
        .name = "threshold",
        .allocated = on_allocated,
        .freed = on_freed,
    };
    if (!read_options(options))
        return;
    if (!heaptide_register(&monitor))
        fprintf(stderr, "threshold: not registered: no room for another monitor\n");
}

HEAPTIDE_MONITOR_PLUGIN("libthreshold.so", create);
