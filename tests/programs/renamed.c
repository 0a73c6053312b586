//! Calls the process's allocator by names of its own, mixed with those of the C library. With -D
//! NAME=mi_, mimalloc; with -D NAME=tc_, tcmalloc.
//
// expect recording unmatched_frees=0
// expect function:own_names allocations=5 frees=5 requested_bytes=150300 live_blocks=0
// expect function:crossed allocations=2 frees=2 requested_bytes=5000 live_blocks=0
// expect function:kept allocations=40 frees=0 requested_bytes=40000 live_blocks=40
// expect function:resized allocations=2 reallocations=1 frees=2 requested_bytes=70000 live_blocks=0
#include "guest.h"

#define JOIN(a, b) a##b
#define NAMED(a, b) JOIN(a, b)
#define OWN(name) NAMED(NAME, name)

void *OWN(malloc)(size_t);
void *OWN(calloc)(size_t, size_t);
void *OWN(realloc)(void *, size_t);
void *OWN(memalign)(size_t, size_t);
int OWN(posix_memalign)(void **, size_t, size_t);
void *OWN(new)(size_t);
void OWN(free)(void *);

static NOINLINE void own_names(void)
{
    void *blocks[5] = {OWN(malloc)(100000), OWN(calloc)(100, 200), OWN(memalign)(64, 30000)};
    CHECK(OWN(posix_memalign)(&blocks[3], 128, 200) == 0);
    blocks[4] = OWN(new)(100);
    for (int i = 0; i < 5; i++)
        OWN(free)(keep(blocks[i]));
}
static NOINLINE void crossed(void)
{
    free(keep(OWN(malloc)(2000)));
    OWN(free)(keep(malloc(3000)));
}
static NOINLINE void kept(void)
{
    for (int i = 0; i < 20; i++) {
        keep(OWN(malloc)(1000));
        keep(malloc(1000));
    }
}
static NOINLINE void resized(void)
{
    void *block = OWN(malloc)(10000);
    OWN(free)(keep(OWN(realloc)(keep(block), 60000)));
}

int main(void)
{
    OWN(free)(NULL);
    own_names();
    crossed();
    kept();
    resized();
    say("done\n");
    return 0;
}
