//! A program that was linked with older versions of functions, which behave differently: the old
//! `posix_spawn` starts a script without an interpreter line, the new one fails with `ENOEXEC`.
//
// expect function:in_program allocations=10 frees=10 requested_bytes=1000
// expect recording lost_events=0
#include "guest.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#if defined __x86_64__
__asm__(".symver posix_spawn, posix_spawn@GLIBC_2.2.5");
__asm__(".symver quick_exit, quick_exit@GLIBC_2.10");
static const int has_old = 1;
#else
static const int has_old = 0;
#endif
extern char **environ;

static NOINLINE void in_program(void)
{
    for (int i = 0; i < 10; i++)
        free(keep(malloc(100)));
}

int main(void)
{
    in_program();
    int script = open("script", O_WRONLY | O_CREAT | O_TRUNC, 0700);
    CHECK(script >= 0 && write(script, "exit 3\n", 7) == 7 && close(script) == 0);
    char *words[] = {"./script", NULL};
    pid_t child = 0;
    int status = 0;
    int failed = posix_spawn(&child, "./script", NULL, NULL, words, environ);
    if (!failed)
        CHECK(waitpid(child, &status, 0) == child);
    CHECK(failed == (has_old ? 0 : ENOEXEC));
    say("failed %d, status %d\n", failed, WEXITSTATUS(status));
    quick_exit(4);
}
