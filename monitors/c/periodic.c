//! A monitor that writes a line of counters at a fixed interval, to one CSV file per process.
//
//     cc -O2 -shared -fPIC -pthread -I include -o libperiodic.so monitors/c/periodic.c
//     heaptide run --monitor ./libperiodic.so:interval=100,file=heap- -- PROGRAM
//
// writes heap-PID.csv; without options it writes periodic_alloc_PID.csv every second. A dedicated
// thread writes, so that there are lines even while the program does not allocate. Threads do not
// survive a fork: a child starts a new one, with a file of its own, when it first allocates. A
// program that replaces itself (exec) keeps its pid; the file of the next image is heap-PID-1.csv,
// and so on.

#include "heaptide.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

// More images than any process is expected to have.
enum { MAX_IMAGES = 1000 };

static struct {
    uint64_t requested, allocations, frees, largest;
    int64_t used, max_used; // usable bytes
} counts;

static long interval_ms = 1000;
static char prefix[1024] = "periodic_alloc_";
static struct timespec start;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake;
static pthread_t thread;
static int needs_thread; // set in a forked child
static int runs, stops;  // under the lock
static int file = -1;

static void raise_to(uint64_t *max, uint64_t value)
{
    uint64_t known = __atomic_load_n(max, __ATOMIC_RELAXED);
    while (value > known && !__atomic_compare_exchange_n(max, &known, value, 1, __ATOMIC_RELAXED,
                                                         __ATOMIC_RELAXED))
        continue;
}

static long milliseconds_since_start(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
}

static uint64_t read_unsigned(const uint64_t *value)
{
    return __atomic_load_n(value, __ATOMIC_RELAXED);
}

// Writes each line with one call, so that a killed program leaves whole lines. A full disk loses
// lines.
static void write_line(void)
{
    char line[256];
    int64_t used = __atomic_load_n(&counts.used, __ATOMIC_RELAXED);
    int64_t max = __atomic_load_n(&counts.max_used, __ATOMIC_RELAXED);
    int length = snprintf(line, sizeof line,
                          "%ld, %" PRIu64 ", %" PRId64 ", %" PRId64 ", %" PRIu64 ", %" PRIu64
                          ", %" PRIu64 "\n",
                          milliseconds_since_start(), read_unsigned(&counts.requested), max, used,
                          read_unsigned(&counts.largest), read_unsigned(&counts.allocations),
                          read_unsigned(&counts.frees));
    if (length > 0 && write(file, line, (size_t)length) < 0)
        return;
}

static int open_file(void)
{
    static const char header[] = "timestamp, total-requested, max-actual, present-actual, "
                                 "max-single, nAllocs, nDeallocs\n";
    char path[1100];
    int image, flags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC;
    for (image = 0; image < MAX_IMAGES && file < 0; image++) {
        if (image == 0)
            snprintf(path, sizeof path, "%s%d.csv", prefix, (int)getpid());
        else
            snprintf(path, sizeof path, "%s%d-%d.csv", prefix, (int)getpid(), image);
        file = open(path, flags, 0666);
        if (file < 0 && errno != EEXIST)
            break;
    }
    if (file < 0) {
        fprintf(stderr, "periodic: %s: %s\n", path, strerror(errno));
        return 0;
    }
    return write(file, header, sizeof header - 1) > 0;
}

// Allocations of this thread are not the program's.
static void *write_lines(void *unused)
{
    struct timespec next = start;
    heaptide_pause(0);
    pthread_mutex_lock(&lock);
    while (!stops) {
        next.tv_sec += interval_ms / 1000;
        next.tv_nsec += interval_ms % 1000 * 1000000;
        if (next.tv_nsec >= 1000000000) {
            next.tv_sec++;
            next.tv_nsec -= 1000000000;
        }
        while (!stops && pthread_cond_timedwait(&wake, &lock, &next) == 0)
            continue;
        if (!stops)
            write_line();
    }
    pthread_mutex_unlock(&lock);
    heaptide_resume(0);
    return unused;
}

// Blocks all signals: the program's handlers must not run on a thread that it does not know.
static int start_thread(void)
{
    sigset_t all, before;
    pthread_condattr_t monotonic;
    int failed;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (!open_file())
        return 0;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, NULL, write_lines, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    runs = !failed;
    if (failed)
        fprintf(stderr, "periodic: no thread: %s\n", strerror(failed));
    return runs;
}

// The first thread of a child that allocates starts the writer.
static void start_in_child(void)
{
    if (__atomic_exchange_n(&needs_thread, 0, __ATOMIC_ACQ_REL))
        start_thread();
}

static void on_allocated(void *context, void *block, size_t requested, size_t usable)
{
    int64_t used;
    (void)context, (void)block;
    if (__builtin_expect(__atomic_load_n(&needs_thread, __ATOMIC_RELAXED), 0))
        start_in_child();
    __atomic_fetch_add(&counts.requested, requested, __ATOMIC_RELAXED);
    __atomic_fetch_add(&counts.allocations, 1, __ATOMIC_RELAXED);
    raise_to(&counts.largest, requested);
    used = __atomic_add_fetch(&counts.used, (int64_t)usable, __ATOMIC_RELAXED);
    if (used > 0)
        raise_to((uint64_t *)&counts.max_used, (uint64_t)used);
}

static void on_freed(void *context, void *block, size_t usable)
{
    (void)context, (void)block;
    __atomic_fetch_add(&counts.frees, 1, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&counts.used, (int64_t)usable, __ATOMIC_RELAXED);
}

// The last line holds the final counters, even if the program runs shorter than the interval.
static void on_destroy(void *context)
{
    (void)context;
    if (!runs)
        return;
    pthread_mutex_lock(&lock);
    stops = 1;
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    write_line();
    close(file);
    runs = 0;
    file = -1;
}

// A fork waits until a line is complete. The child keeps the counts, because it inherits the
// parent's blocks.
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
static void in_child(void)
{
    pthread_mutex_unlock(&lock);
    if (file >= 0)
        close(file);
    file = -1;
    __atomic_store_n(&needs_thread, runs, __ATOMIC_RELEASE);
    runs = 0;
}

static int read_options(char *options)
{
    const char *name, *value;
    uint64_t number;
    int more;
    while ((more = heaptide_next_option(&options, &name, &value)) > 0) {
        if (!strcmp(name, "interval") && heaptide_option_number(value, &number) && number > 0
            && number <= 1000000000) {
            interval_ms = (long)number;
        } else if (!strcmp(name, "file") && *value && strlen(value) < sizeof prefix) {
            strcpy(prefix, value);
        } else {
            fprintf(stderr, "periodic: `%s=%s`: expected interval=MILLISECONDS,file=PREFIX\n", name,
                    value);
            return 0;
        }
    }
    if (more < 0)
        fprintf(stderr, "periodic: options: expected interval=MILLISECONDS,file=PREFIX\n");
    return more == 0;
}

static void create(char *options)
{
    struct heaptide_monitor monitor = {
        .version = HEAPTIDE_MONITOR_VERSION,
        .size = sizeof monitor,
        .name = "periodic",
        .allocated = on_allocated,
        .freed = on_freed,
        .destroy = on_destroy,
    };
    if (!read_options(options) || !start_thread())
        return;
    pthread_atfork(before_fork, after_fork, in_child);
    if (!heaptide_register(&monitor)) {
        fprintf(stderr, "periodic: not registered: no room for another monitor\n");
        on_destroy(NULL);
    }
}

HEAPTIDE_MONITOR_PLUGIN("libperiodic.so", create);
