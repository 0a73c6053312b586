//! Memory of two devices with equal addresses, by each function of CUDA's driver interface that
//! allocates, linked, found with dlsym, and looked up by the driver; and host memory of the driver.
//
// expect recording lost_events=0
// device function:plain allocations=10 frees=4 live_blocks=6 live_bytes=6291456
// device function:pitched allocations=1 frees=1 requested_bytes=64000 usable_bytes=65536
// device function:in_stream allocations=4 frees=3 live_bytes=2097152
// device function:arrays allocations=3 frees=1 usable_bytes=34133 live_bytes=33109
// device function:physical allocations=5 frees=4 live_bytes=2097152
// device function:of_context allocations=3 frees=3 usable_bytes=12582912
// device function:twice allocations=4 frees=3 live_bytes=1048576
// device function:fails allocations=1 frees=0 live_bytes=1048576
// device function:with_dlsym allocations=1 frees=0 live_bytes=3145728
// device function:looked_up allocations=2 frees=1 live_bytes=5242880
// device function:of_primary allocations=2 frees=2
// device function:of_another_driver allocations=2 frees=2 usable_bytes=1572864
// device function:of_host allocations=0
// device depth:alloc_by count=1
// mapped class:pinned mappings=2 live_bytes=131072
// mapped class:managed mappings=2 live_bytes=524288
// mapped function:of_host>pinned usable_bytes>=196608 live_bytes=131072
// plugin: libcuda.so.1 device_cuda.c -foptimize-sibling-calls -pthread -Wl,-soname,libcuda.so.1
// plugin: libother.so device_cuda.c -pthread -Wl,-Bsymbolic
// build: -L% -l:libcuda.so.1 -Wl,-rpath,% -ldl
#include "guest.h"
#include "device_cuda.h"
#include <dlfcn.h>

#define MIB ((size_t)1 << 20)

typedef CUresult allocator(CUdeviceptr *at, size_t bytes);

static NOINLINE CUdeviceptr alloc_by(allocator *function, size_t bytes)
{
    CUdeviceptr at = 0;
    CHECK(function(&at, bytes) == 0);
    return keep(at);
}

static NOINLINE void plain(void)
{
    CUdeviceptr all[10];
    for (int i = 0; i < 10; i++)
        all[i] = alloc_by(cuMemAlloc_v2, MIB);
    for (int i = 0; i < 4; i++)
        CHECK(cuMemFree_v2(all[i]) == 0);
}

static NOINLINE void pitched(void)
{
    CUdeviceptr at;
    size_t pitch;
    CHECK(cuMemAllocPitch_v2(&at, &pitch, 1000, 64, 4) == 0 && pitch == 1024);
    CHECK(cuMemFree_v2(at) == 0);
}

static NOINLINE void in_stream(void)
{
    CUdeviceptr at[4];
    for (int i = 0; i < 3; i++)
        CHECK(cuMemAllocAsync(&at[i], 2 * MIB, 0) == 0);
    CHECK(cuMemAllocFromPoolAsync(&at[3], 2 * MIB, 0, 0) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(cuMemFreeAsync(at[i], 0) == 0);
}

static NOINLINE void arrays(void)
{
    struct CUarray2 flat = {64, 32, 0x20, 4};
    struct CUarray3 deep = {16, 16, 4, 1, 1, 0}, levels = {16, 16, 0, 1, 1, 0};
    CUarray array[3];
    CHECK(cuArrayCreate_v2(&array[0], &flat) == 0);
    CHECK(cuArray3DCreate_v2(&array[1], &deep) == 0);
    CHECK(cuMipmappedArrayCreate(&array[2], &levels, 5) == 0);
    CHECK(cuArrayDestroy(array[1]) == 0);
}

// Memory without an address lives until its last handle is released and its last view ends.
static NOINLINE void physical(void)
{
    struct CUproperties on_first = {1, 0, {1, 0}, {0}};
    CUhandle handles[4], again;
    for (int i = 0; i < 4; i++)
        CHECK(cuMemCreate(&handles[i], 2 * MIB, &on_first, 0) == 0);
    CUdeviceptr at = 1UL << 40;
    for (int i = 0; i < 3; i++)
        CHECK(cuMemMap(at + i * 2 * MIB, 2 * MIB, 0, handles[i], 0) == 0);
    CHECK(cuMemRetainAllocationHandle(&again, (void *)at) == 0 && again == handles[0]);
    for (int i = 0; i < 4; i++)
        CHECK(cuMemRelease(handles[i]) == 0);
    CHECK(cuMemUnmap(at, 4 * MIB) == 0);
    CHECK(driver_live(0) == 6 * MIB + 2 * MIB + 33109 + 4 * MIB);
    CHECK(cuMemRelease(again) == 0);
    errno = 0;
    CHECK(cuMemRelease(again) != 0 && errno == 0);
    // Mapped memory without a handle: another release fails and changes nothing.
    CHECK(cuMemCreate(&again, 2 * MIB, &on_first, 0) == 0);
    CHECK(cuMemMap(at, 2 * MIB, 0, again, 0) == 0 && cuMemRelease(again) == 0);
    CHECK(cuMemRelease(again) != 0 && cuMemUnmap(at, 2 * MIB) == 0);
}

static NOINLINE void of_context(CUcontext first)
{
    CUcontext second;
    CHECK(cuCtxCreate_v2(&second, 0, 1) == 0);
    for (int i = 0; i < 3; i++)
        alloc_by(cuMemAlloc_v2, 4 * MIB);
    CHECK(cuCtxDestroy_v2(second) == 0);
    CHECK(cuCtxSetCurrent(first) == 0);
}

// Equal addresses on two devices: the one that is freed is that of the current device.
static NOINLINE void twice(CUcontext first)
{
    CUcontext second;
    CHECK(cuCtxCreate_v2(&second, 0, 1) == 0);
    CUdeviceptr before = alloc_by(cuMemAlloc_v2, 512);
    CHECK(cuCtxSetCurrent(first) == 0);
    CUdeviceptr at = alloc_by(cuMemAlloc_v2, MIB);
    CHECK(cuCtxSetCurrent(second) == 0 && at > before + 512);
    CUdeviceptr between = alloc_by(cuMemAlloc_v2, at - before - 512);
    CHECK(alloc_by(cuMemAlloc_v2, MIB) == at);
    CHECK(cuMemFree_v2(at) == 0 && cuMemFree_v2(between) == 0 && cuMemFree_v2(before) == 0);
}

static NOINLINE void fails(void)
{
    CUdeviceptr at = 0;
    CHECK(cuMemAlloc_v2(&at, (size_t)1 << 40) != 0);
    CHECK(cuMemFree_v2(1) != 0);
    at = alloc_by(cuMemAlloc_v2, MIB);
    driver_fails();
    CHECK(cuMemFree_v2(at) != 0);
}

static NOINLINE void with_dlsym(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver);
    alloc_by((allocator *)dlsym(driver, "cuMemAlloc_v2"), 3 * MIB);
    stay();
}

