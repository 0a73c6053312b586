//! The environment block is emptied and overwritten, like by setproctitle, before the program
//! forks: its children are recorded nevertheless.
//
// expect recording processes=3 lost_events=0
// expect function:in_parent allocations=1 requested_bytes=1000
// expect function:in_child allocations=10 requested_bytes=50000
// expect function:in_grandchild allocations=20 requested_bytes=600
#include "guest.h"
#include <sys/wait.h>

extern char **environ;

static NOINLINE void *in_parent(void) { return keep(malloc(1000)); }
static NOINLINE void *in_child(void) { return keep(malloc(5000)); }
static NOINLINE void *in_grandchild(void) { return keep(malloc(30)); }

// Writes a title over the arguments and the environment.
static void set_title(char **words, const char *title)
{
    char *end = words[0] + strlen(words[0]) + 1;
    for (char **entry = environ; *entry; entry++)
        end = *entry + strlen(*entry);
    static char *none[1];
    environ = none;
    memset(words[0], 0, (size_t)(end - words[0]));
    strcpy(words[0], title);
}

static int wait_for(pid_t pid)
{
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int child(void)
{
    for (int i = 0; i < 10; i++)
        in_child();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < 20; i++)
            in_grandchild();
        _exit(3);
    }
    return wait_for(pid) + 1;
}

int main(int count, char **words)
{
    CHECK(count > 0);
    in_parent();
    set_title(words, "titles: worker");
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(child());
    say("%d\n", wait_for(pid));
    return 0;
}
