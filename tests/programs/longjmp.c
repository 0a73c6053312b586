//! longjmp over recorded frames: the kept stack is truncated, and not reused by mistake.
//
// expect function:up>down allocations=2000 frees=0 requested_bytes=20000
// expect function:after allocations=1000 frees=1000
// expect function:up>after allocations=0
// expect function:main>after allocations=1000
// expect depth:down count=12
#include "guest.h"
#include <setjmp.h>

static jmp_buf back;

static NOINLINE void down(int depth)
{
    if (depth == 0 || depth == 6)
        keep(malloc(10));
    if (depth == 0)
        longjmp(back, 1);
    down(depth - 1);
    stay();
}
static NOINLINE void up(void)
{
    down(11);
    stay();
}
static NOINLINE void after(int depth)
{
    if (depth == 0)
        free(keep(malloc(10)));
    else
        after(depth - 1);
    stay();
}

int main(void)
{
    for (volatile int i = 0; i < 1000; i++) {
        if (setjmp(back) == 0)
            up();
        after(i % 20);
    }
    say("jumped\n");
    return 0;
}
