//! A child that is stopped and continued many times, and one that is traced.
//
// expect function:in_child allocations=2000 frees=2000
// expect function:in_traced allocations=100 frees=100
// order: varies
#include "guest.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static NOINLINE void in_child(int i)
{
    if (i % 100 == 0)
        raise(SIGSTOP);
    free(keep(malloc(10)));
    stay();
}
static NOINLINE void in_traced(void) { free(keep(malloc(10))); stay(); }

int main(void)
{
    int status = 0, stops = 0, traps = 0;
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 2000; i++)
            in_child(i);
        _exit(1);
    }
    while (waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status)) {
        stops++;
        kill(pid, SIGCONT);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    pid = fork();
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        for (int i = 0; i < 100; i++)
            in_traced();
        _exit(2);
    }
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
        traps++;
        ptrace(traps < 5000 ? PTRACE_SINGLESTEP : PTRACE_CONT, pid, NULL, NULL);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    say("%d stops, %d traps\n", stops, traps > 4000);
    return 0;
}
