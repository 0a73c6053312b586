//! Every way to start a program, with an environment without the recorder's variables: each started
//! program is recorded, and gets its arguments and variables.
//
// expect recording processes=15 lost_events=0
// expect function:started allocations=14 requested_bytes=14000
#include "guest.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

enum way {
    EXECVE, EXECVE_ONE, EXECV, EXECVP, EXECVPE, EXECL, EXECLP, EXECLE, SPAWN, SPAWNP, VFORK,
    FEXECVE, AFTER_FAILURES, EXECVEAT, WAYS,
};

static NOINLINE void *started(void) { return keep(malloc(1000)); }

static char self[4096];
static char *none[1];
static char one_variable[] = "VARIABLE=1";
static char *one[] = {one_variable, NULL};

static void execute(enum way way, char **words)
{
    char *number = words[2];
    switch (way) {
    case EXECVE: execve(self, words, none); break;
    case EXECVE_ONE: execve(self, words, one); break;
    case EXECV: clearenv(); execv(self, words); break;
    case EXECVP: environ = none; execvp(self, words); break;
    case EXECVPE: execvpe(self, words, one); break;
    case EXECL:
        environ = none;
        execl(self, "x", "started", number, "3", "4", "5", "6", "7", "8", (char *)NULL);
        break;
    case EXECLP: environ = none; execlp(self, "x", "started", number, (char *)NULL); break;
    case EXECLE:
        execle(self, "x", "started", number, "3", "4", "5", "6", "7", (char *)NULL, one);
        break;
    case FEXECVE: fexecve(open(self, O_RDONLY | O_CLOEXEC), words, none); break;
    case AFTER_FAILURES:
        CHECK(execve("/no/such/program", words, none) == -1 && errno == ENOENT);
        CHECK(execl("/no/such/program", "x", "1", "2", "3", "4", "5", (char *)NULL) == -1);
        CHECK(errno == ENOENT);
        execve(self, words, NULL);
        break;
    case EXECVEAT: execveat(AT_FDCWD, self, words, none, 0); break;
    default: break;
    }
    say("%d: %s\n", way, strerror(errno));
    _exit(97);
}

static pid_t start(enum way way, char **words)
{
    pid_t pid = 0;
    switch (way) {
    case SPAWN: CHECK(posix_spawn(&pid, self, NULL, NULL, words, none) == 0); break;
    case SPAWNP: CHECK(posix_spawnp(&pid, self, NULL, NULL, words, one) == 0); break;
    case VFORK:
        pid = vfork();
        if (pid == 0) {
            execve(self, words, none);
            _exit(97);
        }
        break;
    default:
        pid = fork();
        if (pid == 0)
            execute(way, words);
        break;
    }
    return pid;
}

static int is_started(int count, char **words)
{
    started();
    const char *variable = getenv("VARIABLE");
    say("started by way %s: %d words, the last is %s, variable %s\n", words[2], count,
        words[count - 1], variable ? variable : "none");
    return 7;
}

int main(int count, char **words)
{
    if (count > 1)
        return is_started(count, words);
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (enum way way = 0; way < WAYS; way++) {
        char number[12];
        snprintf(number, sizeof number, "%d", way);
        char program[] = "x", word[] = "started";
        char *arguments[] = {program, word, number, NULL};
        pid_t pid = start(way, arguments);
        int status = 0;
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    return 0;
}
