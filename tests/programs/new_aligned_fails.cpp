//! Forms of operator new with an alignment, of a library that calls posix_memalign like libstdc++
//! since gcc 13, that fail with bad_alloc or null; each counts once.
//
// expect leaf:failing_forms allocations=0 frees=0 failed=4
// expect function:main failed=4
// plugin: new_plugin.so new_plugin.cpp
// build: %/new_plugin.so -Wl,-rpath,%
#include "guest.h"
#include <new>

constexpr std::align_val_t LINE{64};

static NOINLINE void failing_forms()
{
    volatile size_t huge = SIZE_MAX / 2 + 1;
    int caught = 0;
    try {
        keep(::operator new(huge, LINE));
    } catch (const std::bad_alloc &) {
        caught++;
    }
    try {
        keep(::operator new[](huge, LINE));
    } catch (const std::bad_alloc &) {
        caught++;
    }
    CHECK(caught == 2);
    CHECK(keep(::operator new(huge, LINE, std::nothrow)) == nullptr);
    CHECK(keep(::operator new[](huge, LINE, std::nothrow)) == nullptr);
}

int main()
{
    failing_forms();
    say("failed\n");
    return 0;
}
