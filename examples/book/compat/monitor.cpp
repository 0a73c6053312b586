//! A program with a monitor of AllocMonitor: it prints the maximum of allocated bytes.
//
//     g++ -g -O2 -o monitor monitor.cpp $(pkg-config --cflags heaptide-compat)
//
// Blocks of 5,000 and 1,000 bytes at first, then four of 1,000, one at a time.

#include "PerfTools/AllocMonitor/interface/AllocMonitorBase.h"
#include "PerfTools/AllocMonitor/interface/AllocMonitorRegistry.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace {

class MaxMonitor : public cms::perftools::AllocMonitorBase {
public:
    void allocCalled(size_t, size_t actual, void const *) override
    {
        calls_++;
        live_ += actual;
        most_ = std::max<size_t>(most_, live_);
    }
    void deallocCalled(size_t actual, void const *) override { live_ -= actual; }
    void print() const { std::fprintf(stderr, "%zu calls, at most %zu bytes\n", calls_.load(), most_.load()); }

private:
    std::atomic<size_t> calls_{0}, live_{0}, most_{0};
};

} // namespace

int main()
{
    auto &registry = cms::perftools::AllocMonitorRegistry::instance();
    auto *monitor = registry.createAndRegisterMonitor<MaxMonitor>();
    void *volatile first = std::malloc(5000);
    for (int i = 0; i < 5; i++) {
        void *volatile next = std::malloc(1000);
        std::free(next);
    }
    std::free(first);
    monitor->print();
    registry.deregisterMonitor(monitor);
    return 0;
}
