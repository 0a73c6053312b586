//! A library of unknown_family.c: functions that look like an allocator and call that of the
//! program, directly or (-DPOINTERS) through pointers. Other functions of the library map memory.
#include <stdlib.h>
#include <sys/mman.h>

#ifdef POINTERS
void *(*take)(size_t) = malloc;
void (*give)(void *) = free;
#else
static __attribute__((noinline)) void *take(size_t size)
{
    void *block = malloc(size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

static __attribute__((noinline)) void give(void *block) { free(block); }
#endif

void *zz_malloc(size_t size)
{
    size_t *block = take(size + 16);
    return block ? block + 2 : NULL;
}

void zz_free(void *block) { give(block ? (size_t *)block - 2 : NULL); }

void work(void (*back)(void))
{
    void *pages = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 10; i++)
        zz_free(zz_malloc(100));
    back();
    if (pages != MAP_FAILED)
        munmap(pages, 4096);
}
