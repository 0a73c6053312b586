//! A library to load late: recursion between two of its functions, with several kinds of frames.

#include "guest.h"
#include <alloca.h>

void *late_odd(int depth);

NOINLINE void *late_even(int depth)
{
    volatile char pad[40 + 8];
    pad[0] = (char)depth;
    if (depth == 0)
        return keep(malloc(77));
    return keep(late_odd(depth - 1));
}
NOINLINE void *late_odd(int depth)
{
    volatile char *room = (volatile char *)alloca((size_t)(16 + depth % 64));
    room[0] = 1;
    return keep(late_even(depth - 1));
}
