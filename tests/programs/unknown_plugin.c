//! A library of unknown_family.c: an allocator that maps each block, with names of its own.
#include <stddef.h>
#include <sys/mman.h>

void *zz_malloc(size_t size)
{
    int rights = PROT_READ | PROT_WRITE;
    size_t *block = mmap(NULL, size + 16, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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
    back();
    __asm__ volatile("");
}
