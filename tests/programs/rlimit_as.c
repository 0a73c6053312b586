//! Started with a limit of address space: the program still has enough memory, and allocations fail
//! only at its own limit.
//
// expect function:until_full allocations>=100 failed=1
// losses: allowed
// order: varies
#include "guest.h"
#include <sys/resource.h>

static NOINLINE size_t until_full(void)
{
    size_t blocks = 0;
    while (keep(malloc(1 << 20)))
        blocks++;
    return blocks;
}

int main(int count, char **words)
{
    if (count == 1) {
        struct rlimit limit = {256 << 20, 256 << 20};
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
        execl(words[0], words[0], "limited", NULL);
        return 97;
    }
    for (unsigned i = 0; i < 20000; i++)
        free(branch(i, 12, 100));
    size_t blocks = until_full();
    for (unsigned i = 0; i < 1000; i++)
        keep(malloc(16));
    say("%s\n", blocks >= 150 ? "room for 150 MiB" : "too little room");
    return 0;
}
