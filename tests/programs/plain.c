//! One block, and a line of output: built in ways that the recorder does not support, statically or
//! with a sanitizer.
//
// expect function:one_block allocations=1 requested_bytes=1234
#include "guest.h"

static NOINLINE void *one_block(void) { return keep(malloc(1234)); }

int main(void)
{
    free(one_block());
    say("plain\n");
    return 5;
}
