//! Strict seccomp: afterwards only read, write and exit are allowed, also for the recorder.
//
// expect function:before allocations=100 frees=100
// expect function:within allocations=1000 frees=1000
// expect function:new_within allocations=8 frees=8
#include "guest.h"
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static NOINLINE void before(void) { free(keep(malloc(1000))); stay(); }
static NOINLINE void within(void) { free(keep(malloc(500))); stay(); }
static NOINLINE void new_within(unsigned path) { free(branch(path, 3, 60)); stay(); }

int main(void)
{
    for (int i = 0; i < 100; i++)
        before();
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    for (int i = 0; i < 1000; i++)
        within();
    for (unsigned i = 0; i < 8; i++)
        new_within(i);
    say("strict\n");
    syscall(SYS_exit, 15);
    return 0;
}
