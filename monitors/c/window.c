//! A monitor that prints the counters of a part of the run, and the memory that was allocated in it
//! and not freed in it.
//
//     cc -O2 -shared -fPIC -I include -o libwindow.so monitors/c/window.c
//     heaptide run --monitor ./libwindow.so -- PROGRAM
//     heaptide run --monitor ./libwindow.so:from=1000,to=2000 -- PROGRAM
//
// The program marks the part itself, from any thread, once or repeatedly: it calls two functions if
// they are defined. Position-independent programs, the default, can do so:
//
//     void heaptide_window_monitor_begin(void) __attribute__((weak));
//     if (heaptide_window_monitor_begin)
//         heaptide_window_monitor_begin();
//
// A shared library may define empty functions and call them: those of this library take precedence,
// because it is preloaded. For a program that cannot be changed, counts of allocations mark the
// part: from the N-th to the M-th.
//
// A table of addresses identifies the blocks that were allocated in the window.

#include "heaptide.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

// One mutex for everything: simple, and fast enough for a part of a run. Outside of a window, once
// it has no blocks left, threads no longer take it.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// The blocks of the open window, with open addressing; NULL: empty. The table grows by a factor of
// two.
struct entry {
    void *block;
    size_t usable;
};
static struct entry *entries;
static size_t capacity, filled;

static struct {
    uint64_t requested, allocations, frees, own_frees;
    int64_t added, max_added;       // usable bytes since its start
    uint64_t kept_blocks, kept_bytes; // allocated in the window, not yet freed
} figures;

static int open_now;                // written under the lock, read without it
static int registered;
static unsigned windows;
static uint64_t count, from, to;    // allocations so far, and the options
static int by_count;

// The descriptor of the report: a copy of stderr, because programs may close that before the
// monitor ends, as `ls` does at exit. Its number does not conflict with the program's own
// descriptors.
static int report = 2;

static size_t place(void *block)
{
    return ((uintptr_t)block >> 4) * 0x9E3779B97F4A7C15u % capacity;
}

static void insert(void *block, size_t usable)
{
    size_t i = place(block);
    while (entries[i].block)
        i = (i + 1) % capacity;
    entries[i].block = block;
    entries[i].usable = usable;
}

// Makes space for another block. If out of memory, the window tracks fewer of its blocks.
static int grow(void)
{
    struct entry *old = entries, *fresh;
    size_t old_capacity = capacity, i;
    if (filled < capacity / 2)
        return 1;
    fresh = (struct entry *)calloc(capacity ? capacity * 2 : 1024, sizeof *fresh);
    if (!fresh)
        return 0;
    entries = fresh;
    capacity = old_capacity ? old_capacity * 2 : 1024;
    for (i = 0; i < old_capacity; i++)
        if (old[i].block)
            insert(old[i].block, old[i].usable);
    free(old);
    return 1;
}

// Removes a block and closes the gap: entries after it move up so that a lookup finds them.
static int take(void *block)
{
    size_t i, j;
    if (!capacity)
        return 0;
    for (i = place(block); entries[i].block != block; i = (i + 1) % capacity)
        if (!entries[i].block)
            return 0;
    for (j = (i + 1) % capacity; entries[j].block; j = (j + 1) % capacity) {
        size_t home = place(entries[j].block);
        if ((i < j) ? (home <= i || home > j) : (home <= i && home > j)) {
            entries[i] = entries[j];
            i = j;
        }
    }
    entries[i].block = NULL;
    filled--;
    return 1;
}

static void begin(void)
{
    if (open_now)
        return;
    memset(&figures, 0, sizeof figures);
    if (capacity)
        memset(entries, 0, capacity * sizeof *entries);
    filled = 0;
    __atomic_store_n(&open_now, 1, __ATOMIC_RELAXED);
}

static void end(void)
{
    if (!open_now)
        return;
    __atomic_store_n(&open_now, 0, __ATOMIC_RELAXED);
    windows++;
    dprintf(report,
            "window %u: requested %" PRIu64 " added %" PRId64 " peak %" PRId64
            " allocations %" PRIu64 " frees %" PRIu64 " of its own %" PRIu64
            " not yet freed %" PRIu64 " blocks %" PRIu64 " bytes\n",
            windows, figures.requested, figures.added, figures.max_added, figures.allocations,
            figures.frees, figures.own_frees, figures.kept_blocks, figures.kept_bytes);
}

