// The yardstick: forwards malloc, free, calloc and realloc and does nothing else.
//
// Its cost is the minimum of interposing with LD_PRELOAD.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define UNLIKELY(x) __builtin_expect(!!(x), 0)

static void *(*real_malloc)(size_t);
static void (*real_free)(void *);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);

// Blocks for dlsym, which may allocate before the real functions are known; never freed.
static char early[65536];
static size_t early_used;

static void *early_block(size_t size) {
    void *block = early + early_used;
    early_used += (size + 15) & ~15ul;
    return block;
}

static int is_early(void *block) {
    return (char *)block >= early && (char *)block < early + sizeof early;
}

static void find_real(void) {
    static int inside;
    if (inside) return;
    inside = 1;
    real_calloc = dlsym(RTLD_NEXT, "calloc");
    real_malloc = dlsym(RTLD_NEXT, "malloc");
    real_free = dlsym(RTLD_NEXT, "free");
    real_realloc = dlsym(RTLD_NEXT, "realloc");
}

void *malloc(size_t size) {
    if (UNLIKELY(!real_malloc)) find_real();
    return UNLIKELY(!real_malloc) ? early_block(size) : real_malloc(size);
}

void free(void *block) {
    if (!block || UNLIKELY(is_early(block))) return;
    if (UNLIKELY(!real_free)) find_real();
    real_free(block);
}

void *calloc(size_t count, size_t size) {
    if (UNLIKELY(!real_calloc)) find_real();
    return UNLIKELY(!real_calloc) ? early_block(count * size) : real_calloc(count, size);
}

void *realloc(void *block, size_t size) {
    if (UNLIKELY(!real_realloc)) find_real();
    if (!UNLIKELY(is_early(block))) return real_realloc(block, size);
    void *moved = malloc(size);
    return moved ? memcpy(moved, block, size) : moved;
}
