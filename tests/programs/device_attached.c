//! Loads a driver and allocates, reports that it is ready, and allocates again after each byte of
//! its input. Frees of memory from before attaching count nothing.
//
// device function:allocates allocations=5 frees=1 live_bytes=8388608
// plugin: libcuda.so.1 device_cuda.c -foptimize-sibling-calls -pthread -Wl,-soname,libcuda.so.1
// build: -L% -l:libcuda.so.1 -Wl,-rpath,%
#include "guest.h"
#include "device_cuda.h"

static NOINLINE CUdeviceptr allocates(void)
{
    CUdeviceptr at;
    CHECK(cuMemAlloc_v2(&at, 2 << 20) == 0);
    return keep(at);
}

int main(void)
{
    CUcontext context;
    CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0);
    CHECK(cuCtxSetCurrent(context) == 0);
    CUdeviceptr before = allocates(), at[5];
    say("r");
    char step;
    while (read(0, &step, 1) == 1) {
        for (int i = 0; i < 5; i++)
            at[i] = allocates();
        CHECK(cuMemFree_v2(before) == 0 && cuMemFree_v2(at[4]) == 0);
        before = at[0];
        say("%c", step);
    }
    return 0;
}
