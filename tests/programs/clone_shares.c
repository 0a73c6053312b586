//! Children that share the memory of their parent (CLONE_VM) and allocate while it waits, on their
//! own stacks: some borrow its thread-local memory, end by a system call, `_exit` or `exit`, and
//! one is a thread that the C library does not know. All events are those of the parent, which
//! continues to be recorded.
//
// expect function:in_child allocations=500 frees=500
// expect function:in_parent allocations=600 frees=600
// expect function:in_handler allocations=10 frees=10
// expect recording processes=1
#include "guest.h"
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

enum { STACK = 64 << 10 };

static char stacks[5][STACK] __attribute__((aligned(64)));
static void *kept[50];
static volatile int thread_id;

static NOINLINE void in_child(void)
{
    for (int i = 0; i < 100; i++) {
        void *block = keep(malloc((size_t)i + 1));
        if (i < 50)
            kept[i] = block;
        else
            free(block);
    }
}

static NOINLINE void in_parent(void)
{
    for (int i = 0; i < 100; i++)
        free(keep(malloc((size_t)i + 1)));
    for (int i = 0; i < 50; i++) {
        free(kept[i]);
        kept[i] = NULL;
    }
}

static NOINLINE void in_handler(void)
{
    for (int i = 0; i < 10; i++)
        free(keep(malloc(10)));
}

static int returns(void *status)
{
    in_child();
    return (int)(long)status;
}

static int leaves(void *status)
{
    in_child();
    _exit((int)(long)status);
}

static int exits(void *status)
{
    in_child();
    exit((int)(long)status);
}

static int ends(void *unused)
{
    (void)unused;
    in_child();
    syscall(SYS_exit, 0);
    return 0;
}

static void run(int (*child)(void *), int number, int flags)
{
    long status = number + 3;
    int found = 0;
    pid_t pid = clone(child, stacks[number] + STACK, CLONE_VM | SIGCHLD | flags, (void *)status);
    CHECK(pid > 0 && waitpid(pid, &found, 0) == pid);
    CHECK(WIFEXITED(found) && WEXITSTATUS(found) == status);
    in_parent();
}

static void run_thread(void)
{
    int flags = CLONE_VM | CLONE_THREAD | CLONE_SIGHAND | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM |
                CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID;
    int *id = (int *)&thread_id, value;
    thread_id = -1;
    CHECK(clone(ends, stacks[4] + STACK, flags, NULL, id, NULL, id) > 0);
    while ((value = thread_id) != 0)
        syscall(SYS_futex, id, FUTEX_WAIT, value, NULL, NULL, 0);
    in_parent();
}

int main(void)
{
    CHECK(atexit(in_handler) == 0);
    in_parent();
    run(returns, 0, CLONE_VFORK);
    run(leaves, 1, CLONE_VFORK);
    run(leaves, 2, 0);
    run_thread();
    run(exits, 3, CLONE_VFORK); // runs the handler for both
    say("shared\n");
    _exit(4);
}
