//! Recursion 5000 frames deep, with allocations on the way down and up.
//
// expect function:down allocations=502 frees=0 requested_bytes=5020
// expect depth:down count=5001
// expect function:main>down allocations=502
#include "guest.h"

static NOINLINE int down(int depth)
{
    int below = 0;
    if (depth % 20 == 0)
        keep(malloc(10));
    if (depth)
        below = down(depth - 1);
    if (depth % 20 == 0)
        keep(malloc(10));
    return keep(below + 1);
}

int main(void)
{
    say("%d frames\n", down(5000));
    return 0;
}
