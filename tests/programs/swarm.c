//! 500 children forked at once, each allocating while others start.
//
// expect recording processes=501
// expect function:in_child allocations=5000 requested_bytes=50000
#include "guest.h"
#include <sys/wait.h>

static NOINLINE void *in_child(void) { return keep(malloc(10)); }

int main(void)
{
    int gate[2];
    CHECK(pipe(gate) == 0);
    for (int i = 0; i < 500; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            char byte;
            close(gate[1]);
            CHECK(read(gate[0], &byte, 1) == 0);  // all start when the parent closes its end
            for (int k = 0; k < 10; k++)
                in_child();
            _exit(0);
        }
    }
    close(gate[1]);
    int ended = 0, status = 0;
    while (wait(&status) > 0)
        ended += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    say("%d children\n", ended);
    return 0;
}
