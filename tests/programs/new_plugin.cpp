//! The library of new_aligned_fails.cpp.
#include <cstdlib>
#include <new>

void *operator new(size_t size, std::align_val_t alignment)
{
    void *block;
    if (posix_memalign(&block, static_cast<size_t>(alignment), size) != 0)
        throw std::bad_alloc();
    return block;
}

void *operator new(size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept
{
    try {
        return operator new(size, alignment);
    } catch (...) {
        return nullptr;
    }
}

void *operator new[](size_t size, std::align_val_t alignment)
{
    return operator new(size, alignment);
}

void *operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept
{
    try {
        return operator new[](size, alignment);
    } catch (...) {
        return nullptr;
    }
}

void operator delete(void *block, std::align_val_t) noexcept { free(block); }
void operator delete[](void *block, std::align_val_t) noexcept { free(block); }