// The functions that the program calls. Printing allocates, so recording is paused.
__attribute__((visibility("default"))) void heaptide_window_monitor_begin(void);
void heaptide_window_monitor_begin(void)
{
    if (!__atomic_load_n(&registered, __ATOMIC_ACQUIRE) || by_count)
        return;
    heaptide_pause(0);
    pthread_mutex_lock(&lock);
    begin();
    pthread_mutex_unlock(&lock);
    heaptide_resume(0);
}

__attribute__((visibility("default"))) void heaptide_window_monitor_end(void);
void heaptide_window_monitor_end(void)
{
    if (!__atomic_load_n(&registered, __ATOMIC_ACQUIRE) || by_count)
        return;
    heaptide_pause(0);
    pthread_mutex_lock(&lock);
    end();
    pthread_mutex_unlock(&lock);
    heaptide_resume(0);
}

static void on_allocated(void *context, void *block, size_t requested, size_t usable)
{
    uint64_t number = 0;
    (void)context;
    if (by_count)
        number = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    if (!__atomic_load_n(&open_now, __ATOMIC_RELAXED) && (number == 0 || number != from))
        return;
    pthread_mutex_lock(&lock);
    if (number && number == from)
        begin();
    if (open_now && number <= (by_count ? to : 0)) {
        figures.requested += requested;
        figures.allocations++;
        figures.added += (int64_t)usable;
        if (figures.added > figures.max_added)
            figures.max_added = figures.added;
        if (grow()) {
            insert(block, usable);
            filled++;
            figures.kept_blocks++;
            figures.kept_bytes += usable;
        }
    }
    if (number && number >= to)
        end();
    pthread_mutex_unlock(&lock);
}

static void on_freed(void *context, void *block, size_t usable)
{
    (void)context;
    if (!__atomic_load_n(&open_now, __ATOMIC_RELAXED))
        return;
    pthread_mutex_lock(&lock);
    if (open_now) {
        figures.frees++;
        figures.added -= (int64_t)usable;
        if (take(block)) {
            figures.own_frees++;
            figures.kept_blocks--;
            figures.kept_bytes -= usable;
        }
    }
    pthread_mutex_unlock(&lock);
}

// A window that is still open ends with the program.
static void on_destroy(void *context)
{
    (void)context;
    __atomic_store_n(&registered, 0, __ATOMIC_RELEASE);
    pthread_mutex_lock(&lock);
    end();
    free(entries);
    entries = NULL;
    capacity = filled = 0;
    if (report != 2)
        close(report);
    pthread_mutex_unlock(&lock);
}

// A fork waits until no thread is in the table, so that the child inherits a consistent table and
// an unlocked mutex.
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }

static int read_options(char *options)
{
    const char *name, *value;
    int more;
    while ((more = heaptide_next_option(&options, &name, &value)) > 0) {
        uint64_t *number = !strcmp(name, "from") ? &from : !strcmp(name, "to") ? &to : NULL;
        if (!number || !heaptide_option_number(value, number)) {
            fprintf(stderr, "window: `%s=%s`: expected from=N,to=M\n", name, value);
            return 0;
        }
        by_count = 1;
    }
    if (more < 0 || (by_count && !(0 < from && from <= to))) {
        fprintf(stderr, "window: options: expected from=N,to=M with 0 < N <= M\n");
        return 0;
    }
    return 1;
}

static void create(char *options)
{
    struct heaptide_monitor monitor = {
        .version = HEAPTIDE_MONITOR_VERSION,
        .size = sizeof monitor,
        .name = "window",
        .allocated = on_allocated,
        .freed = on_freed,
        .destroy = on_destroy,
    };
    if (!read_options(options))
        return;
    pthread_atfork(before_fork, after_fork, after_fork);
    report = fcntl(2, F_DUPFD_CLOEXEC, 200);
    if (report < 0)
        report = 2;
    __atomic_store_n(&registered, 1, __ATOMIC_RELEASE);
    if (!heaptide_register(&monitor)) {
        __atomic_store_n(&registered, 0, __ATOMIC_RELEASE);
        fprintf(stderr, "window: not registered: no room for another monitor\n");
    }
}

HEAPTIDE_MONITOR_PLUGIN("libwindow.so", create);
