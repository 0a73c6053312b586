// Memory that a function with the name of LuaJIT's allocator maps: 64 MiB of address space, of
// which 5 MiB are resident. One block of 100,000 bytes is from malloc.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *volatile kept;

__attribute__((noinline)) char *lj_alloc_create(void)
{
    char *heap = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // Huge pages would make more of it resident.
    if (heap == MAP_FAILED || madvise(heap, 64 << 20, MADV_NOHUGEPAGE))
        abort();
    return heap;
}

int main(void)
{
    char *heap = lj_alloc_create();
    memset(heap, 1, 5 << 20);
    kept = malloc(100000);
    return heap[0] == 1 && kept ? 0 : 1;
}
