//! Reserves 1 GiB of addresses and maps 32 MiB of them again for data, as runtimes with a heap of
//! their own do. The addresses are the peak of all mappings, before there is any data. With an
//! argument, it maps and unmaps a page 20,000 times before: more changes than a profile stores.
#include "guest.h"
#include <sys/mman.h>

enum { RESERVED = 1 << 30, DATA = 32 << 20 };

static NOINLINE char *commit(char *at)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    char *data = keep(mmap(at, DATA, PROT_READ | PROT_WRITE, flags, -1, 0));
    CHECK(data == at);
    return data;
}

int main(int argc, char **argv)
{
    (void)argv;
    for (int i = 0; argc > 1 && i < 20000; i++)
        CHECK(munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096) == 0);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *reserved = mmap(NULL, RESERVED, PROT_NONE, flags, -1, 0);
    CHECK(reserved != MAP_FAILED);
    memset(commit(reserved), 1, DATA);
    return 0;
}
