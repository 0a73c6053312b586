//! Performs a step for each byte that it reads, and echoes the byte: commands attach while it
//! waits.
// Each step except `x`, `b` and `m` starts this program again, which then allocates once in
// `started`: 1000 bytes.
//
//   s: with system and the environment of this program
//   o: with popen and the same environment
//   e: with execve in a child of vfork, with an empty environment
//   p: with posix_spawn and an empty environment
//   c: runs the command in its first argument with system
//   v: a child of vfork writes `w`, waits for a byte, and starts nothing
//   x: executes this program again, which continues with the next step
//   b: allocates 20 MB and writes to them
//   m: allocates 1000 bytes
//
// Started with `-keeps`, it allocates 5 MB and writes to them.
//
// `soep` while it is recorded: 4 allocations in `started`.
#include "guest.h"
#include <spawn.h>
#include <sys/wait.h>

static NOINLINE void *started(void) { return keep(malloc(1000)); }

static char self[4096], start[4200];
static char *none[1];

static void is_done(pid_t pid)
{
    int status = 0;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void do_step(char step, char **words)
{
    char name[] = "x", word[] = "-started";
    char *arguments[] = {name, word, NULL};
    pid_t pid = 0;
    switch (step) {
    case 's': CHECK(WEXITSTATUS(system(start)) == 7); break;
    case 'o': CHECK(WEXITSTATUS(pclose(popen(start, "r"))) == 7); break;
    case 'e':
        pid = vfork();
        if (pid == 0) {
            execve(self, arguments, none);
            _exit(97);
        }
        is_done(pid);
        break;
    case 'p':
        CHECK(posix_spawn(&pid, self, NULL, NULL, arguments, none) == 0);
        is_done(pid);
        break;
    case 'c': CHECK(system(words[1]) == 0); break;
    case 'v':
        pid = vfork();
        if (pid == 0) {
            say("w");
            hear();
            _exit(7);
        }
        is_done(pid);
        break;
    case 'x': execv(self, words); break;
    case 'm': keep(malloc(1000)); break;
    case 'b': memset(keep(malloc(20000000)), 1, 20000000); break;
    default: break;
    }
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "-started") == 0) {
        started();
        return 7;
    }
    if (count > 1 && strcmp(words[1], "-keeps") == 0) {
        memset(keep(malloc(5000000)), 1, 5000000);
        return 0;
    }
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(start, sizeof start, "'%s' -started", self);
    char step;
    CHECK(write(1, "r", 1) == 1);
    while (read(0, &step, 1) == 1) {
        do_step(step, words);
        CHECK(write(1, &step, 1) == 1);
    }
    return 0;
}
