//! As root: a child drops its privileges before it allocates, and is recorded; its own child cannot
//! create a profile, nor can the program that it executes. Both are counted.
//
// expect recording processes=2
// expect function:in_parent allocations=1 requested_bytes=1000
// expect function:in_child allocations=1 requested_bytes=777777
#include "guest.h"
#include <grp.h>
#include <sys/wait.h>

enum { NOBODY = 65534 };

static NOINLINE void *in_parent(void) { return keep(malloc(1000)); }
static NOINLINE void *in_child(void) { return keep(malloc(777777)); }
static NOINLINE void *in_grandchild(void) { return keep(malloc(888888)); }

static void wait_for(pid_t pid)
{
    int status = 0;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

int main(void)
{
    in_parent();
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
        in_child();
        pid = fork();
        if (pid == 0) {
            in_grandchild();
            _exit(0);
        }
        wait_for(pid);
        pid = fork();
        if (pid == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(1);
        }
        wait_for(pid);
        _exit(0);
    }
    wait_for(pid);
    return 0;
}
