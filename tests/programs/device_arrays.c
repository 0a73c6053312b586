//! Arrays and physical memory of HIP: sizes from channels, descriptions and extents, some of which
//! are passed by value.
//
// expect recording lost_events=0
// device function:arrays allocations=7 frees=5 live_blocks=2 live_bytes=160
// device function:arrays requested_bytes=41870 usable_bytes=42686
// device function:physical allocations=1 frees=1 requested_bytes=2097152 live_bytes=0
// device device:HIP/0 allocations=7
// device device:HIP/1 allocations=1 peak_bytes=2097152
// plugin: libamdhip64.so.6 device_hip.c
// build: -ldl
// args: %/libamdhip64.so.6
#include "guest.h"
#include <dlfcn.h>

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
struct description {
    size_t width, height;
    unsigned format, channels;
};
struct deep_description {
    size_t width, height, depth;
    unsigned format, channels, flags;
};

static void *library;

#define function(result, name, ...) result (*name)(__VA_ARGS__) = keep(dlsym(library, #name))

static NOINLINE void arrays(void)
{
    function(int, hipMallocArray, void **, const struct format *, size_t, size_t, unsigned);
    function(int, hipMalloc3DArray, void **, const struct format *, struct extent, unsigned);
    function(int, hipMallocMipmappedArray, void **, const struct format *, struct extent, unsigned,
             unsigned);
    function(int, hipArrayCreate, void **, const struct description *);
    function(int, hipArray3DCreate, void **, const struct deep_description *);
    function(int, hipMipmappedArrayCreate, void **, const struct deep_description *, unsigned);
    function(int, hipMalloc3D, struct pitched *, struct extent);
    function(int, hipFreeArray, void *);
    function(int, hipFreeMipmappedArray, void *);
    function(int, hipArrayDestroy, void *);
    function(int, hipMipmappedArrayDestroy, void *);
    function(int, hipFree, void *);
    const struct format floats = {{32, 32, 32, 32}, 2}, bytes = {{8, 0, 0, 0}, 1};
    const struct description halves = {64, 0, 0x10, 1};
    const struct deep_description cube = {4, 4, 4, 0x01, 1, 0};
    const struct extent layers = {4, 4, 6}, flat = {16, 16, 0}, volume = {700, 4, 3};
    struct pitched pitched;
    void *at[6];
    CHECK(hipMallocArray(&at[0], &floats, 64, 32, 0) == 0); // 32768
    CHECK(hipMallocArray(&at[1], &floats, 0, 32, 0) != 0);
    CHECK(hipMalloc3DArray(&at[1], &bytes, layers, 1) == 0); // 96
    CHECK(hipMallocMipmappedArray(&at[2], &bytes, flat, 5, 0) == 0); // 256 + 64 + 16 + 4 + 1
    CHECK(hipArrayCreate(&at[3], &halves) == 0); // 128
    CHECK(hipArray3DCreate(&at[4], &cube) == 0); // 64
    CHECK(hipMipmappedArrayCreate(&at[5], &cube, 3) == 0); // 64 + 8 + 1
    CHECK(hipMalloc3D(&pitched, volume) == 0); // 8400, in rows of 768: 9216
    CHECK(pitched.pitch == 768 && pitched.width == 700 && pitched.height == 4);
    CHECK(hipFreeArray(at[0]) == 0 && hipFreeArray(0) != 0);
    CHECK(hipFreeMipmappedArray(at[2]) == 0 && hipArrayDestroy(at[3]) == 0);
    CHECK(hipMipmappedArrayDestroy(at[5]) == 0 && hipFree(pitched.at) == 0);
}

// The memory lives until its handle is released and it is mapped nowhere.
static NOINLINE void physical(void)
{
    function(int, hipMemCreate, void **, size_t, const int *, unsigned long long);
    function(int, hipMemMap, void *, size_t, size_t, void *, unsigned long long);
    function(int, hipMemUnmap, void *, size_t);
    function(int, hipMemRelease, void *);
    const int properties[8] = {1, 0, 1, 1}; // memory of device 1
    void *handle, *place = (char *)(1UL << 42);
    CHECK(hipMemCreate(&handle, 2 << 20, properties, 0) == 0);
    CHECK(hipMemMap(place, 2 << 20, 0, handle, 0) == 0);
    CHECK(hipMemRelease(handle) == 0 && hipMemUnmap(place, 2 << 20) == 0);
}

int main(int count, char **words)
{
    CHECK(count == 2);
    library = dlopen(words[1], RTLD_NOW);
    CHECK(library);
    arrays();
    physical();
    return 0;
}
