//! MallocProfiler: what a dump can contain without a trace.
//
// Known, as calls, total, live and highest live bytes:
//   kept        3 of 200 bytes, live:                              3 600 600 600
//   one_by_one  3 of 100 bytes, each freed at once:                3 300 0 100
//   single      1 of 700 bytes, freed after other blocks:          1 700 0 700
//   together    2 of 500 bytes, both live at peak usage:           2 1000 0 1000
//   waves       2 of 2500 bytes twice, not live at peak usage:     4 10000 0 5000; the highest live
//               bytes are unknown without a trace
//   below a threshold of 100 bytes:                                5 50 50 50
//   not below a threshold of 100 bytes, where others have stacks:  2 4000 4000 4000
//   main's thread holds 1000 bytes, then nothing
#include "mallocProfiler.h"

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <thread>

static volatile std::uintptr_t sink;

// Allocates a block in the function itself; the compiler can neither drop nor unroll it.
#define BLOCK(size) (sink = reinterpret_cast<std::uintptr_t>(std::malloc(size)), pointer())

static __attribute__((noinline)) void *pointer() { return reinterpret_cast<void *>(sink); }

static __attribute__((noinline)) void kept()
{
    for (volatile int i = 0; i < 3; i = i + 1)
        BLOCK(200);
}

static __attribute__((noinline)) void one_by_one()
{
    for (volatile int i = 0; i < 3; i = i + 1)
        std::free(BLOCK(100));
}

static __attribute__((noinline)) void *single() { return BLOCK(700); }

static __attribute__((noinline)) void waves()
{
    for (volatile int i = 0; i < 2; i = i + 1) {
        void *two[2];
        for (volatile int k = 0; k < 2; k = k + 1)
            two[k] = BLOCK(2500);
        for (void *one : two)
            std::free(one);
    }
}

static __attribute__((noinline)) void together(void **two)
{
    for (volatile int i = 0; i < 2; i = i + 1)
        two[i] = BLOCK(500);
}

static __attribute__((noinline)) void large() { std::free(BLOCK(1000000)); }

static __attribute__((noinline)) void of_size(int times, std::size_t size)
{
    for (volatile int i = 0; i < times; i = i + 1)
        BLOCK(size);
}

// Writes the lines of functions of this program without their callers.
static void show(const char *name, bool functions)
{
    std::ostringstream text;
    mallocProfiler::dump(text);
    std::cout << "== " << name << '\n';
    std::istringstream lines(text.str());
    for (const char *wanted : {"kept", "one_by_one", "single", "together", "waves", "SmallAllocations",
                               "LargeAllocations"}) {
        lines.clear();
        lines.seekg(0);
        const bool is_sum = std::string(wanted).find("Allocations") != std::string::npos;
        for (std::string line; (functions || is_sum) && std::getline(lines, line);) {
            const std::size_t at = line.find(std::string(";") + wanted + " $");
            if (at != std::string::npos)
                std::cout << line.substr(at + 1) << '\n';
        }
    }
}

static void thread_statistics()
{
    using namespace mallocProfiler;
    void *held = BLOCK(1000);
    Stat stat = summary(currentThread);
    std::cout << stat.mtot << " max " << (stat.mmax - stat.mlive + 1000) << '\n';
    std::free(held);
    stat = summary(currentThread);
    std::cout << stat.mlive << " max " << stat.mmax << '\n';
}

int main()
{
    using namespace mallocProfiler;
    if (!loaded())
        return 0;
    std::ios::sync_with_stdio(false);
    kept();
    void *first = single();
    one_by_one();
    std::free(first);
    waves();
    void *two[2];
    together(two);
    large();
    for (void *one : two)
        std::free(one);
    show("both", true);
    setThreshold(100);
    of_size(5, 10);
    setThreshold(0);
    show("threshold", false);
    setThreshold(100, true);
    of_size(2, 2000);
    show("reverse", false);
    setThreshold(0);
    std::cout << "== thread\n";
    std::thread(thread_statistics).join();
    std::cout.flush();
    return 0;
}
