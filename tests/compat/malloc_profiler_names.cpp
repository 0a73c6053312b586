//! A program for MallocProfiler that prints whether it is loaded, whether it records, and its
//! threshold; with the argument `silent` it requests that the dump at exit has no stacks, with
//! `quick` it ends by quick_exit, whose handler writes a dump.
//
// Known: `large` allocates three blocks of 1000 bytes, main one of 100 bytes, below the threshold.
#include "mallocProfiler.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

static void *volatile kept;

static __attribute__((noinline)) void large()
{
    for (int i = 0; i < 3; i++)
        kept = std::malloc(1000);
}

static void quick()
{
    mallocProfiler::dump(std::cout, '$', mallocProfiler::SortBy::max, mallocProfiler::allThreads);
    std::cout.flush();
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
    if (argc > 1 && std::strcmp(argv[1], "quick") == 0 && at_quick_exit(quick) == 0)
        std::quick_exit(0);
    return 0;
}
