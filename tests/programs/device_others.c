//! Memory of devices by HIP and Level Zero, whose libraries are opened after the start.
//
// expect recording lost_events=0
// device function:by_hip allocations=6 frees=3 live_blocks=3
// device function:by_hip requested_bytes=8591488 usable_bytes=8595328 live_bytes=6340608
// device function:by_zero allocations=5 frees=4 requested_bytes=36864 live_bytes=4096
// device device:HIP/0 allocations=3 live_bytes=4243456
// device device:HIP/1 allocations=1 live_blocks=1 live_bytes=2097152 peak_bytes=2097152
// device device:HIP/2 allocations=2 live_bytes=0 peak_bytes=1206144
// device device:Level_Zero/0 allocations=4 live_blocks=0 peak_bytes=32768
// device device:Level_Zero/1 allocations=1 live_blocks=1
// mapped class:pinned mappings=2 live_bytes=0
// mapped class:managed mappings=2 live_bytes=1114112
// plugin: libamdhip64.so.6 device_hip.c
// plugin: libze_loader.so.1 device_zero.c
// build: -ldl
// args: %/libamdhip64.so.6 %/libze_loader.so.1
#include "guest.h"
#include <dlfcn.h>

static void *library;

#define function(result, name, ...) result (*name)(__VA_ARGS__) = keep(dlsym(library, #name))

static NOINLINE void by_hip(void)
{
    function(int, hipSetDevice, int);
    function(int, hipMalloc, void **, size_t);
    function(int, hipMallocPitch, void **, size_t *, size_t, size_t);
    function(int, hipMallocAsync, void **, size_t, void *);
    function(int, hipFree, void *);
    function(int, hipFreeAsync, void *, void *);
    function(int, hipHostMalloc, void **, size_t, unsigned);
    function(int, hipHostFree, void *);
    function(int, hipMallocManaged, void **, size_t, unsigned);
    function(int, hipDeviceReset, void);
    void *at[9];
    size_t pitch;
    CHECK(hipMalloc(&at[0], 4 << 20) == 0 && hipMalloc(&at[8], 1UL << 40) != 0);
    CHECK(hipMallocPitch(&at[1], &pitch, 708, 64) == 0 && pitch == 768);
    CHECK(hipMallocAsync(&at[2], 1 << 20, 0) == 0);
    CHECK(hipSetDevice(1) == 0 && hipMalloc(&at[3], 2 << 20) == 0);
    CHECK(hipSetDevice(2) == 0 && hipMalloc(&at[4], 1 << 20) == 0);
    CHECK(hipMalloc(&at[5], 157568) == 0);
    CHECK(hipFree(at[4]) == 0 && hipFree(0) != 0 && hipDeviceReset() == 0);
    // The current device need not be that of the memory.
    CHECK(hipFreeAsync(at[2], 0) == 0);
    CHECK(hipHostMalloc(&at[6], 64 << 10, 0) == 0 && hipHostFree(at[6]) == 0);
    CHECK(hipMallocManaged(&at[7], 1 << 20, 1) == 0);
}

static NOINLINE void by_zero(void)
{
    function(uint32_t, zeDeviceGet, void *, uint32_t *, void **);
    function(uint32_t, zeMemAllocDevice, void *, void *, size_t, size_t, void *, void **);
    function(uint32_t, zeMemAllocHost, void *, void *, size_t, size_t, void **);
    function(uint32_t, zeMemAllocShared, void *, void *, void *, size_t, size_t, void *, void **);
    function(uint32_t, zeMemFree, void *, void *);
    function(uint32_t, zeMemFreeExt, void *, void *, void *);
    function(uint32_t, zeContextDestroy, void *);
    int first, second;
    uint32_t count = 0;
    void *devices[2], *at[7];
    CHECK(zeDeviceGet(0, &count, 0) == 0 && count == 2);
    CHECK(zeDeviceGet(0, &count, devices) == 0);
    CHECK(zeMemAllocDevice(&second, 0, 4096, 64, devices[1], &at[0]) == 0);
    for (int i = 1; i < 5; i++)
        CHECK(zeMemAllocDevice(&first, 0, 8192, 64, devices[0], &at[i]) == 0);
    CHECK(zeMemAllocDevice(&first, 0, 8192, 64, 0, &at[5]) != 0);
    CHECK(zeMemFree(&first, at[1]) == 0 && zeMemFreeExt(&first, 0, at[2]) == 0);
    CHECK(zeContextDestroy(&first) == 0);
    CHECK(zeMemAllocHost(&second, 0, 32 << 10, 64, &at[5]) == 0 && zeMemFree(&second, at[5]) == 0);
    CHECK(zeMemAllocShared(&second, 0, 0, 64 << 10, 64, devices[1], &at[6]) == 0);
}

int main(int count, char **words)
{
    CHECK(count == 3);
    library = dlopen(words[1], RTLD_NOW);
    CHECK(library);
    by_hip();
    library = dlopen(words[2], RTLD_NOW);
    CHECK(library);
    by_zero();
    return 0;
}
