//! Level Zero without a device, for the tests of device memory: two devices of one driver.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

static int devices[2];
static char *next = (char *)(1UL << 42);

uint32_t zeDeviceGet(void *driver, uint32_t *count, void **handles)
{
    (void)driver;
    *count = 2;
    for (int i = 0; handles && i < 2; i++)
        handles[i] = &devices[i];
    return 0;
}

uint32_t zeMemAllocDevice(void *context, void *how, size_t bytes, size_t align, void *on, void **at)
{
    if (!context || !on || how || align != 64)
        return 0x78000004;
    *at = next;
    next += (bytes + 4095) & ~4095UL;
    return 0;
}

uint32_t zeMemAllocHost(void *context, void *how, size_t bytes, size_t align, void **at)
{
    *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return !context || how || align != 64;
}

// The address of the result is the seventh argument.
uint32_t zeMemAllocShared(void *context, void *on_device, void *on_host, size_t bytes, size_t align,
                          void *device, void **at)
{
    return on_device || on_host || !device ? 1 : zeMemAllocHost(context, 0, bytes, align, at);
}

uint32_t zeMemFree(void *context, void *at)
{
    return !context || !at;
}

uint32_t zeMemFreeExt(void *context, void *how, void *at)
{
    return how ? 1 : zeMemFree(context, at);
}

uint32_t zeContextDestroy(void *context)
{
    return !context;
}
