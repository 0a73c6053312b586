//! Two threads that use the same stack, one after the other, each with a dump of its own.
//
// Known: the first thread holds 3 blocks of 1000 bytes at once and then 2, the second one 5; all
// are freed.
#include "mallocProfiler.h"

#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>

static __attribute__((noinline)) void hold(std::vector<void *> &blocks, std::size_t count)
{
    for (std::size_t i = 0; i < count; i++)
        blocks[i] = std::malloc(1000);
    for (std::size_t i = 0; i < count; i++)
        std::free(blocks[i]);
}

static void run(std::vector<std::size_t> counts)
{
    std::vector<void *> blocks(5);
    for (std::size_t count : counts)
        hold(blocks, count);
    mallocProfiler::dump(std::cout, '$', mallocProfiler::SortBy::max,
                         mallocProfiler::currentThread);
}

int main()
{
    std::thread(run, std::vector<std::size_t>{3, 2}).join();
    std::cout << "--" << std::endl;
    std::thread(run, std::vector<std::size_t>{5}).join();
    return 0;
}
