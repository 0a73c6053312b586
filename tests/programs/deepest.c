//! Recursion 50000 frames deep: regardless of the depth limit, every block is counted, and the
//! program is not affected.
//
// expect function:down allocations=150 requested_bytes=1500
// expect depth:down count>=5000
// losses: allowed
#include "guest.h"

static NOINLINE int down(int depth)
{
    int below = 0;
    if (depth % 1000 == 0)
        keep(malloc(10));
    if (depth)
        below = down(depth - 1);
    else
        for (int i = 0; i < 99; i++)
            keep(malloc(10));
    return keep(below + 1);
}

int main(void)
{
    say("%d frames\n", down(50000));
    return 0;
}
