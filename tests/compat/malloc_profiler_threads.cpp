//! MallocProfiler and threads: blocks freed by a different thread, many threads, and the tracing
//! threads.
//
// Known: make() allocates 1001 blocks of 400 bytes in 1001 threads; all of them are freed by other
// threads.
#include "mallocProfiler.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <unistd.h>

enum { THREADS = 1001 };

static void *blocks[THREADS];

static __attribute__((noinline)) void make(int index)
{
    blocks[index] = std::malloc(400);
}

/// Waits until a file of this process exists and contains a text.
static void await(const char *prefix, const char *suffix, const char *text)
{
    const std::string name = prefix + std::to_string(getpid()) + suffix;
    for (bool found = false; !found;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        std::ifstream file(name);
        for (std::string line; std::getline(file, line);)
            found = found || line.find(text) != std::string::npos;
    }
}

int main()
{
    mallocProfiler::setDumpingInterval(std::chrono::seconds(1), std::chrono::seconds(1));
    mallocProfiler::startTracing();
    for (int i = 0; i < THREADS; i++)
        std::thread(make, i).join();
    for (int i = 0; i < THREADS; i++)
        std::thread([i] { std::free(blocks[i]); }).join();
    if (mallocProfiler::loaded()) {
        await("memstat_", ".mdr", "MemLive Global Hist ");
        // The first dump is complete.
        await("memdump_", "_1.mdr", "_mpTrace_");
    }
    mallocProfiler::noZeroLiveDump(false);
    mallocProfiler::dump(std::cout, '$', mallocProfiler::SortBy::ncalls);
    std::cout.flush();
    return 0;
}
