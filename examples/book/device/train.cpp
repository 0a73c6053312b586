//! Trains a model that does not exist: weights stay on the device, and each step has batches on the
//! host, and activations on the device, which a pool hands out.
//
//     heaptide sdk sdk
//     gcc -shared -fPIC -O1 -o libcuda.so.1 driver.c -Wl,-soname,libcuda.so.1
//     g++ -g -O1 -I sdk/include -o train train.cpp -L. -l:libcuda.so.1 -Wl,-rpath,.
//     ./train
//
// With CUDA, link it with -lcuda in place of the driver without a device.

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "heaptide.h"

using CUdeviceptr = unsigned long long;

extern "C" {
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(CUdeviceptr *at, std::size_t bytes);
int cuMemFree_v2(CUdeviceptr at);
}

namespace {

constexpr std::size_t MIB = 1 << 20;

void check(int status)
{
    if (status != 0) {
        std::fputs("train: the driver failed\n", stderr);
        std::exit(1);
    }
}

CUdeviceptr device_alloc(std::size_t bytes)
{
    CUdeviceptr at = 0;
    check(cuMemAlloc_v2(&at, bytes));
    return at;
}

/// A pool that hands out one block after the other, and takes all back at once.
class Arena {
public:
    explicit Arena(std::size_t bytes) : start_(device_alloc(bytes)), free_(start_) {}
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;
    ~Arena() { check(cuMemFree_v2(start_)); }

    CUdeviceptr alloc(std::size_t bytes)
    {
        CUdeviceptr block = free_;
        free_ += bytes;
        blocks_.push_back(block);
        heaptide_pool_allocated(pool_, reinterpret_cast<void *>(block), bytes, bytes);
        return block;
    }

    void take_all_back()
    {
        for (CUdeviceptr block : blocks_)
            heaptide_pool_freed(reinterpret_cast<void *>(block));
        blocks_.clear();
        free_ = start_;
    }

private:
    uint32_t pool_ = heaptide_pool_named("activations");
    CUdeviceptr start_, free_;
    std::vector<CUdeviceptr> blocks_;
};

CUdeviceptr load_weights() { return device_alloc(24 * MIB); }

std::vector<float> read_batch(std::size_t step)
{
    return std::vector<float>(2 * MIB / sizeof(float), static_cast<float>(step));
}

CUdeviceptr embed(Arena &arena) { return arena.alloc(4 * MIB); }
CUdeviceptr attend(Arena &arena, std::size_t step) { return arena.alloc((step % 3 + 2) * MIB); }
CUdeviceptr project(Arena &arena) { return arena.alloc(3 * MIB); }

} // namespace

int main()
{
    void *context = nullptr;
    check(cuInit(0));
    check(cuDevicePrimaryCtxRetain(&context, 0));
    check(cuCtxSetCurrent(context));
    CUdeviceptr weights = load_weights();
    Arena arena(32 * MIB);
    double sum = 0;
    for (std::size_t step = 0; step < 10; step++) {
        std::vector<float> batch = read_batch(step);
        embed(arena);
        for (int layer = 0; layer < 4; layer++)
            attend(arena, step);
        project(arena);
        sum += batch[step];
        arena.take_all_back();
    }
    check(cuMemFree_v2(weights));
    std::printf("%.0f\n", sum);
}