static void *alloc, *free_it;

static NOINLINE void looked_up(void)
{
    CHECK(cuGetProcAddress("cuMemAlloc", &alloc, 12000, 0) == 0);
    CHECK(cuGetProcAddress("cuMemFree", &free_it, 12000, 0) == 0);
    CUdeviceptr at = alloc_by((allocator *)alloc, 5 * MIB);
    alloc_by((allocator *)alloc, 5 * MIB);
    CHECK(((CUresult(*)(CUdeviceptr))free_it)(at) == 0);
    void *same;
    CHECK(cuGetProcAddress("cuMemFreeAsync", &same, 12000, 0) == 0 && same == (void *)cuMemFreeAsync);
}

// Functions that were looked up stay usable while another driver comes and goes.
static NOINLINE void of_another_driver(void)
{
    void *other = dlopen("libother.so", RTLD_NOW | RTLD_LOCAL);
    CHECK(other);
    CUresult (*create)(CUcontext *, unsigned, CUdevice) = dlsym(other, "cuCtxCreate_v2");
    CUresult (*release)(CUdeviceptr) = dlsym(other, "cuMemFree_v2");
    CUcontext context;
    CHECK(create && release && create(&context, 0, 1) == 0);
    CHECK(release(alloc_by((allocator *)dlsym(other, "cuMemAlloc_v2"), MIB)) == 0);
    CHECK(dlclose(other) == 0);
    CUdeviceptr at = alloc_by((allocator *)alloc, MIB / 2);
    CHECK(((CUresult(*)(CUdeviceptr))free_it)(at) == 0);
}

static NOINLINE void of_primary(void)
{
    CUcontext context;
    CHECK(cuDevicePrimaryCtxRetain(&context, 1) == 0 && cuCtxSetCurrent(context) == 0);
    alloc_by(cuMemAlloc_v2, MIB);
    CHECK(cuDevicePrimaryCtxReset_v2(1) == 0);
    alloc_by(cuMemAlloc_v2, MIB);
    CHECK(cuDevicePrimaryCtxRelease_v2(1) == 0);
}

static NOINLINE void pinned(void)
{
    void *at[2];
    CHECK(cuMemAllocHost_v2(&at[0], 64 << 10) == 0 && cuMemHostAlloc(&at[1], 128 << 10, 0) == 0);
    CHECK(cuMemFreeHost(at[0]) == 0);
}

static NOINLINE void of_host(void)
{
    pinned();
    CUdeviceptr at[2];
    CHECK(cuMemAllocManaged(&at[0], 256 << 10, 1) == 0);
    CHECK(cuMemAllocManaged(&at[1], 512 << 10, 1) == 0);
    CHECK(cuMemFree_v2(at[0]) == 0);
}

int main(void)
{
    CUcontext first;
    CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&first, 0) == 0);
    CHECK(cuCtxSetCurrent(first) == 0);
    plain();
    pitched();
    in_stream();
    arrays();
    physical();
    of_context(first);
    twice(first);
    CHECK(cuCtxSetCurrent(first) == 0);
    fails();
    with_dlsym();
    looked_up();
    of_another_driver();
    of_primary();
    of_host();
    for (int device = 0; device < 2; device++)
        say("device device:%d live_bytes=%zu\n", device, driver_live(device));
    say("device totals peak_bytes=%zu live_bytes=%zu\n", driver_peak(),
        driver_live(0) + driver_live(1));
    return 0;
}
