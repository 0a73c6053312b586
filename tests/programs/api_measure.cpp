//! Measurements of a thread: filling a vector, again, and inside another measurement, like the test
//! of CMS's intrusive monitor; frees of older blocks; exceptions; threads.
//
// expect leaf:block allocations=4 frees=4
// build: -pthread -std=c++11
#include "api_guest.h"
#include <thread>

using heaptide::Figures;
using heaptide::Measure;

static NOINLINE void fill(std::vector<int> &vector)
{
    vector.clear();
    for (int i = 0; i < 10000; i++)
        vector.push_back(keep(i));
}

// 1, 2, 4 … 16384 elements: 15 blocks, all except the last freed.
static void vector_fill()
{
    std::vector<int> vector;
    Measure first;
    fill(vector);
    Figures figures = first.end();
    KNOWN(figures.allocations == 15 && figures.frees == 14 && figures.live_blocks == 1);
    KNOWN(figures.requested_bytes == 4 * 32767 && figures.largest_bytes == 65536);
    KNOWN(figures.live_bytes >= 65536 && figures.live_bytes < 65536 + 64);
    // During the last growth both blocks are live.
    KNOWN(figures.peak_bytes >= 98304 && figures.peak_bytes < 98304 + 128);
    KNOWN(figures.usable_bytes - figures.freed_bytes == (uint64_t)figures.live_bytes);
    Measure again;
    fill(vector);
    figures = again.end();
    KNOWN(figures.allocations == 0 && figures.frees == 0 && figures.peak_bytes == 0);
    CHECK(again.end().allocations == 0);
}

// The inner one has its own counts, which the outer one includes.
static void nested()
{
    Measure outer;
    std::vector<int> *vector = keep(new std::vector<int>(100));
    Measure inner;
    int *one = keep(new int(1));
    Figures figures = inner.end();
    KNOWN(figures.requested_bytes == 4 && figures.allocations == 1 && figures.frees == 0);
    KNOWN(figures.live_bytes >= 4 && figures.peak_bytes == (uint64_t)figures.live_bytes);
    Measure freeing;
    delete vector;
    figures = freeing.end();
    KNOWN(figures.allocations == 0 && figures.frees == 2 && figures.live_blocks == -2);
    KNOWN(figures.live_bytes < -424 && figures.peak_bytes == 0);
    delete one;
    figures = outer.end();
    KNOWN(figures.allocations == 3 && figures.frees == 3 && figures.live_bytes == 0);
    KNOWN(figures.requested_bytes == 24 + 400 + 4 && figures.largest_bytes == 400);
    KNOWN(figures.peak_bytes >= 428 && figures.peak_bytes < 428 + 64);
}

static void reallocations()
{
    Measure measure;
    void *p = block(100);
    p = keep(realloc(p, 100000));
    free(p);
    const Figures figures = measure.end();
    KNOWN(figures.allocations == 2 && figures.frees == 2 && figures.reallocations == 1);
    KNOWN(figures.live_bytes == 0 && figures.requested_bytes == 100100);
    KNOWN(figures.largest_bytes == 100000);
}

// Its destructor ends a measurement when an exception leaves it.
static void left_by_exception()
{
    Measure outer;
    try {
        Measure inner;
        free(block(10));
        throw 1;
    } catch (int) {
    }
    Measure next;
    free(block(20));
    KNOWN(next.end().requested_bytes == 20);
    KNOWN(outer.end().requested_bytes >= 30);
}

// Allocations of other threads do not count.
static void per_thread()
{
    std::uint64_t requested = 0;
    std::thread other;
    {
        heaptide::Pause pause(heaptide::Of::process);
        other = std::thread([] {});
        other.join();
    }
    Measure outer;
    other = std::thread([&requested] {
        Measure own;
        for (int i = 0; i < 100; i++)
            free(keep(malloc(7)));
        requested = own.end().requested_bytes;
    });
    other.join();
    KNOWN(requested == 700);
    KNOWN(outer.end().allocations < 20);
}

int main()
{
    vector_fill();
    nested();
    reallocations();
    left_by_exception();
    per_thread();
    free(block(1));
    say("measured\n");
    return 0;
}
