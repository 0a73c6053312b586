//! Calls Kokkos' tool interface as Kokkos does: loads the library that KOKKOS_TOOLS_LIBS names, and
//! announces memory of the host, of a driver, and of devices without a driver, with regions,
//! kernels and an event.
//
// expect recording lost_events=0
// expect label:host allocations=1 frees=0 live_blocks=1 usable_bytes>=1048576 usable_bytes<=1056768
// expect label:earlier allocations=1 frees=1 usable_bytes>=4168 usable_bytes<=4200
// expect label:again allocations=10 frees=10
// expect label:foreign allocations=0
// expect scope:setup>first allocations=3 usable_bytes>=3000
// expect scope:setup>first>second allocations=2
// expect scope:setup>inner entered=1 allocations=1
// expect scope:setup entered=1 allocations=1
// expect mark:Kokkos::initialize count=1
// expect mark:Kokkos::finalize count=1
// expect mark:step count=1
// device totals allocations=205 frees=202 live_bytes=5767168 peak_bytes=6291456
// device label:x allocations=1 live_bytes=4194304 at_peak_bytes=4194304
// device label:temporary allocations=1 frees=1 live_bytes=0 at_peak_bytes=2097152
// device label:inside allocations=0
// device label:h allocations=1 frees=1 usable_bytes=786432
// device label:h2 allocations=1 frees=0 live_bytes=524288
// device label:shared allocations=200 frees=200
// device function:allocate_x allocations=1 live_bytes=4194304
// device function:chunk allocations=1 live_bytes=1048576
// device scope:setup allocations=1 live_bytes=4194304
// device scope:setup>inner allocations=1 frees=1
// device device:CUDA/0 live_bytes=5242880
// device device:HIP/ live_bytes=524288
// mapped class:pinned mappings=1 live_bytes=65536
// mapped label:pinned allocations=1 live_bytes=65536 usable_bytes=65536
// plugin: libcuda.so.1 device_cuda.c -foptimize-sibling-calls -pthread -Wl,-soname,libcuda.so.1
// build: -L% -l:libcuda.so.1 -Wl,-rpath,% -ldl -pthread
#include "guest.h"
#include "device_cuda.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

struct space {
    char name[64];
};

struct settings {
    bool requires_global_fencing;
    bool reserved[255];
};

static void (*init)(int, uint64_t, uint32_t, void *);
static void (*finalize)(void);
static void (*request_settings)(uint32_t, struct settings *);
static void (*allocate)(struct space, const char *, const void *, uint64_t);
static void (*deallocate)(struct space, const char *, const void *, uint64_t);
static void (*push)(const char *);
static void (*pop)(void);
static void (*event)(const char *);
static void (*begin[3])(const char *, uint32_t, uint64_t *);
static void (*end[3])(uint64_t);

static void *look_up(void *library, const char *prefix, const char *name)
{
    char whole[64];
    snprintf(whole, sizeof whole, "kokkosp_%s%s", prefix, name);
    return library ? dlsym(library, whole) : NULL;
}

static void load(void)
{
    const char *name = getenv("KOKKOS_TOOLS_LIBS");
    void *library = name ? dlopen(name, RTLD_NOW | RTLD_GLOBAL) : NULL;
    const char *kinds[] = {"parallel_for", "parallel_reduce", "parallel_scan"};
    for (int i = 0; i < 3; i++) {
        begin[i] = look_up(library, "begin_", kinds[i]);
        end[i] = look_up(library, "end_", kinds[i]);
    }
    init = look_up(library, "", "init_library");
    finalize = look_up(library, "", "finalize_library");
    request_settings = look_up(library, "", "request_tool_settings");
    allocate = look_up(library, "", "allocate_data");
    deallocate = look_up(library, "", "deallocate_data");
    push = look_up(library, "", "push_profile_region");
    pop = look_up(library, "", "pop_profile_region");
    event = look_up(library, "", "profile_event");
    if (!library)
        return;
    CHECK(init && finalize && request_settings && allocate && deallocate && push && pop && event);
    init(0, 20240906, 0, NULL);
    struct settings settings = {.requires_global_fencing = true};
    request_settings(1, &settings);
    CHECK(!settings.requires_global_fencing);
}

