//! A program with another C library, musl: the same library of the recorder records it.
//
// musl-gcc omits the index of unwind tables, which compilers of musl systems request.
// compiler: musl-gcc
// build: -pthread -Wl,--eh-frame-hdr
// expect function:made allocations=300 frees=250 requested_bytes=30000
// expect function:zeroed allocations=10 frees=10 requested_bytes=400
// expect function:grown allocations=10 reallocations=10 frees=10 requested_bytes=20000
// expect function:overflowing allocations=0 failed=1
// expect function:in_thread>made allocations=50 frees=50
// order: varies
#include "guest.h"
#include <pthread.h>

static volatile size_t half = (size_t)1 << 63;

static NOINLINE void *made(void) { return keep(malloc(100)); }
static NOINLINE void *zeroed(void) { return keep(calloc(4, 10)); }
static NOINLINE void *grown(void *p) { return keep(realloc(p, 2000)); }
static NOINLINE void *overflowing(void) { return keep(calloc(half, 2)); }
static NOINLINE void *in_thread(void *unused)
{
    for (int i = 0; i < 50; i++)
        free(made());
    return keep(unused);
}

int main(void)
{
    for (int i = 0; i < 200; i++)
        free(made());
    for (int i = 0; i < 50; i++)
        made();
    for (int i = 0; i < 10; i++)
        free(grown(zeroed()));
    CHECK(overflowing() == NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0);
    pthread_join(thread, NULL);
    say("musl\n");
    return 13;
}
