//! Four tools in one program: scopes of each are nested in those of the others, and a monitor
//! counts.
//
// Scopes: tag > function=main > region=inner > own > a: 1 allocation in each. The monitor gets 5
// calls of each kind, of 100 bytes each.
#include <PerfTools/AllocMonitor/interface/AllocMonitorRegistry.h>
#include <caliper/cali.h>
#include <heaptide.hpp>
#include <malloc_tag.h>

#include "../programs/guest.h"

class Counts : public cms::perftools::AllocMonitorBase {
public:
    void allocCalled(size_t requested, size_t, void const *) override
    {
        allocations += requested == 100;
    }
    void deallocCalled(size_t actual, void const *) override { frees += actual == 104; }
    int allocations = 0, frees = 0;
};

static NOINLINE void allocate() { free(keep(malloc(100))); }

int main()
{
    if (!heaptide_recording())
        return 0;
    MallocTagEngine::init();
    auto &registry = cms::perftools::AllocMonitorRegistry::instance();
    Counts *counts = registry.createAndRegisterMonitor<Counts>();
    {
        MallocTagScope tag("tag");
        allocate();
        CALI_CXX_MARK_FUNCTION;
        allocate();
        CALI_CXX_MARK_SCOPE("inner");
        allocate();
        HEAPTIDE_SCOPE("own");
        allocate();
        cali_begin_string_byname("attribute", "a");
        allocate();
        cali_end_byname("attribute");
    }
    CHECK(counts->allocations == 5 && counts->frees == 5);
    registry.deregisterMonitor(counts);
    say("done\n");
    return 0;
}
