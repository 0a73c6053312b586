//! The peak of each stack, thread and scope, and live requested bytes.
//
//   a        10 × 100 bytes, then 8 are freed: most 1000 (usable 1040), live 200 (208)
//   b        500 bytes, freed; then 100 and 300 that stay: most 500 (504), live 400 (416)
//   c1, c2   in scope work: 1000 bytes, freed, then 600, freed: most of the scope 1000
//   d        200 bytes, labelled as rows; 200 more; both freed: most 400, without the label 200
//   chunk    4096 bytes (usable 4104) for a pool, of which slot gets 100 in 128 and 200 in 256, all
//            freed: most of the chunk 4096 (4104), of slot 300 (384)
//   e        in the thread helper, in scope help: 3 × 1000, freed by main: most 3000
//
// build: -pthread
// expect function:a allocations=10 frees=8 requested_bytes=1000 live_bytes=208
// expect function:b allocations=3 frees=1 requested_bytes=900 live_bytes=416
// expect scope:work allocations=2 frees=2
// expect scope:help allocations=3 frees=3 requested_bytes=3000
#include "api_guest.h"
#include <pthread.h>

static NOINLINE void *a(void) { return keep(malloc(100)); }
static NOINLINE void *b(size_t size) { return keep(malloc(size)); }
static NOINLINE void *c1(void) { return keep(malloc(1000)); }
static NOINLINE void *c2(void) { return keep(malloc(600)); }
static NOINLINE void *d(void) { return keep(malloc(200)); }
static NOINLINE void *e(void) { return keep(malloc(1000)); }
static NOINLINE char *chunk(void) { return (char *)keep(malloc(4096)); }

static NOINLINE void slot(uint32_t pool, char *at, size_t requested, size_t usable)
{
    KNOWN(heaptide_pool_allocated(pool, at, requested, usable));
    stay();
}

static void stays(void)
{
    void *blocks[10];
    for (int i = 0, count = keep(10); i < count; i++)
        blocks[i] = a();
    for (int i = 0; i < 8; i++)
        free(blocks[i]);
    static const size_t sizes[] = {500, 100, 300};
    for (int i = 0, count = keep(3); i < count; i++) {
        void *block = b(sizes[i]);
        if (keep(i) == 0)
            free(block);
    }
}

static void labels(void)
{
    void *blocks[2];
    for (int i = 0, count = keep(2); i < count; i++) {
        blocks[i] = d();
        if (keep(i) == 0)
            KNOWN(heaptide_label_block(blocks[i], "rows"));
    }
    free(blocks[0]);
    free(blocks[1]);
}

static void pool(void)
{
    uint32_t pool = heaptide_pool_named("arena");
    char *memory = chunk();
    KNOWN(heaptide_pool_add(pool, memory, 4096));
    static const size_t sizes[][2] = {{100, 128}, {200, 256}};
    const size_t(*size)[2] = keep(&sizes[0]);
    char *at = memory;
    for (int i = 0, count = keep(2); i < count; i++, size++) {
        slot(pool, at, (*size)[0], (*size)[1]);
        at += (*size)[1];
    }
    KNOWN(heaptide_pool_freed(memory));
    KNOWN(heaptide_pool_freed(memory + 128));
    free(memory);
}

static void *helper(void *given)
{
    void **blocks = (void **)given;
    pthread_setname_np(pthread_self(), "helper");
    heaptide_begin("help");
    for (int i = 0, count = keep(3); i < count; i++)
        blocks[i] = e();
    heaptide_end("help");
    return NULL;
}

int main(void)
{
    stays();
    heaptide_begin("work");
    free(c1());
    free(c2());
    heaptide_end("work");
    labels();
    pool();
    void *blocks[3];
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, helper, blocks) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < 3; i++)
        free(blocks[i]);
    say("highest\n");
    return 0;
}
