//! Children created with raw clone, bypassing every hook of the C library: a copy, and one that
//! shares the memory.
//
// expect function:in_copy allocations=50 requested_bytes=500
// expect function:in_parent allocations=100
#include "guest.h"
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char stack[256 * 1024] __attribute__((aligned(64)));

static NOINLINE void *in_copy(void) { return keep(malloc(10)); }
static NOINLINE void *in_parent(void) { return keep(malloc(10)); }
static int sharer(void *unused)
{
    (void)unused;
    return 8;
}
static void wait_for(long pid, int expected)
{
    int status = 0;
    CHECK(waitpid((pid_t)pid, &status, __WALL) == pid && WEXITSTATUS(status) == expected);
}

int main(void)
{
    for (int i = 0; i < 50; i++)
        in_parent();
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < 50; i++)
            in_copy();
        _exit(7);
    }
    wait_for(pid, 7);
    wait_for(clone(sharer, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL), 8);
    for (int i = 0; i < 50; i++)
        in_parent();
    say("cloned\n");
    return 0;
}
