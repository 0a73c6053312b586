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
