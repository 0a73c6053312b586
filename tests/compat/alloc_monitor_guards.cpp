//! Guards of IntrusiveAllocMonitor in a program without the framework; a part of it is paused, as
//! for MaxMemoryPreload.
//
// outer: 1000 bytes that stay live and 2000 that are freed, excluding inner's 4 bytes, which stay
// live. Their usable sizes in glibc are 1000, 2008 and 24 bytes. The pause has 1,000,000 bytes.
#include "PerfTools/AllocMonitor/interface/AllocMonitorReports.h"

#include "../programs/guest.h"

void pauseMaxMemoryPreload() __attribute__((weak));
void unpauseMaxMemoryPreload() __attribute__((weak));

using cms::perftools::AllocMonitorRegistry;
using cms::perftools::IntrusiveMonitor;

static NOINLINE int *nested(IntrusiveMonitor &monitor)
{
    auto guard = monitor.startMonitoring("inner");
    return keep(new int(42));
}

int main()
{
    IntrusiveMonitor *monitor;
    try {
        monitor = AllocMonitorRegistry::instance().createAndRegisterMonitor<IntrusiveMonitor>();
    } catch (cms::Exception const &error) {
        say("%s\n", error.category().c_str());
        return 0;
    }
    void *first, *second;
    int *third;
    {
        auto guard = monitor->startMonitoring(std::string("outer"));
        first = keep(malloc(1000));
        second = keep(malloc(2000));
        third = nested(*monitor);
        free(second);
    }
    free(first);
    delete third;
    if (pauseMaxMemoryPreload)
        pauseMaxMemoryPreload();
    free(keep(malloc(1000000)));
    if (unpauseMaxMemoryPreload)
        unpauseMaxMemoryPreload();
    AllocMonitorRegistry::instance().deregisterMonitor(monitor);
    return 0;
}
