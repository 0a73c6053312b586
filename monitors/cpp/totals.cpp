//! A monitor that prints at exit how much memory the program requested, and its peak usage.
//
//     c++ -O2 -shared -fPIC -I include -o libtotals.so monitors/cpp/totals.cpp
//     heaptide run --monitor ./libtotals.so -- PROGRAM
//
// The smallest possible monitor: relaxed atomic counters that any number of threads may update. A
// call costs some ns, or more if many threads allocate at once and contend for the cache line of
// the counters. histogram.cpp shows how to avoid that.

#include "heaptide.hpp"

#include <atomic>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

namespace {

constexpr auto relaxed = std::memory_order_relaxed;

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

class Totals final : public heaptide::Monitor {
public:
    void allocated(void *, std::size_t requested, std::size_t usable) override
    {
        requested_.fetch_add(requested, relaxed);
        allocations_.fetch_add(1, relaxed);
        const long long used = used_.fetch_add(bytes(usable), relaxed) + bytes(usable);
        long long max = max_used_.load(relaxed);
        // A failed exchange has loaded another thread's maximum into `max`.
        while (used > max && !max_used_.compare_exchange_weak(max, used, relaxed))
            continue;
    }

    void freed(void *, std::size_t usable) override
    {
        frees_.fetch_add(1, relaxed);
        used_.fetch_sub(bytes(usable), relaxed);
    }

    // No calls of the monitor follow its destruction.
    ~Totals() override
    {
        dprintf(report_.descriptor(),
                "totals: total memory requested: %llu\n"
                "totals: max memory used: %lld\n"
                "totals: presently used: %lld\n"
                "totals: # allocations calls: %llu\n"
                "totals: # deallocations calls: %llu\n",
                requested_.load(), max_used_.load(), used_.load(), allocations_.load(),
                frees_.load());
    }

private:
    static long long bytes(std::size_t size) { return static_cast<long long>(size); }

    const Report report_;
    std::atomic<unsigned long long> requested_{0}, allocations_{0}, frees_{0};
    std::atomic<long long> used_{0}, max_used_{0}; // usable bytes
};

void create(char *options)
{
    if (*options) {
        std::fprintf(stderr, "totals: `%s`: it has no options\n", options);
        return;
    }
    try {
        heaptide::create_and_register<Totals>();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "totals: %s\n", error.what());
    }
}

} // namespace

HEAPTIDE_MONITOR_PLUGIN("libtotals.so", create);
