//! Calls functions of mimalloc that have no equivalent in the C library, as the allocator of the
//! process.
//
// expect recording unmatched_frees=0
// expect function:in_heap allocations=3 frees=3 requested_bytes=6000 live_blocks=0
// expect function:zeroed allocations=2 frees=2 requested_bytes=1500 live_blocks=0
// expect function:aligned allocations=1 frees=1 requested_bytes=5000 live_blocks=0
// expect function:texts allocations=2 frees=2 requested_bytes=17 live_blocks=0
// expect function:resized allocations=2 reallocations=1 frees=2 requested_bytes=9000 live_blocks=0
#include "guest.h"

typedef struct mi_heap_s mi_heap_t;
mi_heap_t *mi_heap_get_default(void);
void *mi_heap_malloc(mi_heap_t *, size_t);
void *mi_heap_calloc(mi_heap_t *, size_t, size_t);
void *mi_heap_mallocn(mi_heap_t *, size_t, size_t);
void *mi_zalloc(size_t);
void *mi_zalloc_small(size_t);
void *mi_malloc_aligned(size_t, size_t);
char *mi_strdup(const char *);
char *mi_strndup(const char *, size_t);
void *mi_rezalloc(void *, size_t);
void mi_free_size(void *, size_t);
void mi_free(void *);

static NOINLINE void in_heap(mi_heap_t *heap)
{
    mi_free(keep(mi_heap_malloc(heap, 1000)));
    mi_free(keep(mi_heap_calloc(heap, 20, 100)));
    mi_free_size(keep(mi_heap_mallocn(heap, 30, 100)), 3000);
}
static NOINLINE void zeroed(void)
{
    free(keep(mi_zalloc(1000)));
    mi_free(keep(mi_zalloc_small(500)));
}
static NOINLINE void aligned(void)
{
    void *block = keep(mi_malloc_aligned(5000, 4096));
    CHECK((uintptr_t)block % 4096 == 0);
    mi_free(block);
}
static NOINLINE void texts(void)
{
    mi_free(keep(mi_strdup("a text")));
    mi_free(keep(mi_strndup("another text", 9)));
}
static NOINLINE void resized(void)
{
    mi_free(keep(mi_rezalloc(keep(mi_zalloc(1000)), 8000)));
}

int main(void)
{
    in_heap(mi_heap_get_default());
    zeroed();
    aligned();
    texts();
    resized();
    say("done\n");
    return 0;
}
