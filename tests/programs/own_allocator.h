//! An allocator for a static program, with the names of the C library's: `-include` this file. The
//! program then contains no code of the C library's allocator. It has one thread.
#ifndef OWN_ALLOCATOR_H
#define OWN_ALLOCATOR_H
#include <errno.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static alignas(16) char own_memory[1 << 20];
static size_t own_used;

/* Before each block: its bytes, and padding. */
void *malloc(size_t bytes) {
    size_t all = (bytes + 31) & ~(size_t)15;
    size_t *block = (size_t *)(own_memory + own_used);
    if (bytes > sizeof own_memory || all > sizeof own_memory - own_used) {
        errno = ENOMEM;
        return NULL;
    }
    own_used += all;
    *block = bytes;
    return block + 2;
}

void free(void *block) { (void)block; }

void *calloc(size_t count, size_t bytes) { return malloc(count * bytes); }

void *realloc(void *block, size_t bytes) {
    void *moved = malloc(bytes);
    if (block && moved) {
        size_t before = ((size_t *)block)[-2];
        memcpy(moved, block, before < bytes ? before : bytes);
    }
    return moved;
}

void *memalign(size_t alignment, size_t bytes) {
    uintptr_t block = (uintptr_t)malloc(bytes + alignment);
    return block ? (void *)((block + alignment - 1) & -alignment) : NULL;
}

void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void **block, size_t alignment, size_t bytes) {
    *block = memalign(alignment, bytes);
    return *block ? 0 : ENOMEM;
}

void *valloc(size_t bytes) { return memalign(4096, bytes); }

void *pvalloc(size_t bytes) { return memalign(4096, bytes); }

size_t malloc_usable_size(void *block) { return ((size_t *)block)[-2]; }
#endif
