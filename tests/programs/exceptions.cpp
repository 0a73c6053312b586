//! C++ exceptions through recorded frames: thrown from deep frames, rethrown, caught halfway;
//! stacks stay correct.
//
// expect leaf:throwing allocations=500 frees=500 requested_bytes=16500
// expect function:after_catch allocations=500 frees=500 requested_bytes=50000
// expect function:main>after_catch>innermost allocations=500
// expect depth:throwing count=21
#include "guest.h"
#include <stdexcept>

static NOINLINE void throwing(int depth)
{
    struct Holder {
        void *p;
        ~Holder() { free(p); }
    } holder{nullptr};
    if (depth == 0)
        throw std::runtime_error("deep");
    if (depth == 1)
        holder.p = keep(malloc(33));
    try {
        throwing(depth - 1);
        stay();
    } catch (const std::logic_error &) {
        say("never\n");
    } catch (...) {
        if (depth == 10)
            throw;
        throw;
    }
}
static NOINLINE int caught_here()
{
    try {
        throwing(20);
    } catch (const std::exception &e) {
        return keep(e.what())[0] == 'd';
    }
    return 0;
}
static NOINLINE void *innermost() { return keep(malloc(100)); }
static NOINLINE void after_catch()
{
    free(innermost());
    stay();
}

int main()
{
    int caught = 0;
    for (int i = 0; i < 500; i++) {
        caught += caught_here();
        after_catch();
    }
    say("%d caught\n", caught);
    return 0;
}
