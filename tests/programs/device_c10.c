//! A part of PyTorch's core library: the function to which its caching allocators report blocks.
//! It counts what it gets.

#include <stddef.h>
#include <stdint.h>

static int64_t sums[3];

__attribute__((noinline)) void c10_report(void *address, int64_t bytes, size_t allocated,
                                          size_t reserved, uint16_t device)
    __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

void c10_report(void *address, int64_t bytes, size_t allocated, size_t reserved, uint16_t device)
{
    sums[0] += bytes + (int64_t)(uintptr_t)address % 2;
    sums[1] += (int64_t)(allocated + reserved);
    sums[2] += device;
}

int64_t c10_sum(int which) { return sums[which]; }
