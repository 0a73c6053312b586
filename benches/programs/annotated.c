// Measures the cost of the in-program interface; without the recorder, that of calls that do
// nothing.
//
//   annotated pairs THREADS N       malloc/free pairs of 16 to 512 bytes, inside one scope
//   annotated monitored THREADS N   the same, with a monitor that does nothing
//   annotated handle N              begin and end of a scope by interned handle
//   annotated name N                the same by name
//   annotated changing N            pairs, each in another scope, about 45 frames deep
//
// Prints `ns_per_pair X`: a pair is a malloc and a free, or a begin and an end; X is the time of
// the slowest thread divided by the pairs of one thread.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "heaptide.h"

enum { WINDOW = 1000, THREADS_MAX = 64, SCOPES = 16, DEPTH = 40 };

typedef void Loop(uint64_t pairs, void **slots);

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t next(uint64_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static size_t pick_size(uint64_t random) { return 16 + (random >> 32) % 497; }

static void replace(uint64_t *s, void **slots, char n) {
    uint64_t random = next(s);
    unsigned i = (uint32_t)random % WINDOW;
    free(slots[i]);
    char *block = malloc(pick_size(random));
    *block = n;
    slots[i] = block;
}

static void pairs(uint64_t n, void **slots) {
    uint64_t s = 88172645463325252ull;
    for (uint64_t i = 0; i < n; i++) replace(&s, slots, (char)i);
}

static void by_handle(uint64_t n, void **slots) {
    (void)slots;
    for (uint64_t i = 0; i < n; i++) {
        HEAPTIDE_BEGIN("step");
        HEAPTIDE_END("step");
    }
}

static void by_name(uint64_t n, void **slots) {
    (void)slots;
    for (uint64_t i = 0; i < n; i++) {
        heaptide_begin("step");
        heaptide_end("step");
    }
}

static void changing(uint64_t n, void **slots) {
    uint64_t s = 88172645463325252ull;
    uint32_t names[SCOPES];
    for (int i = 0; i < SCOPES; i++) names[i] = heaptide_name_int("phase", i);
    for (uint64_t i = 0; i < n; i++) {
        heaptide_scope_begin(names[i % SCOPES]);
        replace(&s, slots, (char)i);
        heaptide_scope_end(names[i % SCOPES]);
    }
}

static __attribute__((noinline)) void deeper(Loop *loop, int depth, uint64_t n, void **slots) {
    if (depth == 0) loop(n, slots);
    else deeper(loop, depth - 1, n, slots);
    __asm__ volatile("" ::: "memory");
}

static void seen(void *context, void *block, size_t requested, size_t usable) {
    (void)context, (void)block, (void)requested, (void)usable;
}

static void gone(void *context, void *block, size_t usable) {
    (void)context, (void)block, (void)usable;
}

static void watch(void) {
    struct heaptide_monitor monitor;
    memset(&monitor, 0, sizeof monitor);
    monitor.version = HEAPTIDE_MONITOR_VERSION;
    monitor.size = sizeof monitor;
    monitor.name = "nothing";
    monitor.allocated = seen;
    monitor.freed = gone;
    heaptide_register(&monitor);
}

struct Work {
    Loop *loop;
    uint64_t n, time;
    int depth;
};

static void *run(void *argument) {
    struct Work *work = argument;
    static __thread void *slots[WINDOW];
    heaptide_begin("window");
    for (int i = 0; i < WINDOW; i++) slots[i] = malloc(16 + i % 497);
    uint64_t start = now();
    deeper(work->loop, work->depth, work->n, slots);
    work->time = now() - start;
    for (int i = 0; i < WINDOW; i++) free(slots[i]);
    heaptide_end("window");
    return 0;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        Loop *loop;
        int threaded, depth;
    } kinds[] = {{"pairs", pairs, 1, 0},  {"monitored", pairs, 1, 0}, {"handle", by_handle, 0, 0},
                 {"name", by_name, 0, 0}, {"changing", changing, 0, DEPTH}};
    for (unsigned k = 0; argc > 2 && k < sizeof kinds / sizeof *kinds; k++) {
        if (strcmp(argv[1], kinds[k].name)) continue;
        int threads = kinds[k].threaded && argc > 3 ? atoi(argv[2]) : 1;
        uint64_t n = strtoull(argv[argc - 1], 0, 10), most = 0;
        if (threads < 1 || threads > THREADS_MAX || n == 0) break;
        if (!strcmp(argv[1], "monitored")) watch();
        struct Work work[THREADS_MAX];
        pthread_t thread[THREADS_MAX];
        for (int i = 0; i < threads; i++) {
            work[i] = (struct Work){kinds[k].loop, n, 0, kinds[k].depth};
            if (i) pthread_create(&thread[i], 0, run, &work[i]);
        }
        run(&work[0]);
        for (int i = 1; i < threads; i++) pthread_join(thread[i], 0);
        for (int i = 0; i < threads; i++) most = work[i].time > most ? work[i].time : most;
        printf("ns_per_pair %.3f\n", (double)most / (double)n);
        return 0;
    }
    fprintf(stderr, "usage: annotated pairs|monitored THREADS N, or handle|name|changing N\n");
    return 2;
}
