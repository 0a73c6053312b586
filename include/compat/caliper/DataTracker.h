//! Caliper's data tracker of version 1, including its allocation functions, for programs written
//! for Caliper.

#ifndef HEAPTIDE_COMPAT_CALI_DATATRACKER_CLASS_H
#define HEAPTIDE_COMPAT_CALI_DATATRACKER_CLASS_H

#include "cali_datatracker.h"

#include <cinttypes>
#include <cstdlib>
#include <string>
#include <vector>

namespace cali {
namespace DataTracker {

inline void TrackAllocation(void *ptr, const std::string &label, std::size_t size)
{
    cali_datatracker_track(ptr, label.c_str(), size);
}
inline void TrackAllocation(void *ptr, const std::string &label, std::size_t elem_size,
                            const std::vector<std::size_t> &dimensions)
{
    cali_datatracker_track_dimensional(ptr, label.c_str(), elem_size, dimensions.data(),
                                       dimensions.size());
}
inline void TrackAllocation(void *ptr, const char *label, std::size_t elem_size,
                            std::size_t num_dimensions, const std::size_t dimensions[])
{
    cali_datatracker_track_dimensional(ptr, label, elem_size, dimensions, num_dimensions);
}
inline void UntrackAllocation(void *ptr) { cali_datatracker_untrack(ptr); }

/// Returns NULL if malloc fails or the size overflows.
inline void *Allocate(const std::string &label, std::size_t size)
{
    void *ptr = std::malloc(size);
    TrackAllocation(ptr, label, size);
    return ptr;
}
inline void *Allocate(const char *label, std::size_t elem_size, std::size_t num_dimensions,
                      const std::size_t dimensions[])
{
    return cali_datatracker_allocate_dimensional(label, elem_size, dimensions, num_dimensions);
}
inline void *Allocate(const std::string &label, std::size_t elem_size,
                      const std::vector<std::size_t> &dimensions)
{
    return Allocate(label.c_str(), elem_size, dimensions.size(), dimensions.data());
}
inline void Free(void *ptr)
{
    cali_datatracker_free(ptr);
}

} // namespace DataTracker
} // namespace cali

#endif
