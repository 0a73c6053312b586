//! Memory of the heap and mappings that rise and fall, beside a mapped file and reserved addresses,
//! which are no data of the program. The argument selects what it has in two steps, in MiB:
//!
//!   heap    8 and 24 mapped, then 32 and 16 mapped: at most 48
//!   mapped  32 and 0 mapped, then 0 and 64 mapped: at most 64
//!   both    32 and 8 mapped, then 16 and 64 mapped: at most 80
//!   unused  8, and 1024 mapped, to which it writes nothing
//
// clock: set
#include "clock.h"
#include <sys/mman.h>

enum { MIB = 1 << 20, ANONYMOUS = MAP_PRIVATE | MAP_ANONYMOUS };

static char *block, *mapping;

static NOINLINE void hold(size_t mib)
{
    free(block);
    block = mib == 0 ? NULL : memset(keep(malloc(mib * MIB)), 1, mib * MIB);
    pass_us(1000);
}

static NOINLINE char *get_mapping(size_t mib)
{
    char *start = mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    return memset(start, 1, mib * MIB);
}

static void map(size_t before, size_t mib)
{
    if (mib < before)
        CHECK(munmap(mapping + mib * MIB, (before - mib) * MIB) == 0);
    else if (before == 0 && mib > 0)
        mapping = get_mapping(mib);
    else if (mib > before)
        get_mapping(mib - before);
    pass_us(1000);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    int file = open(argv[0], O_RDONLY);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0) != MAP_FAILED);
    void *reserved = mmap(NULL, 1L << 30, PROT_NONE, ANONYMOUS, -1, 0);
    CHECK(reserved != MAP_FAILED);
    pass_us(1000);
    if (strcmp(argv[1], "heap") == 0) {
        hold(8);
        map(0, 24);
        map(24, 16);
        hold(32);
    } else if (strcmp(argv[1], "mapped") == 0) {
        hold(32);
        hold(0);
        map(0, 64);
    } else if (strcmp(argv[1], "unused") == 0) {
        hold(8);
        CHECK(mmap(NULL, 1L << 30, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0) != MAP_FAILED);
    } else {
        hold(32);
        map(0, 8);
        hold(16);
        map(8, 64);
    }
    map(0, 0);
    CHECK(munmap(reserved, 1L << 30) == 0);
    return 0;
}
