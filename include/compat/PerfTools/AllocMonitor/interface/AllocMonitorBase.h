//! The base class of monitors, for programs written for CMS's PerfTools/AllocMonitor.
//
// Written from the public interface of that package; see docs/replaces.md. A monitor overrides
// either form of a function: with the address, as today's package has it, or without, as older
// versions had it. The functions run on the thread that allocates or frees, several threads at
// once, and may allocate: that is neither recorded nor reported to any monitor.

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

    /// After an allocation: bytes requested, bytes received, the block.
    virtual void allocCalled(size_t requested, size_t actual, void const *)
    {
        allocCalled(requested, actual);
    }
    virtual void allocCalled(size_t, size_t) {}

    /// Before a block is released: the bytes that were received with it, the block.
    virtual void deallocCalled(size_t actual, void const *) { deallocCalled(actual); }
    virtual void deallocCalled(size_t) {}
};

} // namespace perftools
} // namespace cms

#endif
