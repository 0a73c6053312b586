//! A monitor that prints at exit the numbers of blocks by requested, usable and freed size.
//
//     c++ -O2 -shared -fPIC -I include -o libhistogram.so monitors/cpp/histogram.cpp
//     heaptide run --monitor ./libhistogram.so -- PROGRAM
//
// The rows are powers of two: 0, 1, 2 and 3, 4 to 7, … The counters are striped: each thread adds
// to one of 16 copies, so that threads rarely share a cache line, and the copies are summed at the
// end. The number of copies is fixed, because one per thread would take much memory with 100 000
// short threads.

#include "heaptide.hpp"

#include <atomic>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

namespace {

constexpr int classes = 65, stripe_count = 16;

using Counter = std::atomic<unsigned long long>;

struct Stripe {
    Counter requested[classes], usable[classes], freed[classes];
    char apart[64]; // keeps stripes on separate cache lines
};

// Static, so zero-initialized; before C++20, members of a monitor would need explicit
// initialization.
Stripe stripes[stripe_count];
std::atomic<unsigned> threads;

// This thread's stripe, chosen at its first call; 0 before. With the initial-exec model, reading it
// does not call the loader, which could allocate.
__thread unsigned own_stripe __attribute__((tls_model("initial-exec")));

Stripe &stripe()
{
    if (own_stripe == 0)
        own_stripe = 1 + threads.fetch_add(1, std::memory_order_relaxed) % stripe_count;
    return stripes[own_stripe - 1];
}

// Counts a size in the class of its number of significant bits.
void count(Counter (&counters)[classes], std::size_t bytes)
{
    const int bits = bytes ? 64 - __builtin_clzll(bytes) : 0;
    counters[bits].fetch_add(1, std::memory_order_relaxed);
}

// The output of the report: a copy of stderr, because programs may close that before the monitor
// ends, as `ls` does at exit. Its number does not conflict with the program's own descriptors.
class Report {
public:
    Report() : copy_(fcntl(2, F_DUPFD_CLOEXEC, 200)) {}
    Report(const Report &) = delete;
    Report &operator=(const Report &) = delete;
    ~Report()
    {
        if (copy_ >= 0)
            close(copy_);
    }
    int descriptor() const { return copy_ < 0 ? 2 : copy_; }

private:
    int copy_;
};

class Histogram final : public heaptide::Monitor {
public:
    void allocated(void *, std::size_t requested, std::size_t usable) override
    {
        Stripe &own = stripe();
        count(own.requested, requested);
        count(own.usable, usable);
    }

    void freed(void *, std::size_t usable) override { count(stripe().freed, usable); }

    ~Histogram() override
    {
        dprintf(report_.descriptor(), "%20s %14s %14s %14s\n", "size from", "requested", "usable",
                "freed");
        for (int bits = 0; bits < classes; bits++) {
            unsigned long long requested = 0, usable = 0, freed = 0;
            for (const Stripe &one : stripes) {
                requested += one.requested[bits];
                usable += one.usable[bits];
                freed += one.freed[bits];
            }
            if (requested || usable || freed)
                dprintf(report_.descriptor(), "%20llu %14llu %14llu %14llu\n",
                        bits ? 1ull << (bits - 1) : 0, requested, usable, freed);
        }
    }

private:
    const Report report_;
};

void create(char *options)
{
    if (*options) {
        std::fprintf(stderr, "histogram: `%s`: it has no options\n", options);
        return;
    }
    try {
        heaptide::create_and_register<Histogram>();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "histogram: %s\n", error.what());
    }
}

} // namespace

HEAPTIDE_MONITOR_PLUGIN("libhistogram.so", create);
