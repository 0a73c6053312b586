//! Sixteen threads that allocate and free memory of both devices, each a part of its own and one of
//! another thread. The driver has the same live bytes at the end.
//
// expect recording lost_events=0
// device function:work allocations=1600 frees=1440 live_blocks=160 live_bytes=1474560
// device recording lanes>=16
// plugin: libcuda.so.1 device_cuda.c -foptimize-sibling-calls -pthread -Wl,-soname,libcuda.so.1
// build: -L% -l:libcuda.so.1 -Wl,-rpath,% -pthread
#include "guest.h"
#include "device_cuda.h"
#include <pthread.h>

#define THREADS 16
#define ROUNDS 10
#define BYTES 9216

static CUcontext contexts[2];
static CUdeviceptr kept[THREADS][ROUNDS];
static pthread_barrier_t all;

static NOINLINE void *work(void *data)
{
    int own = (int)(intptr_t)data;
    char name[16];
    snprintf(name, sizeof name, "w%d", own);
    pthread_setname_np(pthread_self(), name);
    CHECK(cuCtxSetCurrent(contexts[own % 2]) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr at[9];
        for (int i = 0; i < 9; i++)
            CHECK(cuMemAlloc_v2(&at[i], BYTES) == 0);
        CHECK(cuMemAllocAsync(&kept[own][round], BYTES, 0) == 0);
        for (int i = 0; i < 8; i++)
            CHECK(cuMemFree_v2(at[i]) == 0);
        pthread_barrier_wait(&all);
        // Half of what another thread on the same device kept, and then the last one.
        CUdeviceptr other = kept[(own + 2) % THREADS][round];
        CHECK(cuMemFreeAsync(round % 2 ? other : at[8], 0) == 0);
        if (round % 2)
            stay();
        pthread_barrier_wait(&all);
    }
    return NULL;
}

int main(void)
{
    CHECK(cuInit(0) == 0);
    for (int device = 0; device < 2; device++)
        CHECK(cuDevicePrimaryCtxRetain(&contexts[device], device) == 0);
    CHECK(pthread_barrier_init(&all, NULL, THREADS) == 0);
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int device = 0; device < 2; device++)
        say("device device:%d live_bytes=%zu\n", device, driver_live(device));
    return 0;
}
