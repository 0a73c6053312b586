//! MallocProfiler and threads: blocks freed by a different thread, many threads, and the tracing
//! threads.
//
// Known: make() allocates 1001 blocks of 400 bytes in 1001 threads; all of them are freed by other
// threads.
#include "mallocProfiler.h"

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>

enum { THREADS = 1001 };

static void *blocks[THREADS];

static __attribute__((noinline)) void make(int index)
{
    blocks[index] = std::malloc(400);
}

int main()
{
    mallocProfiler::setDumpingInterval(std::chrono::seconds(1), std::chrono::seconds(1));
    mallocProfiler::startTracing();
    for (int i = 0; i < THREADS; i++)
        std::thread(make, i).join();
    for (int i = 0; i < THREADS; i++)
        std::thread([i] { std::free(blocks[i]); }).join();
    std::this_thread::sleep_for(std::chrono::milliseconds(mallocProfiler::loaded() ? 2500 : 0));
    mallocProfiler::noZeroLiveDump(false);
    mallocProfiler::dump(std::cout, '$', mallocProfiler::SortBy::ncalls);
    std::cout.flush();
    return 0;
}
