// Does what its first argument names:
//
//   touched MAPPED TOUCHED   maps MAPPED MiB in `map_much`, writes TOUCHED MiB of them, and keeps
//                            1,000 blocks of 1,000 bytes (1,000 usable)
//   late                     `keep` keeps 1,000 blocks of 1,000 bytes, has 5,000,000 bytes more
//                            for a moment, and keeps 2,000 such blocks after that: 3,000 are live
//                            at the end; 1 block is temporary, of 3,001

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB (1ul << 20)

static void *kept[3000];
static char *mapped;

static void take(int from, int to) {
    for (int i = from; i < to; i++)
        kept[i] = memset(malloc(1000), 1, 1000);
}

__attribute__((noinline)) static void map_much(size_t size, size_t touched) {
    mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(mapped, 1, touched);
}

__attribute__((noinline)) static void keep(void) {
    for (int i = 0; i < 1000; i++)
        kept[i] = memset(malloc(1000), 1, 1000);
    char *much = memset(malloc(5000000), 1, 5000000);
    __asm__ volatile("" ::"r"(much));
    free(much);
    for (int i = 1000; i < 3000; i++)
        kept[i] = memset(malloc(1000), 1, 1000);
}

int main(int count, char **words) {
    if (count == 4 && strcmp(words[1], "touched") == 0) {
        map_much(strtoul(words[2], NULL, 10) * MIB, strtoul(words[3], NULL, 10) * MIB);
        take(0, 1000);
    } else if (count == 2 && strcmp(words[1], "late") == 0) {
        keep();
    } else {
        return 1;
    }
    return 0;
}
