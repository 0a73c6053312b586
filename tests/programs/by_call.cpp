//! Blocks from every allocating function: with `--by-call`, each kind of function has a separate
//! site at the same stack. All are in the scope `calls`.
//
// Known allocations and failures:
//   malloc   19, 0: 7 of 101 bytes, 3 that realloc gets, 7 of 109 after calls that
//                   return no block or an unrecorded one, 2 exceptions
//   calloc    6, 1: 5 of 102 bytes, 1 of 110 with a label, then with another one
//   realloc   5, 1: of a block twice, of none three times
//   aligned   5, 1
//   new       7, 2: four of them of no alignment
//   other     1, 0: mallocx, which only the recorder has here
// build: -std=c++17
#include "api_guest.h"
#include <new>

extern "C" void *mallocx(size_t, int) __attribute__((weak));

static volatile size_t huge = SIZE_MAX / 2;

static void by_realloc()
{
    void *block = keep(realloc(keep(malloc(103)), 104));
    free(keep(realloc(block, 2105)));
    free(keep(realloc(nullptr, 106)));
    free(keep(realloc(nullptr, 106)));
    free(keep(reallocarray(nullptr, 1, 107)));
}

static void by_alignment()
{
    void *block = nullptr;
    free(keep(aligned_alloc(64, 128)));
    free(keep(memalign(64, 129)));
    CHECK(posix_memalign(&block, 64, 130) == 0);
    free(keep(block));
    free(keep(valloc(131)));
    free(keep(pvalloc(132)));
}

static void by_new()
{
    const std::align_val_t alignment{64};
    ::operator delete(keep(::operator new(133)));
    ::operator delete[](keep(::operator new[](134)));
    ::operator delete(keep(::operator new(135, std::nothrow)));
    ::operator delete[](keep(::operator new[](136, std::nothrow)));
    ::operator delete(keep(::operator new(137, alignment)), alignment);
    ::operator delete[](keep(::operator new[](138, alignment)), alignment);
    ::operator delete(keep(::operator new(139, alignment, std::nothrow)), alignment);
}

// Despite the calls before, the block counts as one of malloc.
static NOINLINE void after() { free(keep(malloc(109))); }

static void by_failure()
{
    try {
        keep(::operator new(huge));
    } catch (const std::bad_alloc &) {
        after();
    }
    try {
        keep(::operator new[](huge));
    } catch (const std::bad_alloc &) {
        after();
    }
    CHECK(!keep(calloc(huge, 3)));
    after();
    void *none = nullptr;
    CHECK(posix_memalign(&none, 3, 8) != 0);
    after();
    void *block = keep(malloc(103));
    CHECK(!keep(realloc(block, huge)));
    free(block);
    after();
    // A realloc to size 0 is a free.
    block = keep(malloc(103));
    CHECK(!keep(realloc(block, 0)));
    after();
}

static void unrecorded()
{
    heaptide_pause(0);
    ::operator delete(keep(::operator new(140)));
    heaptide_resume(0);
    after();
}

int main()
{
    heaptide_begin("calls");
    for (int i = 0; i < 7; i++)
        free(keep(malloc(101)));
    for (int i = 0; i < 5; i++)
        free(keep(calloc(1, 102)));
    by_realloc();
    by_alignment();
    by_new();
    by_failure();
    unrecorded();
    void *row = keep(calloc(1, 110));
    KNOWN(heaptide_label_block(row, "rows"));
    KNOWN(heaptide_label_block(row, "columns"));
    if (mallocx)
        free(keep(mallocx(111, 0)));
    heaptide_end("calls");
    return 0;
}
