//! Forms of operator new that fail with bad_alloc or null, after calling the new-handler; each
//! counts once.
//
// expect leaf:failing_forms allocations=0 frees=0 failed=4
// expect leaf:handled allocations=0 failed=1
// expect function:main failed=5
#include "guest.h"
#include <new>

static NOINLINE void failing_forms()
{
    volatile size_t huge = SIZE_MAX / 2 + 1;
    int caught = 0;
    try {
        keep(::operator new(huge));
    } catch (const std::bad_alloc &) {
        caught++;
    }
    try {
        keep(::operator new[](huge, std::align_val_t{64}));
    } catch (const std::bad_alloc &) {
        caught++;
    }
    CHECK(caught == 2);
    CHECK(keep(::operator new(huge, std::nothrow)) == nullptr);
    CHECK(keep(::operator new[](huge, std::align_val_t{64}, std::nothrow)) == nullptr);
}

static int asked;
static void handler()
{
    if (++asked == 3)
        std::set_new_handler(nullptr);
}
static NOINLINE void handled()
{
    volatile size_t huge = SIZE_MAX / 2 + 1;
    std::set_new_handler(handler);
    try {
        keep(::operator new(huge));
    } catch (const std::bad_alloc &) {
        asked += 10;
    }
}

int main()
{
    failing_forms();
    handled();
    say("asked %d\n", asked);
    return 0;
}
