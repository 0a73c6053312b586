//! The registry without the recorder, in a program that defines alloc_monitor_start and
//! alloc_monitor_stop itself, like the original's test of its registry.
//
// One call for an allocation function that calls another, none for allocations of a monitor, none
// for freeing a null pointer; start at the first registration, stop with the registry.
#include "PerfTools/AllocMonitor/interface/AllocMonitorRegistry.h"

#include <cstdio>
#include <cstdlib>

#define EXPECT(condition)                                                                \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            std::printf("line %d: %s\n", __LINE__, #condition);                          \
            std::exit(1);                                                                \
        }                                                                                \
    } while (0)

namespace cms {
namespace perftools {

class AllocTester {
public:
    template <typename Allocate> void allocate(Allocate work)
    {
        registry.allocCalled(1, work, [](int) { return size_t(1); });
    }
    template <typename Free> void release(void *block, Free work)
    {
        registry.deallocCalled(block, work, [](void *) { return size_t(1); });
    }
    AllocMonitorRegistry registry;
};

} // namespace perftools
} // namespace cms

using namespace cms::perftools;

static int calls, started, stopped;

extern "C" void alloc_monitor_start() { started++; }
extern "C" void alloc_monitor_stop() { stopped++; }

class Nested : public AllocMonitorBase {
public:
    explicit Nested(AllocTester &tester) : tester_(tester) { called(); }
    ~Nested() override { called(); }
    void allocCalled(size_t, size_t) final { called(); }
    void deallocCalled(size_t) final { called(); }

private:
    void called()
    {
        calls++;
        tester_.allocate([] { return 1; });
        tester_.release(this, [](void *) {});
    }
    AllocTester &tester_;
};

int main()
{
    {
        AllocTester tester;
        EXPECT(!started && AllocMonitorRegistry::necessaryLibraryWasPreloaded());
        Nested *monitor = tester.registry.createAndRegisterMonitor<Nested>(tester);
        EXPECT(calls == 1 && started == 1 && !stopped);
        tester.allocate([&] {
            tester.allocate([] { return 1; });
            return 1;
        });
        EXPECT(calls == 2);
        tester.release(&tester, [&](void *) { tester.release(&tester, [](void *) {}); });
        EXPECT(calls == 3);
        tester.release(nullptr, [](void *) {});
        EXPECT(calls == 3);
        tester.registry.deregisterMonitor(monitor);
        EXPECT(calls == 4);
        tester.registry.createAndRegisterMonitor<Nested>(tester);
        EXPECT(calls == 5 && started == 1);
    }
    EXPECT(calls == 6 && stopped == 1);
    std::puts("own preload");
    return 0;
}
