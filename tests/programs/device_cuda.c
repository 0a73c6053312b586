//! A driver of two devices without a device, for the tests of device memory. Addresses of both
//! devices are the same; functions that programs look up are other ones than those that it exports;
//! some functions call others. It counts by itself, without allocations.

#include "device_cuda.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCKS 8192
#define FAILED 1
#define NO_MEMORY 2
#define MEMORY_BYTES ((size_t)1 << 36)

enum kind { MEMORY, ARRAY, PHYSICAL, HOST };

struct context {
    int device, is_live;
};
struct block {
    enum kind kind;
    int is_live, device, views, references;
    struct context *context;
    uint64_t name;
    size_t bytes;
};
struct view {
    int is_live;
    uint64_t at;
    size_t bytes;
    struct block *block;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block blocks[BLOCKS];
static struct view views[BLOCKS];
static struct context contexts[64], primary[2];
static int retained[2], context_count, fails;
static uint64_t next_address[2] = {1 << 20, 1 << 20}, next_handle = 7;
static size_t live[2], highest;
static __thread struct context *current;

static void count(struct block *block, int sign)
{
    if (block->kind == HOST)
        return;
    live[block->device] += sign > 0 ? block->bytes : -block->bytes;
    if (live[0] + live[1] > highest)
        highest = live[0] + live[1];
}

static struct block *add(enum kind kind, int device, uint64_t name, size_t bytes)
{
    for (int i = 0; i < BLOCKS; i++) {
        struct block *block = &blocks[i];
        if (!block->is_live) {
            *block = (struct block){kind, 1, device, 0, 1, current, name, bytes};
            count(block, 1);
            return block;
        }
    }
    return 0;
}

static struct block *find(enum kind kind, int device, uint64_t name)
{
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].is_live && blocks[i].kind == kind && blocks[i].name == name &&
            (kind != MEMORY || blocks[i].device == device))
            return &blocks[i];
    return 0;
}

static void end(struct block *block)
{
    if (block->references == 0 && block->views == 0) {
        count(block, -1);
        block->is_live = 0;
    }
}

static void end_context(struct context *context)
{
    for (int i = 0; i < BLOCKS; i++) {
        struct block *block = &blocks[i];
        if (block->is_live && block->context == context && block->kind != PHYSICAL) {
            block->references = 0;
            end(block);
        }
    }
}

