//! A program with the original's own registry, which finds its preload library by the name of a
//! function: with monitors/cms/alloc_monitors.cpp, the recorder calls the registry.
//
// 10 blocks of 100 bytes, allocated and freed: 10 calls of each kind, 1000 bytes requested.
// Allocations of the registry during a call are not reported.
#include "../programs/guest.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace cms {
namespace perftools {

class AllocMonitorRegistry {
public:
    static AllocMonitorRegistry &instance();
    void allocCalled_(size_t requested, size_t actual, void const *address);
    void deallocCalled_(size_t actual, void const *address);
    size_t requested = 0, allocated = 0, freed = 0;
};

AllocMonitorRegistry &AllocMonitorRegistry::instance()
{
    static AllocMonitorRegistry registry;
    return registry;
}
void AllocMonitorRegistry::allocCalled_(size_t bytes, size_t, void const *)
{
    allocated++;
    requested += bytes;
    free(keep(malloc(7)));
}
void AllocMonitorRegistry::deallocCalled_(size_t, void const *)
{
    freed++;
    free(keep(malloc(7)));
}

} // namespace perftools
} // namespace cms

int main()
{
    using cms::perftools::AllocMonitorRegistry;
    typedef void (*Function)();
    const Function start = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "alloc_monitor_start"));
    const Function stop = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "alloc_monitor_stop"));
    if (!start || !stop) {
        std::puts("no preload");
        return 3;
    }
    AllocMonitorRegistry &registry = AllocMonitorRegistry::instance();
    start();
    for (int i = 0; i < 10; i++)
        free(keep(malloc(100)));
    stop();
    free(keep(malloc(100)));
    std::printf("%zu %zu %zu\n", registry.requested, registry.allocated, registry.freed);
    return 0;
}
