//! Fork without exec: the child starts with empty tables, frees inherited blocks, and forks again.
//
// expect recording processes=3
// expect function:in_parent allocations=110 frees=110 requested_bytes=5500
// expect function:in_child allocations=200 frees=200 requested_bytes=4000
// expect function:in_grandchild allocations=300 frees=0 requested_bytes=9000
#include "guest.h"
#include <sys/wait.h>

static NOINLINE void *in_parent(void) { return keep(malloc(50)); }
static NOINLINE void *in_child(void) { return keep(malloc(20)); }
static NOINLINE void *in_grandchild(void) { return keep(malloc(30)); }

static void wait_for(pid_t pid, int expected)
{
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == expected);
}
static int grandchild(void)
{
    for (int i = 0; i < 300; i++)
        in_grandchild();
    return 5;
}
static int child(void **inherited)
{
    for (int i = 0; i < 100; i++)
        free(inherited[i]);  // inherited from the parent
    for (int i = 0; i < 200; i++)
        free(in_child());
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(grandchild());
    wait_for(pid, 5);
    return 4;
}

int main(void)
{
    void *blocks[100];
    for (int i = 0; i < 100; i++)
        blocks[i] = in_parent();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        exit(child(blocks));
    wait_for(pid, 4);
    for (int i = 0; i < 10; i++)
        free(in_parent());
    for (int i = 0; i < 100; i++)
        free(blocks[i]);
    say("forked\n");
    return 0;
}