static CUresult allocate(CUdeviceptr *at, size_t bytes)
{
    if (!current || !at)
        return FAILED;
    pthread_mutex_lock(&lock);
    int device = current->device;
    CUresult result = NO_MEMORY;
    if (live[device] + bytes <= MEMORY_BYTES) {
        *at = next_address[device];
        next_address[device] += (bytes + 511) & ~(size_t)511;
        result = add(MEMORY, device, *at, bytes) ? 0 : NO_MEMORY;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult release(enum kind kind, uint64_t name)
{
    pthread_mutex_lock(&lock);
    struct block *block = find(kind, current ? current->device : 0, name);
    CUresult result = block && block->references > 0 && !fails ? 0 : FAILED;
    fails = 0;
    if (result == 0) {
        block->references--;
        end(block);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult host(void **at, size_t bytes)
{
    *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*at == MAP_FAILED)
        return NO_MEMORY;
    pthread_mutex_lock(&lock);
    add(HOST, 0, (uint64_t)*at, bytes);
    pthread_mutex_unlock(&lock);
    return 0;
}

static CUresult free_host(uint64_t at)
{
    struct block *block = find(HOST, 0, at);
    if (!block)
        return FAILED;
    munmap((void *)at, block->bytes);
    return release(HOST, at);
}

CUresult cuInit(unsigned flags)
{
    return flags ? FAILED : 0;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    (void)flags;
    *context = &contexts[context_count++];
    **context = (struct context){device, 1};
    current = *context;
    return 0;
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    if (!context || !context->is_live)
        return FAILED;
    end_context(context);
    context->is_live = 0;
    if (current == context)
        current = 0;
    return 0;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return 0;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = current;
    return 0;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    if (!current)
        return FAILED;
    *device = current->device;
    return 0;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    retained[device]++;
    primary[device] = (struct context){device, 1};
    *context = &primary[device];
    return 0;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    end_context(&primary[device]);
    return 0;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    if (retained[device] == 0)
        return FAILED;
    return --retained[device] == 0 ? cuDevicePrimaryCtxReset_v2(device) : 0;
}

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes)
{
    return allocate(at, bytes);
}

// Calls another function of the interface, like real drivers.
CUresult cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t rows, unsigned n)
{
    (void)n;
    *pitch = (width + 511) & ~(size_t)511;
    return cuMemAlloc_v2(at, *pitch * rows);
}

CUresult cuMemFree_v2(CUdeviceptr at)
{
    return find(HOST, 0, at) ? free_host(at) : release(MEMORY, at);
}

CUresult cuMemAllocAsync(CUdeviceptr *at, size_t bytes, CUstream stream)
{
    (void)stream;
    return allocate(at, bytes);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *at, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    (void)pool;
    return cuMemAllocAsync(at, bytes, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
    (void)stream;
    return release(MEMORY, at);
}

CUresult cuMemAllocHost_v2(void **at, size_t bytes)
{
    return host(at, bytes);
}

CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    return host(at, bytes);
}

CUresult cuMemFreeHost(void *at)
{
    if ((uint64_t)at % 4096 != 0)
        return FAILED;
    return free_host((uint64_t)at);
}

CUresult cuMemAllocManaged(CUdeviceptr *at, size_t bytes, unsigned flags)
{
    (void)flags;
    return host((void **)at, bytes);
}

static CUresult handle(uint64_t *name, enum kind kind, int device, size_t bytes)
{
    pthread_mutex_lock(&lock);
    *name = next_handle++;
    CUresult result = add(kind, device, *name, bytes) ? 0 : NO_MEMORY;
    pthread_mutex_unlock(&lock);
    return result;
}

static size_t element(unsigned format, unsigned channels)
{
    return channels * (format == 0x20 ? 4 : 1);
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

CUresult cuArrayCreate_v2(CUarray *array, const struct CUarray2 *of)
{
    size_t bytes = of->width * most(of->height, 1) * element(of->format, of->channels);
    return handle((uint64_t *)array, ARRAY, current->device, bytes);
}

CUresult cuArray3DCreate_v2(CUarray *array, const struct CUarray3 *of)
{
    return cuMipmappedArrayCreate(array, of, 1);
}

CUresult cuMipmappedArrayCreate(CUarray *array, const struct CUarray3 *of, unsigned levels)
{
    size_t bytes = 0;
    for (unsigned level = 0; level < levels; level++)
        bytes += most(of->width >> level, 1) * most(of->height >> level, 1) *
                 most(of->depth >> level, 1) * element(of->format, of->channels);
    return handle((uint64_t *)array, ARRAY, current->device, bytes);
}

CUresult cuArrayDestroy(CUarray array)
{
    return release(ARRAY, (uint64_t)array);
}

CUresult cuMipmappedArrayDestroy(CUarray array)
{
    return release(ARRAY, (uint64_t)array);
}

CUresult cuMemCreate(CUhandle *name, size_t bytes, const struct CUproperties *of, uint64_t flags)
{
    (void)flags;
    return handle((uint64_t *)name, PHYSICAL, of->location.device, bytes);
}

CUresult cuMemRelease(CUhandle name)
{
    return release(PHYSICAL, name);
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUhandle name, uint64_t flags)
{
    (void)offset, (void)flags;
    struct block *block = find(PHYSICAL, 0, name);
    for (int i = 0; block && i < BLOCKS; i++) {
        if (!views[i].is_live) {
            views[i] = (struct view){1, at, bytes, block};
            block->views++;
            return 0;
        }
    }
    return FAILED;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes)
{
    CUresult result = FAILED;
    for (int i = 0; i < BLOCKS; i++) {
        struct view *view = &views[i];
        if (view->is_live && view->at >= at && view->at < at + bytes) {
            view->is_live = 0;
            view->block->views--;
            end(view->block);
            result = 0;
        }
    }
    return result;
}

CUresult cuMemRetainAllocationHandle(CUhandle *name, void *at)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (views[i].is_live && views[i].at == (uint64_t)at) {
            views[i].block->references++;
            *name = views[i].block->name;
            return 0;
        }
    }
    return FAILED;
}

// Not the exported functions: a program that looks them up gets others.
static CUresult inner_alloc(CUdeviceptr *at, size_t bytes)
{
    return allocate(at, bytes);
}

static CUresult inner_free(CUdeviceptr at)
{
    return release(MEMORY, at);
}

CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    (void)version, (void)flags;
    *function = !strcmp(name, "cuMemAlloc")       ? (void *)inner_alloc
                : !strcmp(name, "cuMemFree")      ? (void *)inner_free
                : !strcmp(name, "cuMemFreeAsync") ? (void *)cuMemFreeAsync
                                                  : 0;
    return *function ? 0 : FAILED;
}

size_t driver_live(CUdevice device)
{
    return live[device];
}

size_t driver_peak(void)
{
    return highest;
}

void driver_fails(void)
{
    fails = 1;
}
