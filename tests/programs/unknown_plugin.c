//! A library of unknown_family.c: an allocator that maps each block, with names of its own. With
//! -DWITH_MALLOC the library also uses the allocator of the program, for other purposes.
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

static __attribute__((noinline)) void *pages(size_t size)
{
    int rights = PROT_READ | PROT_WRITE;
    void *start = mmap(NULL, size, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile("" : "+r"(start));
    return start;
}

#ifdef SECRETS // names of libsodium
#define zz_malloc sodium_malloc
#define zz_free sodium_free
#endif

void *zz_malloc(size_t size)
{
    size_t *block = pages(size + 16);
    if (block == MAP_FAILED)
        return NULL;
    *block = size + 16;
    return block + 2;
}

void zz_free(void *block)
{
    if (block)
        munmap((size_t *)block - 2, ((size_t *)block)[-2]);
}

void work(void (*back)(void))
{
    for (int i = 0; i < 10; i++) {
        char *block = zz_malloc(10000);
        if (block)
            block[i] = 1;
        zz_free(block);
    }
#ifdef WITH_MALLOC
    void *volatile other = malloc(10);
    free(other);
#endif
    back();
    __asm__ volatile("");
}
