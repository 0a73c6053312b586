//! A sequence of single allocations in every C++ and C form, each reported with exactly the
//! requested size.
//
// expect recording unmatched_frees=0
// expect leaf:one_int allocations=1 frees=1 requested_bytes=4
// expect leaf:five_ints allocations=1 frees=1 requested_bytes=20
// expect leaf:aligned_int allocations=1 frees=1 requested_bytes=512
// expect leaf:aligned_ints allocations=1 frees=1 requested_bytes=2560
// expect leaf:operator_forms allocations=8 frees=8 requested_bytes=96
// expect leaf:c_forms allocations=8 reallocations=1 frees=8 requested_bytes=755
// expect function:main live_blocks=0 live_bytes=0
#include "guest.h"
#include <new>

struct alignas(512) Aligned { int value; };

static NOINLINE void one_int() { delete keep(new int(1)); stay(); }
static NOINLINE void five_ints() { delete[] keep(new int[5]); stay(); }
static NOINLINE void aligned_int() { delete keep(new Aligned{1}); stay(); }
static NOINLINE void aligned_ints() { delete[] keep(new Aligned[5]); stay(); }

static NOINLINE void operator_forms()
{
    const std::align_val_t al{64};
    ::operator delete(keep(::operator new(12)));
    ::operator delete(keep(::operator new(12)), 12);
    ::operator delete[](keep(::operator new[](12)));
    ::operator delete[](keep(::operator new[](12)), 12);
    ::operator delete(keep(::operator new(12, std::nothrow)), std::nothrow);
    ::operator delete[](keep(::operator new[](12, std::nothrow)), std::nothrow);
    void *p = keep(::operator new(12, al));
    CHECK(reinterpret_cast<uintptr_t>(p) % 64 == 0);
    ::operator delete(p, 12, al);
    p = keep(::operator new[](12, al, std::nothrow));
    CHECK(reinterpret_cast<uintptr_t>(p) % 64 == 0);
    ::operator delete[](p, al);
    stay();
}

static NOINLINE void c_forms()
{
    free(keep(calloc(12, 1)));
    void *p = keep(malloc(50));
    p = keep(realloc(p, 100));
    CHECK(malloc_usable_size(p) >= 100);
    free(p);
    free(keep(aligned_alloc(128, 384)));
    free(keep(memalign(256, 24)));
    void *q = nullptr;
    CHECK(posix_memalign(&q, 128, 64) == 0);
    free(keep(q));
    p = keep(malloc(100));
    free(p);
    p = keep(malloc(21));
    free(p);
    stay();
}

int main()
{
    one_int();
    five_ints();
    aligned_int();
    aligned_ints();
    operator_forms();
    c_forms();
    say("all forms\n");
    return 0;
}
