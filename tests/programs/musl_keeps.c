//! A static program with musl that frees nothing, so that no `free` is linked, and `malloc` is a
//! simpler one.
//
// compiler: musl-gcc
// build: -static
// expect function:kept allocations=100 live_blocks=100 requested_bytes=100000
#include "guest.h"

static NOINLINE void *kept(void) { return keep(malloc(1000)); }

int main(void)
{
    for (int i = 0; i < 100; i++)
        kept();
    say("kept\n");
    return 15;
}
