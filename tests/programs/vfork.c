//! vfork: the child uses the parent's memory until it execs or ends, and the parent continues
//! normally.
//
// expect function:parent_work allocations=3000 frees=3000
// expect function:child_image allocations=50 requested_bytes=250
#include "guest.h"
#include <sys/wait.h>

static NOINLINE void parent_work(void)
{
    for (int i = 0; i < 100; i++)
        free(keep(malloc(64)));
}
static NOINLINE void *child_image(void) { return keep(malloc(5)); }

int main(int count, char **words)
{
    if (count > 1) {
        for (int i = 0; i < 5; i++)
            child_image();
        return 9;
    }
    for (int i = 0; i < 30; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            if (i % 3 == 0)
                execl(words[0], words[0], "child", NULL);
            else if (i % 3 == 1)
                execl("/no/such/program", "none", NULL);
            _exit(9);
        }
        int status = 0;
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 9);
        parent_work();
    }
    say("lent and returned\n");
    return 0;
}
