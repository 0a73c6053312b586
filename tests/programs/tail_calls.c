//! Tail calls: the stack does not contain a function that ended in a tail call, but it contains its
//! caller.
//
// expect function:main>caller>last allocations=100 requested_bytes=1000
// expect function:jumper allocations=0
// expect leaf:last allocations=100
#include "guest.h"

static NOINLINE void *last(size_t n) { return keep(malloc(n)); }
static NOINLINE void *jumper(size_t n) { return last(n + 5); }
static NOINLINE void *caller(size_t n) { return keep(jumper(n)); }

int main(void)
{
    for (int i = 0; i < 100; i++)
        free(caller(5));
    say("tails\n");
    return 0;
}
