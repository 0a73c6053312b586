//! Fork and exec: the child's second image has a separate profile.
//
// expect recording processes=3
// expect function:first_image allocations=10
// expect function:before_exec allocations=7
// expect function:second_image allocations=20 requested_bytes=200
#include "guest.h"
#include <sys/wait.h>

static NOINLINE void *first_image(void) { return keep(malloc(40)); }
static NOINLINE void *before_exec(void) { return keep(malloc(70)); }
static NOINLINE void *second_image(void) { return keep(malloc(10)); }

int main(int count, char **words)
{
    if (count > 1) {
        for (int i = 0; i < 20; i++)
            second_image();
        say("second image\n");
        return 3;
    }
    for (int i = 0; i < 10; i++)
        first_image();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < 7; i++)
            before_exec();
        execl(words[0], words[0], "again", NULL);
        _exit(97);
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 3);
    say("parent\n");
    return 0;
}
