//! Limits of statements in C: some are kept; with an argument, one is exceeded, which calls abort.
//
// expect function:frugal allocations=2 frees=2
// expect function:wasteful allocations=0
#include "guest.h"
#include "../../include/heaptide_test.h"

static NOINLINE void frugal(void) { free(keep(malloc(100))); }
static NOINLINE void wasteful(void)
{
    frugal();
    free(keep(malloc(7)));
}

int main(int count, char **arguments)
{
    int sum = 0;
    (void)arguments;
    HEAPTIDE_NO_ALLOC(sum += count);
    HEAPTIDE_MAX_ALLOCATIONS(1, frugal());
    HEAPTIDE_MAX_LEAKED_BLOCKS(0, frugal(); sum += 1);
    if (count > 1)
        HEAPTIDE_MAX_REQUESTED_BYTES(106, wasteful());
    say("sum %d\n", sum);
    return 0;
}
