//! HIP without a device, for the tests of device memory: three devices, and functions that call
//! others.

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

static __thread int current;
static char *next = (char *)(1UL << 41);

int hipSetDevice(int device)
{
    current = device;
    return 0;
}

int hipGetDevice(int *device)
{
    *device = current;
    return 0;
}

int hipMalloc(void **at, size_t bytes)
{
    if (!at || bytes > (1UL << 36))
        return 2;
    *at = next;
    next += (bytes + 4095) & ~4095UL;
    return 0;
}

int hipFree(void *at)
{
    return at ? 0 : 1;
}

int hipMallocPitch(void **at, size_t *pitch, size_t width, size_t rows)
{
    *pitch = (width + 255) & ~255UL;
    return hipMalloc(at, *pitch * rows);
}

int hipMallocAsync(void **at, size_t bytes, void *stream)
{
    return stream ? 1 : hipMalloc(at, bytes);
}

int hipFreeAsync(void *at, void *stream)
{
    return stream ? 1 : hipFree(at);
}

int hipHostMalloc(void **at, size_t bytes, unsigned flags)
{
    *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return flags || *at == MAP_FAILED;
}

int hipHostFree(void *at)
{
    // The driver keeps the memory for later.
    return at ? 0 : 1;
}

int hipMallocManaged(void **at, size_t bytes, unsigned flags)
{
    return hipHostMalloc(at, bytes, flags - 1);
}

int hipDeviceReset(void)
{
    // Too short a function could not be changed.
    return current < 0;
}

struct format {
    int bits[4];
    int kind;
};
struct extent {
    size_t width, height, depth;
};
struct pitched {
    char *at;
    size_t pitch, width, height;
};

static int make(void **handle, int is_right)
{
    if (!is_right)
        return 1;
    *handle = next;
    next += 256;
    return 0;
}

int hipMallocArray(void **array, const struct format *format, size_t width, size_t height,
                   unsigned flags)
{
    return make(array, format && width && (height || !flags));
}

int hipMalloc3DArray(void **array, const struct format *format, struct extent extent,
                     unsigned flags)
{
    return make(array, format && extent.width && extent.depth < 1000 && flags <= 7);
}

int hipMallocMipmappedArray(void **array, const struct format *format, struct extent extent,
                            unsigned levels, unsigned flags)
{
    return make(array, format && extent.height < 1000 && extent.depth == 0 && levels && !flags);
}

int hipArrayCreate(void **array, const void *description)
{
    return make(array, description != NULL);
}

int hipArray3DCreate(void **array, const void *description)
{
    return make(array, description != NULL);
}

int hipMipmappedArrayCreate(void **array, const void *description, unsigned levels)
{
    return make(array, description && levels);
}

int hipMalloc3D(struct pitched *pitched, struct extent extent)
{
    pitched->pitch = (extent.width + 255) & ~255UL;
    pitched->width = extent.width;
    pitched->height = extent.height;
    return hipMalloc((void **)&pitched->at, pitched->pitch * extent.height * extent.depth);
}

int hipFreeArray(void *array)
{
    return array ? 0 : 1;
}

int hipFreeMipmappedArray(void *array)
{
    return array ? 0 : 1;
}

int hipArrayDestroy(void *array)
{
    return array ? 0 : 1;
}

int hipMipmappedArrayDestroy(void *array)
{
    return array ? 0 : 1;
}

int hipMemCreate(void **handle, size_t bytes, const int *properties, unsigned long long flags)
{
    return make(handle, bytes && properties[2] == 1 && !flags);
}

int hipMemMap(void *at, size_t bytes, size_t offset, void *handle, unsigned long long flags)
{
    return at && bytes && !offset && handle && !flags ? 0 : 1;
}

int hipMemUnmap(void *at, size_t bytes)
{
    return at && bytes ? 0 : 1;
}

int hipMemRelease(void *handle)
{
    return handle ? 0 : 1;
}
