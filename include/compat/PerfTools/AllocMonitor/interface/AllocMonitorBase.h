//! The base class of monitors, for programs written for CMS's PerfTools/AllocMonitor.
//
// Written from the public interface of that package; see docs/replaces.md. A monitor overrides
// either form of each function: with the address, as in the current package, or without it, as in
// older versions. The functions run on the thread that allocates or frees, possibly on several
// threads at once. They may allocate; their allocations are neither recorded nor reported to any
// monitor.

#ifndef HEAPTIDE_COMPAT_ALLOC_MONITOR_BASE_H
#define HEAPTIDE_COMPAT_ALLOC_MONITOR_BASE_H

#include <stddef.h>

namespace cms {
namespace perftools {

class AllocMonitorBase {
public:
    AllocMonitorBase() = default;
    virtual ~AllocMonitorBase() = default;

    AllocMonitorBase(const AllocMonitorBase &) = delete;
    AllocMonitorBase(AllocMonitorBase &&) = delete;
    AllocMonitorBase &operator=(const AllocMonitorBase &) = delete;
    AllocMonitorBase &operator=(AllocMonitorBase &&) = delete;

    /// Called after an allocation with the requested bytes, the usable bytes and the block.
    virtual void allocCalled(size_t requested, size_t actual, void const *)
    {
        allocCalled(requested, actual);
    }
    virtual void allocCalled(size_t, size_t) {}

    /// Called before a block is released with its usable bytes and the block.
    virtual void deallocCalled(size_t actual, void const *) { deallocCalled(actual); }
    virtual void deallocCalled(size_t) {}
};

} // namespace perftools
} // namespace cms

#endif
