//! Memory that becomes resident while nothing is allocated; the argument selects what happens then.
//! `given-back`: 64 MiB that the program mapped are resident until MADV_DONTNEED. `killed`: 64 MiB
//! of the heap are touched, and SIGKILL ends the program. `mapped`: 64 MiB of mappings beside 16
//! MiB of the heap, both until the end.
#include "guest.h"
#include <signal.h>
#include <sys/mman.h>

enum { MIB = 1 << 20 };

static NOINLINE char *map(void)
{
    int protection = PROT_READ | PROT_WRITE;
    return keep(mmap(NULL, 64 * MIB, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}
static NOINLINE char *heap(size_t bytes) { return keep(calloc(1, bytes)); }

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    if (strcmp(argv[1], "killed") == 0) {
        memset(heap(64 * MIB), 1, 64 * MIB);
        raise(SIGKILL);
    }
    char *mapped = map();
    CHECK(mapped != MAP_FAILED);
    memset(mapped, 1, 64 * MIB);
    if (strcmp(argv[1], "given-back") == 0)
        CHECK(madvise(mapped, 64 * MIB, MADV_DONTNEED) == 0);
    else
        memset(heap(16 * MIB), 1, 16 * MIB);
    return 0;
}
