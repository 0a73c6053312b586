//! Device memory before a snapshot, after it, after a reset, in a forked child, and until the
//! program is killed.
//
// expect recording processes=2
// device function:early allocations=0 live_bytes=3145728
// device function:middle allocations=0 frees=1 freed_bytes=2097152 live_bytes=3145728
// device function:late allocations=1 live_bytes=3145728
// device function:in_child allocations=1 frees=0 live_bytes=4194304
// plugin: libcuda.so.1 device_cuda.c -foptimize-sibling-calls -pthread -Wl,-soname,libcuda.so.1
// build: -L% -l:libcuda.so.1 -Wl,-rpath,%
#include "guest.h"
#include "../../include/heaptide.h"
#include "device_cuda.h"
#include <signal.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

static NOINLINE CUdeviceptr alloc(size_t bytes)
{
    CUdeviceptr at;
    CHECK(cuMemAlloc_v2(&at, bytes) == 0);
    return keep(at);
}
static NOINLINE CUdeviceptr early(void) { return keep(alloc(3 * MIB)); }
static NOINLINE CUdeviceptr middle(size_t bytes) { return keep(alloc(bytes)); }
static NOINLINE CUdeviceptr late(void) { return keep(alloc(3 * MIB)); }

// What the parent allocated is not the child's.
static NOINLINE void in_child(CUdeviceptr of_parent)
{
    CHECK(cuMemFree_v2(of_parent) == 0);
    alloc(4 * MIB);
    _exit(0);
}

int main(void)
{
    CUcontext context;
    CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0);
    CHECK(cuCtxSetCurrent(context) == 0);
    CUdeviceptr first = early();
    heaptide_snapshot_now("early");
    middle(3 * MIB);
    CUdeviceptr gone = middle(2 * MIB);
    heaptide_reset();
    late();
    CHECK(cuMemFree_v2(gone) == 0);
    pid_t child = fork();
    if (child == 0)
        in_child(first);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    kill(getpid(), SIGKILL);
    return 0;
}
