//! A program written for AllocMonitor: its own monitors in both forms of the interface, every
//! allocation function, and the exception without the preload library.
//
// Each call is reported once, with the requested size, and frees return the total to 0. A monitor
// that allocates in its constructor, callbacks and destructor gets no calls for these allocations.
// Without the recorder: exit status 3 and the exception's category.
#include "PerfTools/AllocMonitor/interface/AllocMonitorBase.h"
#include "PerfTools/AllocMonitor/interface/AllocMonitorRegistry.h"

#include "../programs/guest.h"

#include <iostream>
#include <string>

using namespace cms::perftools;

namespace {

struct Seen {
    int made = 0, allocated = 0, freed = 0, destroyed = 0;
    size_t requested = 0, total = 0;
    void const *block = nullptr;
};

// The interface since October 2024.
class Monitor : public AllocMonitorBase {
public:
    explicit Monitor(Seen &seen, std::string const &name) : seen_(seen), name_(name + " x")
    {
        seen_.made++;
        busy();
    }
    ~Monitor() override
    {
        busy();
        seen_.destroyed++;
    }

    void allocCalled(size_t iRequested, size_t iActual, void const *iAddress) final
    {
        busy();
        seen_.allocated++;
        seen_.requested = iRequested;
        seen_.total += iActual;
        seen_.block = iAddress;
    }
    void deallocCalled(size_t iActual, void const *) final
    {
        busy();
        seen_.freed++;
        seen_.total -= iActual;
    }

private:
    static void busy() { delete keep(new std::string(300, 'x')); }
    Seen &seen_;
    std::string name_;
};

// The interface of the package's first README.
class OldMonitor : public AllocMonitorBase {
public:
    explicit OldMonitor(Seen &seen) : seen_(seen) {}
    void allocCalled(size_t iRequested, size_t iActual) override
    {
        seen_.allocated++;
        seen_.requested = iRequested;
        seen_.total += iActual;
    }
    void deallocCalled(size_t iActual) override
    {
        seen_.freed++;
        seen_.total -= iActual;
    }

private:
    Seen &seen_;
};

void takes(Seen &seen, void *block, size_t requested)
{
    const int frees = seen.freed;
    CHECK(seen.requested == requested && seen.total >= requested);
    free(keep(block));
    CHECK(seen.total == 0 && seen.freed == frees + 1);
}

void exercise(Seen &seen)
{
    delete keep(new int(1));
    CHECK(seen.requested == 4 && seen.total == 0 && seen.allocated == 1);
    delete[] keep(new int[5]);
    CHECK(seen.requested == 20 && seen.total == 0 && seen.allocated == 2);
#if __cplusplus >= 201703L
    int *aligned = keep(new (std::align_val_t{512}) int);
    CHECK(seen.requested == 4);
    ::operator delete(aligned, std::align_val_t{512});
#else
    free(keep(malloc(4)));
#endif
    CHECK(seen.total == 0 && seen.allocated == 3);
    delete keep(new (std::nothrow) int);
    CHECK(seen.requested == 4 && seen.total == 0 && seen.allocated == 4);
    takes(seen, calloc(12, 1), 12);
    void *p = keep(malloc(50));
    p = keep(realloc(p, 100000));
    CHECK(seen.requested == 100000 && seen.total >= 100000);
    free(p);
    CHECK(seen.total == 0);
    takes(seen, aligned_alloc(128, 384), 384);
    takes(seen, memalign(256, 24), 24);
    p = nullptr;
    CHECK(posix_memalign(&p, 128, 64) == 0);
    takes(seen, p, 64);
    free(nullptr);
    CHECK(seen.allocated == 10 && seen.freed == 10);
}

} // namespace

int main()
{
    AllocMonitorRegistry &registry = AllocMonitorRegistry::instance();
    Seen seen, old;
    try {
        Monitor *monitor = registry.createAndRegisterMonitor<Monitor>(seen, std::string("name"));
        CHECK(AllocMonitorRegistry::necessaryLibraryWasPreloaded());
        CHECK(seen.made == 1 && seen.allocated == 0 && seen.freed == 0);
        exercise(seen);
        registry.deregisterMonitor(monitor);
        CHECK(seen.destroyed == 1 && seen.allocated == 10 && seen.freed == 10);
        registry.deregisterMonitor(monitor); // not registered: ignored
        OldMonitor *older = registry.createAndRegisterMonitor<OldMonitor>(old);
        exercise(old);
        registry.deregisterMonitor(older);
        free(keep(malloc(1)));
        CHECK(old.allocated == 10);
        // Left to the registry, which destroys it at exit.
        registry.createAndRegisterMonitor<OldMonitor>(*new Seen);
    } catch (cms::Exception const &error) {
        CHECK(!AllocMonitorRegistry::necessaryLibraryWasPreloaded());
        std::cout << error.category() << "\n" << error.what();
        return 3;
    }
    std::cout << "registered\n";
    return 0;
}