static void announce(bool is_new, const char *space, const char *label, uint64_t at, uint64_t bytes)
{
    struct space handle;
    strncpy(handle.name, space, 63);
    if (is_new && allocate)
        allocate(handle, label, (void *)at, bytes);
    if (!is_new && deallocate)
        deallocate(handle, label, (void *)at, bytes);
}

static uint64_t begin_kernel(int kind, const char *name)
{
    uint64_t kernel = 7;
    if (begin[kind])
        begin[kind](name, 0, &kernel);
    return kernel;
}

static void end_kernel(int kind, uint64_t kernel)
{
    if (end[kind])
        end[kind](kernel);
}

static void region(const char *name)
{
    if (name && push)
        push(name);
    if (!name && pop)
        pop();
}

static NOINLINE uint64_t on_device(const char *label, size_t bytes)
{
    CUdeviceptr at = 0;
    CHECK(cuMemAlloc_v2(&at, bytes) == 0);
    announce(true, "Cuda", label, at, bytes);
    return keep(at);
}

static NOINLINE uint64_t allocate_x(void)
{
    return keep(on_device("x", 4 * MIB));
}

static void free_on_device(const char *label, uint64_t at, size_t bytes)
{
    announce(false, "Cuda", label, at, bytes);
    CHECK(cuMemFree_v2(at) == 0);
}

// A part of memory of a driver does not count again.
static NOINLINE void chunk(void)
{
    CUdeviceptr at = 0;
    CHECK(cuMemAlloc_v2(&at, MIB) == 0);
    announce(true, "Cuda", "inside", at + 64 * KIB, 64 * KIB);
    announce(false, "Cuda", "inside", at + 64 * KIB, 64 * KIB);
}

static void of_host(void)
{
    char *at = aligned_alloc(64, MIB);
    announce(true, "Host", "host", (uint64_t)at, MIB - 128);
    // Versions before 4 align memory of malloc themselves.
    char *block = malloc(4096 + 72);
    char *aligned = (char *)(((uintptr_t)block + 8 + 63) & ~(uintptr_t)63);
    announce(true, "Host", "earlier", (uint64_t)aligned, 4096);
    announce(false, "Host", "earlier", (uint64_t)aligned, 4096);
    free(block);
    for (int i = 0; i < 10; i++) {
        char *again = aligned_alloc(64, 1024);
        announce(true, "Host", "again", (uint64_t)again, 896);
        announce(false, "Host", "again", (uint64_t)again, 896);
        free(again);
    }
    static char foreign[4096];
    announce(true, "Host", "foreign", (uint64_t)foreign, sizeof foreign);
    announce(true, "Host", "", (uint64_t)foreign, sizeof foreign);
    void *pinned;
    CHECK(cuMemHostAlloc(&pinned, 64 * KIB, 0) == 0);
    announce(true, "CudaHostPinned", "pinned", (uint64_t)pinned, 64 * KIB);
}

static void kernels(void)
{
    uint64_t first = begin_kernel(0, "first");
    for (int i = 0; i < 3; i++)
        keep(malloc(1000));
    uint64_t second = begin_kernel(1, "second");
    keep(malloc(100));
    uint64_t third = begin_kernel(2, "third");
    end_kernel(2, third);
    keep(malloc(100));
    end_kernel(1, second);
    end_kernel(0, first);
}

static void *share(void *context)
{
    CHECK(cuCtxSetCurrent(context) == 0);
    for (int i = 0; i < 50; i++) {
        uint64_t at = on_device("shared", 64 * KIB);
        free_on_device("shared", at, 64 * KIB);
    }
    return context;
}

int main(void)
{
    CUcontext context;
    CHECK(cuInit(0) == 0 && cuCtxCreate_v2(&context, 0, 0) == 0);
    load();
    region("setup");
    allocate_x();
    region("inner");
    uint64_t temporary = on_device("temporary", 2 * MIB);
    keep(malloc(100));
    free_on_device("temporary", temporary, 2 * MIB);
    region(NULL);
    keep(malloc(10));
    kernels();
    region(NULL);
    region(NULL); // more ends than begins
    chunk();
    announce(true, "HIP", "h", 0x7000000000, 768 * KIB);
    announce(false, "HIP", "h", 0x7000000000, 768 * KIB);
    announce(true, "HIP", "h2", 0x7000000000, 512 * KIB);
    of_host();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, share, context) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    if (event)
        event("step");
    if (finalize)
        finalize();
    return 0;
}
