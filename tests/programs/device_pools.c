//! Blocks of device memory that libraries hand out: reported to PyTorch's profiler, and by the
//! interface for pools. Blocks in mapped physical memory, on two devices with equal addresses, in
//! chunks and contexts that end, and in unknown memory.
//
// expect recording lost_events=0
// device totals allocations=7 frees=4 live_bytes=25165824 peak_bytes=25165824
// device function:handles allocations=2 live_bytes=1048576 at_peak_bytes=1048576
// device function:spanning live_bytes=3145728 at_peak_bytes=3145728
// device function:in_chunk_that_ends live_bytes=0
// device function:in_context_that_ends live_bytes=0
// device function:on_second_device live_bytes=0
// device function:with_interface live_bytes=0
// device function:segment allocations=1 live_bytes=11534336 at_peak_bytes=7340032
// device function:tensor live_bytes=9437184 at_peak_bytes=9437184
// device function:most live_bytes=0 at_peak_bytes=4194304
// plugin: libcuda.so.1 device_cuda.c -foptimize-sibling-calls -pthread -Wl,-soname,libcuda.so.1
// plugin: libc10.so device_c10.c -Wl,-soname,libc10.so
// build: -L% -l:libcuda.so.1 -lc10 -Wl,-rpath,%
#include "guest.h"
#include "../../include/heaptide.h"
#include "device_cuda.h"

#define MIB ((size_t)1 << 20)
#define CPU 0
#define CUDA(number) (uint16_t)(1 | (number) << 8)

void c10_report(CUdeviceptr, int64_t bytes, size_t allocated, size_t reserved, uint16_t device)
    __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
int64_t c10_sum(int which);

static int64_t reported, reserved;

static NOINLINE CUdeviceptr hand_out(CUdeviceptr at, size_t bytes, uint16_t device)
{
    reported += (int64_t)bytes;
    reserved += 7 + 9;
    c10_report(at, (int64_t)bytes, 7, 9, device);
    return keep(at);
}

static NOINLINE void take_back(CUdeviceptr at, size_t bytes, uint16_t device)
{
    reported -= (int64_t)bytes;
    c10_report(at, -(int64_t)bytes, 0, 0, device);
}

static NOINLINE CUdeviceptr alloc(size_t bytes)
{
    CUdeviceptr at;
    CHECK(cuMemAlloc_v2(&at, bytes) == 0);
    return keep(at);
}

static NOINLINE CUdeviceptr handles(void)
{
    struct CUproperties on_first = {1, 0, {1, 0}, {0}};
    CUdeviceptr at = 1UL << 40;
    for (int i = 0; i < 2; i++) {
        CUhandle handle;
        CHECK(cuMemCreate(&handle, 2 * MIB, &on_first, 0) == 0);
        CHECK(cuMemMap(at + i * 2 * MIB, 2 * MIB, 0, handle, 0) == 0);
    }
    return at;
}

static NOINLINE CUdeviceptr spanning(CUdeviceptr at)
{
    return keep(hand_out(at + MIB / 2, 3 * MIB, CUDA(0)));
}

static NOINLINE void in_chunk_that_ends(void)
{
    CUdeviceptr at = alloc(8 * MIB);
    hand_out(at, MIB, CUDA(0));
    hand_out(at + MIB, 2 * MIB, CUDA(0));
    hand_out(at, MIB, CUDA(0)); // the end of the first one was not reported
    CHECK(cuMemFree_v2(at) == 0);
    take_back(at, MIB, CUDA(0));
}

static NOINLINE void in_context_that_ends(CUcontext first)
{
    CUcontext second;
    CHECK(cuCtxCreate_v2(&second, 0, 1) == 0);
    hand_out(alloc(4 * MIB) + MIB, MIB, CUDA(1));
    CHECK(cuCtxDestroy_v2(second) == 0 && cuCtxSetCurrent(first) == 0);
}

// The chunk of the second device has the addresses of one of the first.
static NOINLINE void on_second_device(CUcontext first)
{
    CUcontext second;
    CUdeviceptr at = alloc(2 * MIB);
    CHECK(cuCtxCreate_v2(&second, 0, 1) == 0 && alloc(2 * MIB) == at);
    hand_out(at, MIB, CUDA(0));
    hand_out(at, 2 * MIB, CUDA(1));
    take_back(at, MIB, CUDA(0));
    take_back(at, 2 * MIB, CUDA(1));
    CHECK(cuMemFree_v2(at) == 0 && cuCtxSetCurrent(first) == 0 && cuMemFree_v2(at) == 0);
}

static NOINLINE void with_interface(CUdeviceptr at)
{
    uint32_t pool = heaptide_pool_named("own");
    void *block = (void *)(at + MIB), *moved = (void *)(at + 2 * MIB);
    CHECK(heaptide_pool_add(pool, (void *)at, 8 * MIB) == heaptide_recording());
    CHECK(heaptide_pool_allocated(pool, block, 1000, MIB) == heaptide_recording());
    CHECK(heaptide_pool_reallocated(block, moved, 2000, 2 * MIB) == heaptide_recording());
    CHECK(!heaptide_pool_freed(block));
    CHECK(heaptide_pool_freed(moved) == heaptide_recording());
    CHECK(heaptide_pool_remove((void *)at) == heaptide_recording());
}

static NOINLINE CUdeviceptr segment(void) { return keep(alloc(20 * MIB)); }

static NOINLINE CUdeviceptr tensor(CUdeviceptr at, size_t bytes)
{
    return keep(hand_out(at, bytes, CUDA(0)));
}

static NOINLINE CUdeviceptr most(CUdeviceptr at, size_t bytes)
{
    return keep(hand_out(at, bytes, CUDA(0)));
}

int main(void)
{
    CUcontext first;
    CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&first, 0) == 0);
    CHECK(cuCtxSetCurrent(first) == 0);
    on_second_device(first);
    hand_out(1UL << 41, MIB, CUDA(0)); // unknown memory
    spanning(handles());
    hand_out(1UL << 40, MIB, CPU);
    in_chunk_that_ends();
    in_context_that_ends(first);
    // The driver's bytes have their highest value from here on; the peak is when most of them are
    // handed out.
    CUdeviceptr at = segment();
    with_interface(at);
    tensor(at, 6 * MIB);
    tensor(at + 6 * MIB, 4 * MIB);
    take_back(at, 6 * MIB, CUDA(0));
    tensor(at + 10 * MIB, 5 * MIB);
    most(at + 15 * MIB, 4 * MIB);
    take_back(at + 15 * MIB, 4 * MIB, CUDA(0));
    CHECK(c10_sum(0) == reported && c10_sum(1) == reserved && c10_sum(2) > 0);
    return 0;
}
