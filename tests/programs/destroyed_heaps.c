//! Destroys heaps of mimalloc with their blocks, as the allocator of the process, or with `LOADED`
//! as one of a library that is loaded later. Blocks of a deleted heap stay.
//
// expect recording unmatched_frees=0
// expect function:destroyed allocations=1003 frees=1003 live_blocks=0 live_bytes=0
// expect function:destroyed requested_bytes=11101000
// expect function:freed allocations=1 frees=1
// expect function:deleted allocations=1 frees=0 live_blocks=1 requested_bytes=2000
#define _GNU_SOURCE
#include "guest.h"
#include <dlfcn.h>

typedef struct mi_heap_s mi_heap_t;
#ifdef LOADED
static mi_heap_t *(*mi_heap_new)(void);
static void *(*mi_heap_malloc)(mi_heap_t *, size_t);
static void *(*mi_heap_malloc_aligned)(mi_heap_t *, size_t, size_t);
static void (*mi_heap_destroy)(mi_heap_t *);
static void (*mi_heap_delete)(mi_heap_t *);
static void (*mi_free)(void *);

static void load(void)
{
    void *library = dlopen(LOADED, RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    *(void **)&mi_heap_new = dlsym(library, "mi_heap_new");
    *(void **)&mi_heap_malloc = dlsym(library, "mi_heap_malloc");
    *(void **)&mi_heap_malloc_aligned = dlsym(library, "mi_heap_malloc_aligned");
    *(void **)&mi_heap_destroy = dlsym(library, "mi_heap_destroy");
    *(void **)&mi_heap_delete = dlsym(library, "mi_heap_delete");
    *(void **)&mi_free = dlsym(library, "mi_free");
}
#else
mi_heap_t *mi_heap_new(void);
void *mi_heap_malloc(mi_heap_t *, size_t);
void *mi_heap_malloc_aligned(mi_heap_t *, size_t, size_t);
void mi_heap_destroy(mi_heap_t *);
void mi_heap_delete(mi_heap_t *);
void mi_free(void *);
static void load(void) {}
#endif

// Small blocks of many pages, large ones, and one whose alignment puts it behind the start of the
// allocator's block.
static NOINLINE void destroyed(mi_heap_t *heap)
{
    for (int i = 0; i < 1000; i++)
        keep(mi_heap_malloc(heap, 100));
    keep(mi_heap_malloc(heap, 1000000));
    keep(mi_heap_malloc(heap, 10000000));
    CHECK((uintptr_t)keep(mi_heap_malloc_aligned(heap, 1000, 4096)) % 4096 == 0);
}
static NOINLINE void freed(mi_heap_t *heap) { mi_free(keep(mi_heap_malloc(heap, 3000))); }
static NOINLINE void deleted(mi_heap_t *heap) { keep(mi_heap_malloc(heap, 2000)); }
static NOINLINE void empty(void) { mi_heap_destroy(mi_heap_new()); }

int main(void)
{
    load();
    mi_heap_t *heap = mi_heap_new(), *other = mi_heap_new();
    destroyed(heap);
    freed(heap);
    mi_heap_destroy(heap);
    deleted(other);
    mi_heap_delete(other);
    empty();
    say("done\n");
    return 0;
}
