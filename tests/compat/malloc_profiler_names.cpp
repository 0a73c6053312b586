//! A program for MallocProfiler that prints whether it is loaded, whether it records, and its
//! threshold; with the argument `silent` it requests that the dump at exit has no stacks.
//
// Known: `large` allocates three blocks of 1000 bytes, main one of 100 bytes, below the threshold.
#include "mallocProfiler.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

static void *volatile kept;

static __attribute__((noinline)) void large()
{
    for (int i = 0; i < 3; i++)
        kept = std::malloc(1000);
}

int main(int argc, char **argv)
{
    using namespace mallocProfiler;
    std::printf("%d %d %zu\n", loaded(), enabled(), getThreshold());
    std::fflush(stdout);
    if (argc > 1 && std::strcmp(argv[1], "silent") == 0)
        noFinalDump();
    large();
    kept = std::malloc(100);
    return 0;
}
