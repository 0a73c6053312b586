//! The workload of `malloc_tag.py`: 200 scopes of malloc-tag's interface, then the processor time
//! of write_stats() in each form, of collect_stats(), and of 1000 pairs of a scope and a block.
//! Also compiles with malloc-tag's own header and library.
//
// Prints lines NAME=MICROSECONDS: the median of all calls.
#include "malloc_tag.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

static volatile size_t sink;

static void scopes()
{
    for (int outer = 0; outer < 13; outer++) {
        MallocTagScope around(("outer" + std::to_string(outer)).c_str());
        for (int inner = 0; inner < 14; inner++) {
            MallocTagScope inside(("inner" + std::to_string(inner)).c_str());
            sink = reinterpret_cast<size_t>(std::malloc(100));
        }
    }
}

/// Returns the processor time of the thread, which other processes do not change much.
static double processor_us()
{
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

template <typename Work> static void measure(const char *name, int rounds, Work work)
{
    std::vector<double> times;
    for (int round = 0; round < rounds; round++) {
        const double start = processor_us();
        work();
        times.push_back(processor_us() - start);
    }
    std::sort(times.begin(), times.end());
    std::printf("%s=%.3f\n", name, times[times.size() / 2]);
}

int main(int argc, char **argv)
{
    if (argc < 2 || !MallocTagEngine::init())
        return 2;
    scopes();
    const std::string path = argv[1];
    bool is_done = true;
    measure("write_stats JSON", 101, [&] {
        is_done &= MallocTagEngine::write_stats(MTAG_OUTPUT_FORMAT_JSON, path);
    });
    measure("write_stats DOT", 101, [&] {
        is_done &= MallocTagEngine::write_stats(MTAG_OUTPUT_FORMAT_GRAPHVIZ_DOT, path);
    });
    measure("collect_stats map", 101, [&] { is_done &= !MallocTagEngine::collect_stats().empty(); });
    measure("1000 scopes with a block", 101, [] {
        for (int i = 0; i < 1000; i++) {
            MallocTagScope scope("loop");
            void *block = std::malloc(100);
            sink = reinterpret_cast<size_t>(block);
            std::free(block);
        }
    });
    return is_done ? 0 : 1;
}
