//! A driver without a device: as much of CUDA's driver interface as `train.cpp` uses, so that the
//! example runs on every machine. Memory is a range of addresses that is never accessed.
//
//     gcc -shared -fPIC -O1 -o libcuda.so.1 driver.c -Wl,-soname,libcuda.so.1

#include <stddef.h>

typedef unsigned long long CUdeviceptr;

static CUdeviceptr next = 1ull << 40;

int cuInit(unsigned flags) { return flags != 0; }

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &next;
    return device != 0;
}

int cuCtxSetCurrent(void *context) { return context != &next; }

int cuCtxGetCurrent(void **context)
{
    *context = &next;
    return 0;
}

int cuCtxGetDevice(int *device)
{
    *device = 0;
    return 0;
}

int cuMemAlloc_v2(CUdeviceptr *at, size_t bytes)
{
    *at = next;
    next += (bytes + 511) / 512 * 512;
    return bytes == 0;
}

int cuMemFree_v2(CUdeviceptr at) { return at == 0 || at >= next; }
