//! Moving the break with sbrk and brk counts the whole pages between. Blocks of malloc are
//! elsewhere, because the program raises the break first.
//
// expect recording processes=1
// mapped function:raise allocations=2 usable_bytes=118784 live_bytes=40960
// mapped function:raise freed_bytes=77824 frees=1
// mapped class:other live_bytes=40960
#include "guest.h"

#define PAGE 4096L

static NOINLINE void raise_by(intptr_t bytes) { CHECK(sbrk(bytes) != (void *)-1); stay(); }
static NOINLINE void raise(intptr_t bytes) { raise_by(bytes); stay(); }

int main(void)
{
    char *start = sbrk(0);
    CHECK(start != (void *)-1);
    intptr_t rest = -(intptr_t)start & (PAGE - 1);
    raise_by(0);
    CHECK(sbrk(rest) == start);  // to the end of an existing page
    raise(10 * PAGE - 5);
    raise(5);                    // within the same page
    raise(19 * PAGE);
    raise_by(-19 * PAGE + 9);    // one page of it stays
    CHECK(brk(start + rest + 10 * PAGE) == 0);
    return 0;
}
