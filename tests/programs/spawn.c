//! posix_spawn, system and popen: children started by functions of the C library.
//
// expect function:spawned allocations=60 requested_bytes=600
// expect function:parent_work allocations=10
#include "guest.h"
#include <spawn.h>
#include <sys/wait.h>

static NOINLINE void *spawned(void) { return keep(malloc(10)); }
static NOINLINE void *parent_work(void) { return keep(malloc(10)); }

int main(int count, char **words)
{
    if (count > 1) {
        for (int i = 0; i < 20; i++)
            spawned();
        say("child %s\n", words[1]);
        return 2;
    }
    for (int i = 0; i < 10; i++)
        parent_work();
    char *arguments[] = {words[0], "a", NULL}, command[4096];
    pid_t pid = 0;
    int status = 0;
    CHECK(posix_spawn(&pid, words[0], NULL, NULL, arguments, environ) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 2);
    snprintf(command, sizeof command, "'%s' b", words[0]);
    status = system(command);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    snprintf(command, sizeof command, "'%s' c", words[0]);
    FILE *pipe = popen(command, "r");
    char line[100] = "";
    CHECK(pipe && fgets(line, sizeof line, pipe) && !strcmp(line, "child c\n"));
    CHECK(WEXITSTATUS(pclose(pipe)) == 2);
    say("spawned\n");
    return 0;
}
