//! A part of CUDA's driver interface, as far as `device_cuda.c` has it.

#pragma once
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;
typedef struct array *CUarray;
typedef struct stream *CUstream;
typedef struct pool *CUmemoryPool;
typedef unsigned long long CUhandle;

struct CUarray2 {
    size_t width, height;
    unsigned format, channels;
};
struct CUarray3 {
    size_t width, height, depth;
    unsigned format, channels, flags;
};
struct CUproperties {
    int kind, shared;
    struct {
        int kind, device;
    } location;
    void *reserved[2];
};

CUresult cuInit(unsigned flags);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes);
CUresult cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t rows, unsigned);
CUresult cuMemFree_v2(CUdeviceptr at);
CUresult cuMemAllocAsync(CUdeviceptr *at, size_t bytes, CUstream stream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *at, size_t bytes, CUmemoryPool, CUstream);
CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream);
CUresult cuMemAllocHost_v2(void **at, size_t bytes);
CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned flags);
CUresult cuMemFreeHost(void *at);
CUresult cuMemAllocManaged(CUdeviceptr *at, size_t bytes, unsigned flags);
CUresult cuArrayCreate_v2(CUarray *array, const struct CUarray2 *description);
CUresult cuArray3DCreate_v2(CUarray *array, const struct CUarray3 *description);
CUresult cuArrayDestroy(CUarray array);
CUresult cuMipmappedArrayCreate(CUarray *array, const struct CUarray3 *, unsigned levels);
CUresult cuMipmappedArrayDestroy(CUarray array);
CUresult cuMemCreate(CUhandle *, size_t bytes, const struct CUproperties *, uint64_t flags);
CUresult cuMemRelease(CUhandle handle);
CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUhandle, uint64_t flags);
CUresult cuMemUnmap(CUdeviceptr at, size_t bytes);
CUresult cuMemRetainAllocationHandle(CUhandle *handle, void *at);
CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);

// What the driver itself counts: live bytes and the highest of all devices together.
size_t driver_live(CUdevice device);
size_t driver_peak(void);
// The next free fails.
void driver_fails(void);
