//! A job of cmsRun in small: creates the Services that are linked in, calls their signals in the
//! order of the framework, and destroys them.
//
// Known: 500 bytes before the begin of job; in each of 3 events, 1000 bytes are kept and 2000 bytes
// allocated and freed; after the end of job, the kept blocks are freed, and 100 bytes allocated and
// freed. With glibc the blocks have 504, 1000, 2008 and 104 usable bytes. Whole job: 9600 bytes in
// 8 allocations, at most 5512 used. Events: 9000 bytes in 6 allocations, 3 frees, at most 5008
// used, 3000 not freed.
#include "cms_framework.h"

#include <cstdint>
#include <cstdlib>

static volatile std::uintptr_t sink;

static void *keep(void *block)
{
    sink = reinterpret_cast<std::uintptr_t>(block);
    return block;
}

static void event(void *&kept)
{
    kept = keep(std::malloc(1000));
    std::free(keep(std::malloc(2000)));
}

int main()
{
    std::cout << "job" << std::endl; // allocates the buffer of standard output
    edm::ActivityRegistry activities;
    std::vector<std::shared_ptr<void>> services;
    services.reserve(edm::serviceMakers().size());
    for (edm::ServiceMaker make : edm::serviceMakers())
        services.push_back(make(edm::ParameterSet(), activities));
    void *before = keep(std::malloc(500));
    activities.postBeginJobSignal_();
    void *kept[3];
    for (void *&block : kept)
        event(block);
    activities.preEndJobSignal_();
    for (void *block : kept)
        std::free(block);
    std::free(before);
    std::free(keep(std::malloc(100)));
    activities.postEndJobSignal_();
    while (!services.empty())
        services.pop_back();
    return 0;
}
